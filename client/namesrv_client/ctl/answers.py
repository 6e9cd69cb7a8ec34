"""Answers of NameServers, in JSON and natively.

Typed where it is read: a server is not trusted to send what it should.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from namesrv_remoting.bodies.base import read_json, read_msgpack
from namesrv_remoting.bodies.route import BrokerData
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.errors import RemoteProtocolError, ResponseError

T = TypeVar("T")

Scalar = str | int | float | bool | None


class ServerInfo(msgspec.Struct):
    """20002."""

    boot_id: str
    version: str
    ready: bool
    revision: int
    brokers: int
    topics: int
    connections: int
    nameserver: str | None = None
    readiness: str | None = None
    draining: bool = False
    started_ms: int | None = None
    uptime_seconds: float | None = None
    pid: int | None = None
    clusters: int | None = None
    watchers: int | None = None
    pulls: int | None = None
    heartbeats: int | None = None
    refusals: dict[str, int] | None = None
    last_event_seq: int | None = None


class LiveBroker(msgspec.Struct):
    """One entry of 20005. The members without a value here are those that RocketMQ's 106 tells, too."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str | None = None
    age_seconds: float | None = None
    expires_in_seconds: float | None = None
    expiry_seconds: float | None = None
    data_version: DataVersion | None = None
    topics: int | None = None
    write_wiped: bool | None = None
    agent_id: str | None = None
    registration_seq: int | None = None
    connection: int | None = None
    protocol: str | None = None
    state: dict[str, Scalar] | None = None


class Connection(msgspec.Struct):
    """One entry of 20004."""

    id: int
    peer: str
    proxied: str | None = None
    role: str | None = None
    protocol: str | None = None
    since_ms: int | None = None
    last_request_seconds: float | None = None
    requests: int | None = None
    in_flight: int | None = None
    unsent_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of 20003: the members that all have, and the others."""

    seq: int
    event: str
    ts_ms: int | None
    fields: dict[str, "Scalar | list[Scalar]"]

    def members(self) -> dict[str, Any]:
        """All of them, as the server named them."""
        return {"seq": self.seq, "event": self.event, "ts_ms": self.ts_ms, **self.fields}


@dataclass(frozen=True, slots=True)
class Events:
    """20003's answer."""

    boot_id: str
    events: list[Event]


class ClusterInfo(msgspec.Struct):
    """106's answer: broker groups by name, and the names of each cluster."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]


class _JsonBrokerData(msgspec.Struct, rename="camel"):
    broker_name: str
    cluster: str | None = None
    broker_addrs: dict[int, str] | None = None
    zone_name: str | None = None
    enable_acting_master: bool = False


class _JsonClusterInfo(msgspec.Struct, rename="camel"):
    broker_addr_table: dict[str, _JsonBrokerData] | None = None
    cluster_addr_table: dict[str, list[str]] | None = None


class _TopicList(msgspec.Struct):
    topic_list: list[str]


class _JsonTopicList(msgspec.Struct, rename="camel"):
    topic_list: list[str] | None = None


class _KVTable(msgspec.Struct):
    table: dict[str, str] | None = None


class _LiveBrokers(msgspec.Struct):
    brokers: list[LiveBroker]


class _Connections(msgspec.Struct):
    connections: list[Connection]


class _RawEvent(msgspec.Struct):
    seq: int
    event: str
    ts_ms: int | None = None


class _RawEvents(msgspec.Struct):
    boot_id: str
    events: list[msgspec.Raw]


def server_info(body: bytes) -> ServerInfo:
    """Raises RemoteProtocolError, as all of these do."""
    return _native(ServerInfo, body)


def live_brokers(body: bytes) -> list[LiveBroker]:
    """20005's answer."""
    return _native(_LiveBrokers, body).brokers


def connections(body: bytes) -> list[Connection]:
    """20004's answer."""
    return _native(_Connections, body).connections


def events(body: bytes) -> Events:
    """20003's answer."""
    raw = _native(_RawEvents, body)
    return Events(raw.boot_id, [_event(bytes(one)) for one in raw.events])


def _event(body: bytes) -> Event:
    known = _native(_RawEvent, body)
    others = _native(dict[str, Scalar | list[Scalar]], body)
    for member in ("seq", "event", "ts_ms"):
        others.pop(member, None)
    return Event(known.seq, known.event, known.ts_ms, others)


def cluster_info(body: bytes, *, native: bool) -> ClusterInfo:
    """106's answer."""
    if native:
        return _native(ClusterInfo, body)
    found = _json(_JsonClusterInfo, body)
    groups = {
        name: BrokerData(
            data.cluster or "", data.broker_name, data.broker_addrs or {}, data.zone_name, data.enable_acting_master
        )
        for name, data in (found.broker_addr_table or {}).items()
    }
    return ClusterInfo(groups, found.cluster_addr_table or {})


def topic_list(body: bytes, *, native: bool) -> list[str]:
    """206's and 224's answer."""
    return _native(_TopicList, body).topic_list if native else _json(_JsonTopicList, body).topic_list or []


def kv_table(body: bytes, *, native: bool) -> dict[str, str]:
    """219's answer."""
    return (_native(_KVTable, body) if native else _json(_KVTable, body)).table or {}


def _native(kind: type[T], body: bytes) -> T:
    try:
        return read_msgpack(msgspec.msgpack.Decoder(kind), body, "the answer")
    except ResponseError as error:
        raise RemoteProtocolError(str(error)) from error


def _json(kind: type[T], body: bytes) -> T:
    try:
        return read_json(msgspec.json.Decoder(kind), body, "the answer")
    except ResponseError as error:
        raise RemoteProtocolError(str(error)) from error


# -- properties: 318's question and 319's answer ----------------------------------------------------------------------

_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)")
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN: Final = {character: f"\\{letter}" for letter, character in _CONTROLS.items()} | {"\\": "\\\\"}


def properties(body: bytes) -> dict[str, str]:
    """The settings in `key=value` lines, as java.util.Properties spells them."""
    found = {}
    for line in body.decode(errors="backslashreplace").split("\n"):
        key, _, value = line.partition("=")
        if key.strip() and not key.startswith(("#", "!")):
            found[_unescaped(key.strip())] = _unescaped(value.strip())
    return found


def properties_text(settings: Mapping[str, str]) -> bytes:
    """Lines that java.util.Properties reads as these settings."""
    lines = []
    for key, value in settings.items():
        spelt = "".join(_WRITTEN.get(character, character) for character in value)
        name = re.sub(r"[=: #!]", r"\\\g<0>", "".join(_WRITTEN.get(character, character) for character in key))
        # a leading blank would be taken for part of the separator
        lines.append(f"{name}={chr(92) if spelt.startswith(' ') else ''}{spelt}\n")
    return "".join(lines).encode()


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(lambda found: _meaning(found[1]), text)
    # Java's characters are UTF-16 units, so that two escapes can make one character; half of one is no text
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _meaning(what: str) -> str:
    return chr(int(what[1:], 16)) if len(what) > 1 else _CONTROLS.get(what, what)
