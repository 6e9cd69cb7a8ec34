"""Registration, heartbeat and leave, natively and in RocketMQ's own protocol."""

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from namesrv_broker_agent.identity import BrokerIdentity
from namesrv_broker_agent.topics import TopicChange
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.bodies.compressed import write_compressed
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body, encode_native_body
from namesrv_remoting.bodies.tables import data_version_to_json
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import PERM_READ, RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import QueryNotFoundError

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


@dataclass(frozen=True, slots=True)
class Registered:
    """What a server answered to a registration."""

    # of the slave's master, where the server knows it
    master_addr: str | None
    ha_server_addr: str | None
    # which run of the server; None from a server that does not say
    boot_id: str | None


class Dialect(Protocol):
    """One protocol. Every verb raises RemotingError when the server cannot be reached or refuses."""

    name: str

    async def register(self, client: RemotingClient, change: TopicChange | None) -> Registered:
        """Register fully, or only what changed."""
        ...

    async def heartbeat(self, client: RemotingClient, now: float) -> str | None:
        """Say that the broker lives; the server's boot id. Raises QueryNotFoundError if it wants a registration."""
        ...

    async def unregister(self, client: RemotingClient, timeout_seconds: float) -> None:
        """Leave."""
        ...


class NativeDialect:
    """msgpack headers and bodies, to a server of our own."""

    name = "native"

    def __init__(self, identity: BrokerIdentity, timeout_seconds: float) -> None:
        self._identity = identity
        # for an answer
        self._timeout = timeout_seconds

    async def register(self, client: RemotingClient, change: TopicChange | None) -> Registered:
        """Register fully, or only what changed."""
        identity = self._identity
        if change is None:
            topics, version = identity.topics()
        else:
            topics, version = identity.as_registered(change.changed), identity.table.data_version
        body = encode_native_body(
            RegisterBrokerBody(
                topic_configs=topics,
                data_version=version,
                filter_servers=None,
                deleted_topics=() if change is None else change.deleted,
            )
        )
        fields = {**identity.registration_fields(), **self._fence(identity.next_registration_seq())}
        fields["kind"] = "full" if change is None else "delta"
        if len(body) > COMPRESS_BYTES:
            fields["compressed"] = "true"
            body = await asyncio.to_thread(zlib.compress, body)
        answer = await client.invoke(
            RequestCode.REGISTER_BROKER,
            ext_fields=fields,
            body=body,
            timeout_seconds=self._timeout + len(body) * SECONDS_PER_BYTE,
            serialize_type=SerializeType.MSGPACK,
        )
        return _registered(answer)

    async def heartbeat(self, client: RemotingClient, now: float) -> str | None:  # noqa: ARG002 - the other needs it
        """904 with the broker's own state; an unknown broker is told so."""
        identity = self._identity
        answer = await client.invoke(
            RequestCode.BROKER_HEARTBEAT,
            ext_fields={**identity.address_fields(), "agentId": identity.agent_id},
            body=identity.state_body(),
            timeout_seconds=self._timeout,
            serialize_type=SerializeType.MSGPACK,
        )
        return (answer.ext_fields or {}).get("boot_id")

    async def unregister(self, client: RemotingClient, timeout_seconds: float) -> None:
        """104."""
        identity = self._identity
        await client.invoke(
            RequestCode.UNREGISTER_BROKER,
            ext_fields={**identity.address_fields(), **self._fence(identity.registration_seq)},
            timeout_seconds=timeout_seconds,
            serialize_type=SerializeType.MSGPACK,
        )

    def _fence(self, registration_seq: int) -> Mapping[str, str]:
        return {"agentId": self._identity.agent_id, "registrationSeq": str(registration_seq)}


class RocketmqDialect:
    """RocketMQ's protocol as a 5.x broker speaks it, to Apache's server or ours.

    Every registration is a full one: an increment carries the newest DataVersion, and if one before it was lost,
    Apache's server takes all later full registrations for old news.
    """

    name = "rocketmq"

    def __init__(self, identity: BrokerIdentity, timeout_seconds: float) -> None:
        self._identity = identity
        # for an answer
        self._timeout = timeout_seconds
        self._queried_at = float("-inf")

    async def register(self, client: RemotingClient, change: TopicChange | None) -> Registered:  # noqa: ARG002
        """103."""
        identity = self._identity
        topics, version = identity.topics()
        if len(topics) == 1:
            # Apache's server takes a first registration with exactly one topic for a part of one; real brokers always
            # have a topic of their own name, and this one
            name = identity.settings.broker_name
            second = name if name != topics[0].topic_name else _SECOND_TOPIC
            topics = (*topics, TopicConfig(second, 1, 1, PERM_READ, 0))
        fields = identity.registration_fields()
        if len(topics) > _OFF_LOOP_TOPICS:
            body, is_compressed = await asyncio.to_thread(_rocketmq_body, topics, version)
        else:
            body, is_compressed = _rocketmq_body(topics, version)
        if is_compressed:
            fields["compressed"] = "true"
        fields["bodyCrc32"] = str(zlib.crc32(body) & _CRC_MASK)
        identity.next_registration_seq()
        answer = await client.invoke(
            RequestCode.REGISTER_BROKER,
            ext_fields=fields,
            body=body,
            timeout_seconds=self._timeout + len(body) * SECONDS_PER_BYTE,
        )
        return _registered(answer)

    async def heartbeat(self, client: RemotingClient, now: float) -> str | None:
        """322, which refreshes the entry and says whether there is one; between two of them 904, which only refreshes.

        Apache's server answers 904 with success even if it has never heard of the broker.
        """
        identity = self._identity
        fields = identity.address_fields()
        if now - self._queried_at < QUERY_SECONDS:
            await client.invoke(RequestCode.BROKER_HEARTBEAT, ext_fields=fields, timeout_seconds=self._timeout)
            return None
        answer = await client.invoke(
            RequestCode.QUERY_DATA_VERSION,
            ext_fields=fields,
            body=data_version_to_json(identity.table.data_version),
            timeout_seconds=self._timeout,
        )
        self._queried_at = now
        if (answer.ext_fields or {}).get("changed") != "false":
            raise QueryNotFoundError("the server has another DataVersion, or none")
        return None

    async def unregister(self, client: RemotingClient, timeout_seconds: float) -> None:
        """104."""
        await client.invoke(
            RequestCode.UNREGISTER_BROKER,
            ext_fields=self._identity.address_fields(),
            timeout_seconds=timeout_seconds,
        )


def _rocketmq_body(topics: Sequence[TopicConfig], version: DataVersion) -> tuple[bytes, bool]:
    """The registration, and whether it is compressed."""
    body = encode_json_body(RegisterBrokerBody(topics, version, {}, ()))
    if len(body) <= COMPRESS_BYTES:
        return body, False
    return write_compressed(topics, version, {}, ()), True


def _registered(answer: RemotingCommand) -> Registered:
    fields = answer.ext_fields or {}
    return Registered(fields.get("masterAddr"), fields.get("haServerAddr"), fields.get("boot_id"))
