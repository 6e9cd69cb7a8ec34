"""Requests of brokers, clients and operators to a NameServer, in each of the three headers.

Headers and bodies are encoded and decoded here without the code under test.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import msgpack

from tests.support.raw_peer import RawPeer
from tests.support.spelling import Ext, Response, binary_frame, json_frame, native_frame

Spelling = Literal["json", "binary", "native"]
SPELLINGS: tuple[Spelling, ...] = ("json", "binary", "native")

# sent by Apache's current brokers and clients
VERSION = 479
# milliseconds since 1970, in every DataVersion here
TIMESTAMP = 1_700_000_000_000


class Broker(NamedTuple):
    """A broker to register."""

    name: str = "broker-a"
    id: int = 0
    addr: str = "10.0.0.1:10911"
    cluster: str = "cluster-1"

    @property
    def ext(self) -> dict[str, Any]:
        """The ext fields that identify a broker (103, 104, 322, 904)."""
        return {"clusterName": self.cluster, "brokerAddr": self.addr, "brokerName": self.name, "brokerId": str(self.id)}


MASTER = Broker()
SLAVE = Broker(id=1, addr="10.0.0.2:10911")
OTHER = Broker("broker-b", 0, "10.0.0.3:10911")
ELSEWHERE = Broker("broker-c", 0, "10.0.1.1:10911", "cluster-2")


class How(TypedDict, total=False):
    """Encoding of a request; by default JSON, as Apache's current brokers and clients send."""

    spelling: Spelling
    version: int
    flag: int


class NamesrvPeer(RawPeer):
    """One connection to a NameServer; any number of requests may be in flight."""

    _last_opaque = 0

    async def call(self, code: int, ext: Ext = None, body: bytes = b"", **how: Unpack[How]) -> Response:
        return await self.response_to(self.send_request(code, ext, body, **how))

    def send_request(self, code: int, ext: Ext = None, body: bytes = b"", **how: Unpack[How]) -> int:
        """Send a request without waiting; return its opaque."""
        self._last_opaque += 1
        self.send(request_frame(code, ext, body, opaque=self._last_opaque, **how))
        return self._last_opaque

    async def response_to(self, opaque: int) -> Response:
        """The next response, which must belong to this request."""
        answer = await self.receive()
        assert answer.opaque == opaque
        return answer

    async def register(
        self,
        broker: Broker,
        body: bytes | None = None,
        *,
        spelling: Spelling = "json",
        version: int = 479,
        **ext: object,
    ) -> Response:
        """Register a broker, by default with the topics T and U."""
        if body is None:
            body = native_registration("T", "U") if spelling == "native" else registration("T", "U")
        return await self.call(103, {**broker.ext, **ext}, body, spelling=spelling, version=version)


def request_frame(code: int, ext: Ext = None, body: bytes = b"", *, opaque: int = 1, **how: Unpack[How]) -> bytes:
    """The frame of a request in one of the encodings."""
    spell = {"json": json_frame, "binary": binary_frame, "native": native_frame}[how.get("spelling", "json")]
    return spell(code, opaque, ext, body, version=how.get("version", VERSION), flag=how.get("flag", 0))


def native(members: object) -> bytes:
    """Encode a native body."""
    packed: bytes = msgpack.packb(members)
    return packed


def topic_config(name: str, *, read: int = 8, write: int = 8, perm: int = 6, flags: int = 0) -> dict[str, Any]:
    """A TopicConfig with Java's names."""
    return {
        "topicName": name,
        "readQueueNums": read,
        "writeQueueNums": write,
        "perm": perm,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": flags,
        "order": False,
        "attributes": {},
    }


def registration(
    *topics: str | dict[str, Any],
    counter: int = 1,
    state_version: int = 0,
    filter_servers: tuple[str, ...] = (),
    mappings: Mapping[str, Any] | None = None,
) -> bytes:
    """A RegisterBrokerBody in JSON; a topic is a name or a TopicConfig."""
    configs = [topic_config(topic) if isinstance(topic, str) else topic for topic in topics]
    wrapper = {
        "dataVersion": {"counter": counter, "stateVersion": state_version, "timestamp": TIMESTAMP},
        "topicConfigTable": {config["topicName"]: config for config in configs},
        "topicQueueMappingInfoMap": dict(mappings or {}),
    }
    members = {"filterServerList": list(filter_servers), "topicConfigSerializeWrapper": wrapper}
    return json.dumps(members, separators=(",", ":")).encode()


def native_topic(name: str, *, read: int = 8) -> dict[str, Any]:
    """A TopicConfig with native names."""
    return {
        "topic_name": name,
        "read_queue_nums": read,
        "write_queue_nums": 8,
        "perm": 6,
        "topic_sys_flag": 0,
    }


def native_registration(
    *topics: str | dict[str, Any], counter: int = 1, state_version: int = 0, **members: object
) -> bytes:
    """A native registration body; a topic is a name or a native TopicConfig."""
    configs = [native_topic(topic) if isinstance(topic, str) else topic for topic in topics]
    version = {"counter": counter, "state_version": state_version, "timestamp": TIMESTAMP}
    return native({"topic_configs": configs, "data_version": version, **members})


# -- a server with data in every table -------------------------------------------------------------------------------

# a RocketMQ broker in zone-1, an agent, and a broker without a DataVersion
POPULATION = (Broker(), Broker("broker-b", 0, "10.0.0.2:10911"), Broker("broker-c", 0, "10.0.0.3:10911"))


async def populate(peer: NamesrvPeer) -> None:
    """Register POPULATION: topics T and U on two brokers, a mapping, filter servers and order configuration."""
    broker, agent, versionless = POPULATION
    mapping = {"T": {"topic": "T", "bname": "broker-a", "totalQueues": 1, "currIdMap": {"0": 0}}}
    body = registration("T", "U", "5", "null", filter_servers=("10.0.0.1:30000",), mappings=mapping)
    await peer.register(broker, body, __ZONE_NAME="zone-1")
    await peer.register(agent, native_registration("T", "U"), spelling="native", agentId="agent-1")
    await peer.register(versionless, native({"topic_configs": []}), spelling="native")
    await peer.call(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"})
