"""The broker as every NameServer gets to know it: registration, heartbeat and leave, natively and in RocketMQ's way."""

import asyncio
import logging
import secrets
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from namesrv_broker_agent.settings import AgentSettings
from namesrv_broker_agent.topics import TopicChange, TopicTable
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.bodies.compressed import write_compressed
from namesrv_remoting.bodies.dialects import JSON, NATIVE
from namesrv_remoting.bodies.extensions import MAX_STATE_BYTES, heartbeat_state
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import PERM_READ, PERM_WRITE, RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import QueryNotFoundError

logger: Final = logging.getLogger("namesrv_agent.heartbeat")

# From this size on a registration is compressed. Apache's server has 16 MiB for a frame; ten thousand topics are 2 MB
# of JSON and 60 KB compressed, and sixty thousand still fit.
COMPRESS_BYTES: Final = 1024 * 1024
# From this many on, spelling them RocketMQ's way takes over 5 ms, which the broker's loop may not have.
_OFF_LOOP_TOPICS: Final = 1000
# What a large registration may take longer than a small one, per byte.
SECONDS_PER_BYTE: Final = 1 / (2 * 1024 * 1024)
# With heartbeats closer than this, only as many of them ask for the DataVersion; the others just touch.
QUERY_SECONDS: Final = 25.0
_CRC_MASK: Final = 0x7FFFFFFF
# one of those that every RocketMQ broker has
_SECOND_TOPIC: Final = "SELF_TEST_TOPIC"


# What a broker says of itself: small, flat, its own names.
BrokerState = Mapping[str, str | int | float | bool | None]


class BrokerIdentity:
    """The broker as it is now: who it is, what it has, and how often it has said so. Shared by all links."""

    def __init__(self, settings: AgentSettings, table: TopicTable, state: Callable[[], BrokerState] | None) -> None:
        self.settings = settings
        self.table = table
        self.broker_id = settings.broker_id
        # False while draining: all topics are registered without write permission, the table itself stays
        self.is_writable = True
        # this process, for servers that tell an old registration from a new one
        self.agent_id = secrets.token_hex(8)
        # of the last registration that was sent, to whichever server
        self.registration_seq = 0
        self._state = state

    def next_registration_seq(self) -> int:
        """The number of the registration that is being sent."""
        self.registration_seq += 1
        return self.registration_seq

    def topics(self) -> tuple[Sequence[TopicConfig], DataVersion]:
        """All topics as they are to be registered, and the version that stands for just these."""
        topics, version = self.table.snapshot()
        return self.as_registered(topics), version

    def as_registered(self, topics: Sequence[TopicConfig]) -> Sequence[TopicConfig]:
        """Topics as they are to be registered: without write permission while draining."""
        if self.is_writable:
            return topics
        return [msgspec.structs.replace(topic, perm=topic.perm & ~PERM_WRITE) for topic in topics]

    def state_body(self) -> bytes:
        """What the broker says of itself now, as a heartbeat's body; empty if nobody was asked to say anything.

        A state that cannot be sent is left out: the server would refuse the heartbeat with it, and evict the broker.
        """
        if self._state is None:
            return b""
        try:
            body = NATIVE.encode({"state": dict(self._state())})
            heartbeat_state(body)
        except Exception:
            # the broker's own code; whatever is wrong with it, the broker lives
            logger.exception("heartbeat without the broker's state, a flat map of at most %d bytes", MAX_STATE_BYTES)
            return b""
        return body

    def address_fields(self) -> dict[str, str]:
        """The ext fields that name this broker in every request."""
        return {
            "clusterName": self.settings.cluster_name,
            "brokerName": self.settings.broker_name,
            "brokerAddr": self.settings.broker_addr,
            "brokerId": str(self.broker_id),
        }

    def registration_fields(self) -> dict[str, str]:
        """The ext fields of a registration, in either protocol."""
        settings = self.settings
        fields = {**self.address_fields(), "enableActingMaster": "true" if settings.enable_acting_master else "false"}
        if settings.ha_server_addr is not None:
            fields["haServerAddr"] = settings.ha_server_addr
        if settings.expiry_seconds is not None:
            fields["heartbeatTimeoutMillis"] = str(max(1, round(settings.expiry_seconds * 1000)))
        if settings.zone_name is not None:
            fields["__ZONE_NAME"] = settings.zone_name
        return fields


@dataclass(frozen=True, slots=True)
class MasterInfo:
    """Where the master of this slave is."""

    master_addr: str
    ha_server_addr: str | None


@dataclass(frozen=True, slots=True)
class Registered:
    """What a server answered to a registration."""

    # of a slave, where the server knows it
    master: MasterInfo | None
    # which run of the server; None from a server that does not say
    boot_id: str | None


