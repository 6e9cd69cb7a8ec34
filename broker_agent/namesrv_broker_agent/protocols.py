"""The two protocols of an agent: registration, heartbeat and unregister, natively and in RocketMQ's protocol."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar, TypeVarTuple

from namesrv_broker_agent.own_broker import OwnBroker
from namesrv_broker_agent.topics import TopicChange, TopicSnapshot
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.bodies.compressed import write_compressed
from namesrv_remoting.bodies.dialects import JSON
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import PERM_READ, RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import QueryNotFoundError
from namesrv_runtime.threads import NoThreadError, in_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Registrations above this size are compressed. Apache's server limits frames to 16 MiB; ten thousand topics take 2 MB
# of JSON and 60 KB compressed, and sixty thousand topics still fit.
COMPRESS_BYTES: Final = 1024 * 1024
# Encoding more topics than this as JSON takes over 5 ms, which is too long on the broker's own event loop.
_OFF_LOOP_TOPICS: Final = 1000
# Further time per byte of a registration before its request times out.
SECONDS_PER_BYTE: Final = 1 / (2 * 1024 * 1024)
# The shortest time between two requests for the DataVersion (322); heartbeats in between are a 904.
QUERY_SECONDS: Final = 25.0
_CRC_MASK: Final = 0x7FFFFFFF
# a system topic of every RocketMQ broker, added where the only topic has the name of the broker
_SECOND_TOPIC: Final = "SELF_TEST_TOPIC"


@dataclass(frozen=True, slots=True)
class MasterInfo:
    """The addresses of a slave's master."""

    master_addr: str
    ha_server_addr: str | None


@dataclass(frozen=True, slots=True)
class RegistrationResponse:
    """The response to a registration."""

    # the master of a slave; None if the server knows no master
    master: MasterInfo | None
    # the server's boot id; None from Apache's server
    boot_id: str | None


class BrokerProtocol(ABC):
    """One protocol. Every request raises a RemotingError if the server is unreachable or refuses the request."""

    name: ClassVar[str]
    _serialize_type: ClassVar[SerializeType]

    def __init__(self, broker: OwnBroker, timeout_seconds: float) -> None:
        self._broker = broker
        # seconds to wait for a response
        self._timeout = timeout_seconds

    async def register(
        self, client: RemotingClient, snapshot: TopicSnapshot, change: TopicChange | None
    ) -> RegistrationResponse:
        """Register all topics of the snapshot, or only those of the change that led to the snapshot."""
        # The broker is read first, so that it is of the same moment as the topics.
        broker_fields = self._broker.registration_fields()
        body_fields, body = await self._registration(snapshot, change)
        fields = {**broker_fields, **body_fields, **self._fence(self._broker.next_registration_seq())}
        seconds = self._timeout + len(body) * SECONDS_PER_BYTE
        response = await self._request(client, RequestCode.REGISTER_BROKER, fields, body, seconds)
        ext = response.ext_fields or {}
        master = MasterInfo(ext["masterAddr"], ext.get("haServerAddr")) if "masterAddr" in ext else None
        return RegistrationResponse(master, ext.get("boot_id"))

    @abstractmethod
    async def heartbeat(self, client: RemotingClient, version: DataVersion, now: float) -> str | None:
        """Send a heartbeat; return the boot id, None in RocketMQ's protocol.

        Raises QueryNotFoundError if the server does not have the broker with the version that the server accepted.
        """

    async def unregister(self, client: RemotingClient, timeout_seconds: float) -> None:
        """Send an unregister request."""
        fields = {**self._broker.address_fields(), **self._fence(self._broker.registration_seq)}
        await self._request(client, RequestCode.UNREGISTER_BROKER, fields, b"", timeout_seconds)

    @abstractmethod
    async def _registration(self, snapshot: TopicSnapshot, change: TopicChange | None) -> tuple[dict[str, str], bytes]:
        """The ext fields that describe the body of a registration, and the body."""

    def _fence(self, registration_seq: int) -> Mapping[str, str]:  # noqa: ARG002 - used by NativeProtocol
        """The ext fields by which a server distinguishes this registration from an older one."""
        return {}

    async def _request(
        self, client: RemotingClient, code: RequestCode, fields: Mapping[str, str], body: bytes, timeout_seconds: float
    ) -> RemotingCommand:
        return await client.invoke(
            code, ext_fields=fields, body=body, timeout_seconds=timeout_seconds, serialize_type=self._serialize_type
        )


