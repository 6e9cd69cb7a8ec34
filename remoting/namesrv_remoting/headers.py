"""Typed ext fields of requests and responses; the number in a docstring is the request code.

The classes follow those in RocketMQ's package `protocol/header/namesrv`, such as `RegisterBrokerRequestHeader`.
"""

import functools
import re
from collections.abc import Mapping
from typing import Annotated, Final, Self, get_args

import msgspec

from namesrv_remoting.errors import BadRequestError

Name = Annotated[str, msgspec.Meta(min_length=1)]
# A name or an address that is kept for every broker; RocketMQ's own names have at most 127 characters.
_MAX_CHARACTERS: Final = 255
KeptName = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_CHARACTERS)]
KeptText = Annotated[str, msgspec.Meta(max_length=_MAX_CHARACTERS)]
Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
# At most a day: real brokers send 10 s (acting-master mode) or no timeout, and an entry must not outlive its broker.
HeartbeatTimeout = Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]

_SHOWN_CHARACTERS: Final = 64
# Numbers as Java's `Long.parseLong` reads them, and those of them that msgspec reads, too: it refuses +1 and 01, which
# are not in JSON. Other texts must not reach msgspec, which takes 1e0 and 1.0 for 1.
_JAVA_NUMBER: Final = re.compile("[+-]?[0-9]+")
_PLAIN_NUMBER: Final = re.compile("-?(?:0|[1-9][0-9]*)")


class ExtHeader(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The typed ext fields of one request or response.

    Apache's server does not check required fields, so that a missing or unreadable one leaves half a registration
    behind. This class refuses such a request by the field's name, before anything is changed.
    """

    @classmethod
    def from_ext(cls, ext_fields: Mapping[str, str] | None) -> Self:
        """The typed fields. Raises a BadRequestError that names a missing, empty or unreadable field."""
        fields = dict(ext_fields or {})
        values = fields.copy()
        for name in _number_fields(cls):
            text = fields.get(name)
            if text is not None and not _PLAIN_NUMBER.fullmatch(text):
                values[name] = _plain_number(text)
        try:
            return msgspec.convert(values, cls, strict=False)
        except msgspec.ValidationError as error:
            raise BadRequestError(cls._problem(fields, values)) from error

    @classmethod
    def _problem(cls, fields: dict[str, str], values: dict[str, str]) -> str:
        """The first problem of the values; the text of a field is that in `fields`."""
        for field in msgspec.structs.fields(cls):
            name = field.encode_name
            if name not in fields:
                if field.required:
                    return f"field {name} is missing"
                continue
            try:
                msgspec.convert(values[name], field.type, strict=False)
            except msgspec.ValidationError as error:
                if not fields[name]:
                    return f"field {name} is empty"
                reason = str(error)[:1].lower() + str(error)[1:]
                return f"field {name}: {fields[name][:_SHOWN_CHARACTERS]!r}: {reason}"
        return "ext fields cannot be read"

    def to_ext(self) -> dict[str, str]:
        """The fields as strings, without those that are None."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in msgspec.to_builtins(self).items()
            if value is not None
        }


@functools.cache
def _number_fields(header: type[ExtHeader]) -> tuple[str, ...]:
    """The names of the ext fields that are numbers."""
    return tuple(field.encode_name for field in msgspec.structs.fields(header) if _has_number(field.type))


def _has_number(kind: object) -> bool:
    return kind is int or any(_has_number(part) for part in get_args(kind))


def _plain_number(text: str) -> str:
    """The plain form of a number that Java's `Long.parseLong` reads; empty, which is no number, for any other text."""
    if not _JAVA_NUMBER.fullmatch(text):
        return ""
    digits = text.lstrip("+-").lstrip("0") or "0"
    return f"-{digits}" if text.startswith("-") else digits


class _OfBroker(ExtHeader, frozen=True, kw_only=True):
    broker_name: Name
    broker_addr: Name
    cluster_name: Name