class Dialect(ABC):
    """One protocol. Every verb raises RemotingError when the server cannot be reached or refuses."""

    name: ClassVar[str]
    _serialize_type: ClassVar[SerializeType]

    def __init__(self, identity: BrokerIdentity, timeout_seconds: float) -> None:
        self._identity = identity
        # for an answer
        self._timeout = timeout_seconds

    async def register(self, client: RemotingClient, change: TopicChange | None) -> Registered:
        """Register fully, or only what changed."""
        # first, so that they are of the same moment as the topics
        who = self._identity.registration_fields()
        how, body = await self._registration(change)
        fields = {**who, **how, **self._fence(self._identity.next_registration_seq())}
        seconds = self._timeout + len(body) * SECONDS_PER_BYTE
        answer = await self._ask(client, RequestCode.REGISTER_BROKER, fields, body, seconds)
        said = answer.ext_fields or {}
        master = MasterInfo(said["masterAddr"], said.get("haServerAddr")) if "masterAddr" in said else None
        return Registered(master, said.get("boot_id"))

    @abstractmethod
    async def heartbeat(self, client: RemotingClient, now: float) -> str | None:
        """Say that the broker lives; the server's boot id. Raises QueryNotFoundError if it wants a registration."""

    async def unregister(self, client: RemotingClient, timeout_seconds: float) -> None:
        """Leave."""
        fields = {**self._identity.address_fields(), **self._fence(self._identity.registration_seq)}
        await self._ask(client, RequestCode.UNREGISTER_BROKER, fields, b"", timeout_seconds)

    @abstractmethod
    async def _registration(self, change: TopicChange | None) -> tuple[dict[str, str], bytes]:
        """The body of a registration, and the fields that say how to read it."""

    def _fence(self, registration_seq: int) -> Mapping[str, str]:  # noqa: ARG002 - natively it is sent
        """What tells this registration from an older one."""
        return {}

    async def _ask(
        self, client: RemotingClient, code: RequestCode, fields: Mapping[str, str], body: bytes, timeout_seconds: float
    ) -> RemotingCommand:
        return await client.invoke(
            code, ext_fields=fields, body=body, timeout_seconds=timeout_seconds, serialize_type=self._serialize_type
        )


class NativeDialect(Dialect):
    """msgpack headers and bodies, to a server of our own."""

    name = "native"
    _serialize_type = SerializeType.MSGPACK

    async def heartbeat(self, client: RemotingClient, now: float) -> str | None:  # noqa: ARG002 - the other needs it
        """904 with the broker's own state; an unknown broker is told so."""
        identity = self._identity
        fields = {**identity.address_fields(), "agentId": identity.agent_id}
        answer = await self._ask(client, RequestCode.BROKER_HEARTBEAT, fields, identity.state_body(), self._timeout)
        return (answer.ext_fields or {}).get("boot_id")

    async def _registration(self, change: TopicChange | None) -> tuple[dict[str, str], bytes]:
        identity = self._identity
        if change is None:
            fields, told = {"kind": "full"}, RegisterBrokerBody(*identity.topics(), {}, None)
        else:
            topics, version = identity.as_registered(change.changed), identity.table.data_version
            fields, told = {"kind": "delta"}, RegisterBrokerBody(topics, version, {}, None, change.deleted)
        body = encode_native_body(told)
        if len(body) <= COMPRESS_BYTES:
            return fields, body
        return {**fields, "compressed": "true"}, await asyncio.to_thread(zlib.compress, body)

    def _fence(self, registration_seq: int) -> Mapping[str, str]:
        return {"agentId": self._identity.agent_id, "registrationSeq": str(registration_seq)}


class RocketmqDialect(Dialect):
    """RocketMQ's protocol as a 5.x broker speaks it, to Apache's server or ours.

    Every registration is a full one: an increment carries the newest DataVersion, and if one before it was lost,
    Apache's server takes all later full registrations for old news.
    """

    name = "rocketmq"
    _serialize_type = SerializeType.JSON
    # when the DataVersion was asked for
    _queried_at = float("-inf")

    async def heartbeat(self, client: RemotingClient, now: float) -> str | None:
        """322, which refreshes the entry and says whether there is one; between two of them 904, which only refreshes.

        Apache's server answers 904 with success even if it has never heard of the broker.
        """
        fields = self._identity.address_fields()
        if now - self._queried_at < QUERY_SECONDS:
            await self._ask(client, RequestCode.BROKER_HEARTBEAT, fields, b"", self._timeout)
            return None
        body = JSON.encode(self._identity.table.data_version)
        answer = await self._ask(client, RequestCode.QUERY_DATA_VERSION, fields, body, self._timeout)
        self._queried_at = now
        if (answer.ext_fields or {}).get("changed") != "false":
            raise QueryNotFoundError("the server has another DataVersion, or none")
        return None

    async def _registration(self, change: TopicChange | None) -> tuple[dict[str, str], bytes]:  # noqa: ARG002
        topics, version = self._identity.topics()
        if len(topics) == 1:
            # Apache's server takes a first registration with exactly one topic for a part of one; real brokers always
            # have a topic of their own name, and this one
            name = self._identity.settings.broker_name
            second = name if name != topics[0].topic_name else _SECOND_TOPIC
            topics = (*topics, TopicConfig(second, 1, 1, PERM_READ, 0))
        if len(topics) > _OFF_LOOP_TOPICS:
            return await asyncio.to_thread(_rocketmq_registration, topics, version)
        return _rocketmq_registration(topics, version)


def _rocketmq_registration(topics: Sequence[TopicConfig], version: DataVersion) -> tuple[dict[str, str], bytes]:
    fields, body = {}, encode_json_body(RegisterBrokerBody(topics, version, {}, ()))
    if len(body) > COMPRESS_BYTES:
        fields, body = {"compressed": "true"}, write_compressed(topics, version, {}, ())
    return {**fields, "bodyCrc32": str(zlib.crc32(body) & _CRC_MASK)}, body
