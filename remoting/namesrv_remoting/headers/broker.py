"""Ext fields of brokers' requests and of the answers to them.

After `RegisterBrokerRequestHeader` and its siblings in RocketMQ's `protocol/header/namesrv`.
"""

from typing import Annotated

import msgspec

from namesrv_remoting.headers.base import ExtHeader, Int64, Name

# A day. Real brokers ask for 10 s (acting-master mode) or nothing, and an entry must not outlive its broker for ever.
HeartbeatTimeout = Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]


class RegisterBrokerRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """103. `enable_acting_master` None marks a broker older than 5.x; `body_crc32` 0 means not checked.

    `kind`, `agent_id` and `registration_seq` belong to the native protocol.
    """

    broker_name: Name
    broker_addr: Name
    cluster_name: Name
    broker_id: Int64
    # annotated as required in Java, but brokers without HA leave it out, and nothing breaks
    ha_server_addr: str | None = None
    heartbeat_timeout_millis: HeartbeatTimeout | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int64 = 0
    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")
    kind: str = "full"
    agent_id: str | None = None
    registration_seq: Int64 | None = None


class RegisterBrokerResponseHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Where the master of the registering slave is; empty for a master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """104."""

    broker_name: Name
    broker_addr: Name
    cluster_name: Name
    broker_id: Int64
    agent_id: str | None = None
    registration_seq: Int64 | None = None


class BrokerHeartbeatRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """904."""

    cluster_name: Name
    broker_addr: Name
    broker_name: Name
    broker_id: Int64 | None = None
    agent_id: str | None = None
    registration_seq: Int64 | None = None


class QueryDataVersionRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """322."""

    broker_name: Name
    broker_addr: Name
    cluster_name: Name
    broker_id: Int64


class QueryDataVersionResponseHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Whether the server's DataVersion differs from the one in the question."""

    changed: bool


class GetBrokerMemberGroupRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """901."""

    cluster_name: Name
    broker_name: Name


class NotifyMinBrokerIdChangeRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """905, from the NameServer to the members of a group."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