class RegisterBrokerRequestHeader(_OfBroker, frozen=True, kw_only=True):
    """103. `enable_acting_master` None marks a broker older than 5.x; `body_crc32` 0 means not checked.

    `kind`, `agent_id` and `registration_seq` belong to the native protocol.
    """

    broker_name: KeptName
    broker_addr: KeptName
    cluster_name: KeptName
    broker_id: Int64
    # Java marks this field as required, but brokers without HA leave it out.
    ha_server_addr: KeptText | None = None
    heartbeat_timeout_millis: HeartbeatTimeout | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int64 = 0
    zone_name: KeptText | None = msgspec.field(default=None, name="__ZONE_NAME")
    kind: str = "full"
    agent_id: KeptText | None = None
    registration_seq: Int64 | None = None


class RegisterBrokerResponseHeader(ExtHeader, frozen=True, kw_only=True):
    """103's response: the addresses of the slave's master; without fields for a master, or without a master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(_OfBroker, frozen=True, kw_only=True):
    """104. The address identifies the broker; `broker_id` is required as in Java, and not used."""

    broker_id: Int64
    agent_id: str | None = None
    registration_seq: Int64 | None = None


class BrokerHeartbeatRequestHeader(ExtHeader, frozen=True, kw_only=True):
    """904. `broker_id` and `agent_id` belong to the native protocol."""

    cluster_name: Name
    broker_addr: Name
    broker_name: Name
    broker_id: Int64 | None = None
    agent_id: str | None = None


class QueryDataVersionRequestHeader(_OfBroker, frozen=True, kw_only=True):
    """322. The address identifies the broker; `broker_id` is required as in Java, and not used."""

    broker_id: Int64


class GetBrokerMemberGroupRequestHeader(ExtHeader, frozen=True, kw_only=True):
    """901."""

    cluster_name: Name
    broker_name: Name


class NotifyMinBrokerIdChangeRequestHeader(ExtHeader, frozen=True, kw_only=True):
    """905, from the NameServer to the members of a group."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class GetRouteInfoRequestHeader(ExtHeader, frozen=True, kw_only=True):
    """105. Clients that run with `rocketmq.zone` send the zone fields.

    Java's `acceptStandardJsonOnly` is not read, since all JSON of this server is standard.
    """

    topic: Name
    zone_mode: str | None = msgspec.field(default=None, name="__ZONE_MODE")
    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")

    def zone(self) -> str:
        """The zone of the client; empty if it requests no zone."""
        is_in_zone = (self.zone_mode or "").lower() == "true"
        return requested_zone(self.zone_name or "") if is_in_zone else ""


def requested_zone(name: str) -> str:
    """The zone that a client names; empty (no zone) for a name of blanks only.

    As in Apache's server, blanks beside other characters are part of the name.
    """
    return name if name.strip() else ""


class NamespaceRequestHeader(ExtHeader, frozen=True, kw_only=True):
    """219."""

    namespace: Name


class KVConfigKeyRequestHeader(NamespaceRequestHeader, frozen=True, kw_only=True):
    """101 and 102."""

    key: Name


class PutKVConfigRequestHeader(KVConfigKeyRequestHeader, frozen=True, kw_only=True):
    """100."""

    value: str

    @classmethod
    def from_ext(cls, ext_fields: Mapping[str, str] | None) -> Self:
        """The typed fields. Raises BadRequestError, in Java's words if namespace or key is missing."""
        if not {"namespace", "key"} <= (ext_fields or {}).keys():
            raise BadRequestError("namespace or key is null")
        return super().from_ext(ext_fields)


class BrokerNameRequestHeader(ExtHeader, frozen=True, kw_only=True):
    """205 and 327."""

    broker_name: Name


class TopicRequestHeader(ExtHeader, frozen=True, kw_only=True):
    """216 and 217. With a cluster in 216, only that cluster's brokers lose the topic; 217 does not use the cluster."""

    topic: Name
    cluster_name: str | None = None


class ClusterRequestHeader(ExtHeader, frozen=True, kw_only=True):
    """224."""

    cluster: Name
