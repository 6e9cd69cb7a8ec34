"""A broker's requests to a NameServer."""

from dataclasses import dataclass

from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.command import RemotingCommand
from tests.support.peer import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker, and its requests over a connection that the test chooses."""

    name: str = "broker-a"
    broker_id: int = 0
    addr: str = "10.0.0.1:10911"
    cluster: str = "cluster-a"
    # a first registration with exactly one would be refused
    topics: tuple[str, ...] = ("orders", "bills")
    # as brokers from 5.x on say
    enable_acting_master: bool = False

    def register(self, peer: Peer) -> RemotingCommand:
        """103, full; the answer."""
        opaque = self.send_registration(peer)
        answer = peer.receive()
        assert (opaque, 0) == (answer.opaque, answer.code), answer
        return answer

    def send_registration(self, peer: Peer) -> int:
        """103, full, without waiting for the answer; its opaque."""
        body = RegisterBrokerBody(
            [TopicConfig(topic, 8, 8) for topic in self.topics], DataVersion(counter=1, timestamp=100)
        )
        ext_fields = {
            **self._identity(),
            "haServerAddr": f"{self.addr}0",
            "enableActingMaster": str(self.enable_acting_master).lower(),
        }
        encoded = encode_native_body(body) if peer.native else encode_json_body(body)
        return peer.send(RequestCode.REGISTER_BROKER, ext_fields, encoded)

    def heartbeat(self, peer: Peer) -> int:
        """904; the code of the answer, which is 22 when it was sent natively and the broker is not registered."""
        return peer.ask(RequestCode.BROKER_HEARTBEAT, self._identity()).code

    def unregister(self, peer: Peer) -> int:
        """104; the code of the answer."""
        return peer.ask(RequestCode.UNREGISTER_BROKER, self._identity()).code

    def _identity(self) -> dict[str, str]:
        return {
            "brokerName": self.name,
            "brokerAddr": self.addr,
            "clusterName": self.cluster,
            "brokerId": str(self.broker_id),
        }