class NativeProtocol(BrokerProtocol):
    """The native protocol: msgpack headers and bodies, for namesrv."""

    name = "native"
    _serialize_type = SerializeType.MSGPACK

    async def heartbeat(
        self,
        client: RemotingClient,
        version: DataVersion,  # noqa: ARG002 - for RocketmqProtocol
        now: float,  # noqa: ARG002 - for RocketmqProtocol
    ) -> str | None:
        """Send a 904 with the broker's reported state; the server refuses a heartbeat of an unknown broker."""
        broker = self._broker
        fields = {**broker.address_fields(), "agentId": broker.agent_id}
        response = await self._request(client, RequestCode.BROKER_HEARTBEAT, fields, broker.state_body(), self._timeout)
        return (response.ext_fields or {}).get("boot_id")

    async def _registration(self, snapshot: TopicSnapshot, change: TopicChange | None) -> tuple[dict[str, str], bytes]:
        fields = {"kind": "full" if change is None else "delta"}
        body = encode_native_body(self._broker.native_body(snapshot, change))
        if len(body) <= COMPRESS_BYTES:
            return fields, body
        return {**fields, "compressed": "true"}, await _off_loop(zlib.compress, body)

    def _fence(self, registration_seq: int) -> Mapping[str, str]:
        return {"agentId": self._broker.agent_id, "registrationSeq": str(registration_seq)}


class RocketmqProtocol(BrokerProtocol):
    """RocketMQ's protocol as a 5.x broker speaks it, for Apache's server or namesrv.

    Every registration is a full one: an increment carries the newest DataVersion, and if an earlier increment was
    lost, Apache's server would ignore all later full registrations as unchanged.
    """

    name = "rocketmq"
    _serialize_type = SerializeType.JSON
    # time of the last request for the DataVersion
    _queried_at = float("-inf")

    async def heartbeat(self, client: RemotingClient, version: DataVersion, now: float) -> str | None:
        """Send a 322, which refreshes the live entry and reports whether it exists; or a 904, which only refreshes it.

        Apache's server responds to a 904 with success even if the broker is unknown.
        """
        fields = self._broker.address_fields()
        if now - self._queried_at < QUERY_SECONDS:
            await self._request(client, RequestCode.BROKER_HEARTBEAT, fields, b"", self._timeout)
            return None
        response = await self._request(
            client, RequestCode.QUERY_DATA_VERSION, fields, JSON.encode(version), self._timeout
        )
        self._queried_at = now
        if (response.ext_fields or {}).get("changed") != "false":
            raise QueryNotFoundError("the server has another DataVersion, or none")
        return None

    async def _registration(
        self,
        snapshot: TopicSnapshot,
        change: TopicChange | None,  # noqa: ARG002 - for NativeProtocol
    ) -> tuple[dict[str, str], bytes]:
        topics, version = self._broker.as_registered(snapshot[0]), snapshot[1]
        if len(topics) == 1:
            # Apache's server treats a first registration with exactly one topic as an increment. Real brokers always
            # have a topic with their own name, and `_SECOND_TOPIC`.
            name = self._broker.settings.broker_name
            second = name if name != topics[0].topic_name else _SECOND_TOPIC
            topics = (*topics, TopicConfig(second, 1, 1, PERM_READ, 0))
        if len(topics) > _OFF_LOOP_TOPICS:
            return await _off_loop(_rocketmq_registration, topics, version)
        return _rocketmq_registration(topics, version)


def _rocketmq_registration(topics: Sequence[TopicConfig], version: DataVersion) -> tuple[dict[str, str], bytes]:
    fields, body = {}, encode_json_body(RegisterBrokerBody(topics, version, {}, ()))
    if len(body) > COMPRESS_BYTES:
        fields, body = {"compressed": "true"}, write_compressed(topics, version, {}, ())
    return {**fields, "bodyCrc32": str(zlib.crc32(body) & _CRC_MASK)}, body


async def _off_loop(work: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """The result of work in a thread; if the process can start no thread, the event loop does the work."""
    try:
        return await in_thread(work, *arguments)
    except NoThreadError:
        return work(*arguments)
