"""The answers to the extension codes (20001 to 20005), typed: what the server writes and clients read.

Only what every version of a server has said is required; a reader takes what it knows and leaves the rest alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from namesrv_remoting.bodies.base import read_msgpack
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.errors import RemoteProtocolError, ResponseError

T = TypeVar("T")

Scalar = str | int | float | bool | None

# a route of a topic that positively does not exist
ABSENT_ROUTE: Final = msgspec.Raw(b"\xc0")


class RoutesAnswer(msgspec.Struct):
    """20001, as it is on the wire: each route in its bytes, `ABSENT_ROUTE` for a topic that does not exist."""

    boot_id: str
    revision: int
    ready: bool
    full: bool
    routes: dict[str, msgspec.Raw]


class PulledRoutes(msgspec.Struct):
    """20001, as it is read; a route is None where the topic positively does not exist."""

    boot_id: str
    revision: int
    ready: bool
    full: bool
    routes: dict[str, TopicRouteData | None]


class ServerInfo(msgspec.Struct):
    """20002: which run of which server it is, and how much it knows."""

    boot_id: str
    nameserver: str | None = None
    revision: int = 0
    ready: bool = False
    readiness: str | None = None
    draining: bool = False
    started_ms: int | None = None
    uptime_seconds: float = 0.0
    version: str = ""
    pid: int | None = None
    clusters: int = 0
    brokers: int = 0
    topics: int = 0
    connections: int = 0
    watchers: int | None = None
    pulls: int | None = None
    heartbeats: int | None = None
    refusals: dict[str, int] | None = None
    last_event_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of 20003: the members that all have, and the others."""

    seq: int
    event: str
    ts_ms: int | None
    fields: dict[str, Scalar | list[Scalar]]

    def members(self) -> dict[str, Any]:
        """All of them, as the server named them."""
        return {"seq": self.seq, "event": self.event, "ts_ms": self.ts_ms, **self.fields}


@dataclass(frozen=True, slots=True)
class Events:
    """20003."""

    boot_id: str
    events: list[Event]


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


class LiveBroker(msgspec.Struct):
    """One entry of 20005. The members without a default are those that RocketMQ's 106 has, too."""

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


class _Connections(msgspec.Struct):
    connections: list[Connection]


class _LiveBrokers(msgspec.Struct):
    brokers: list[LiveBroker]


class _RawEvent(msgspec.Struct):
    seq: int
    event: str
    ts_ms: int | None = None


class _RawEvents(msgspec.Struct):
    boot_id: str
    events: list[msgspec.Raw]


_routes_decoder: Final = msgspec.msgpack.Decoder(RoutesAnswer)
_route_decoder: Final = msgspec.msgpack.Decoder(TopicRouteData | None)
_info_decoder: Final = msgspec.msgpack.Decoder(ServerInfo)
_connections_decoder: Final = msgspec.msgpack.Decoder(_Connections)
_brokers_decoder: Final = msgspec.msgpack.Decoder(_LiveBrokers)
_events_decoder: Final = msgspec.msgpack.Decoder(_RawEvents)
_event_decoder: Final = msgspec.msgpack.Decoder(_RawEvent)
_members_decoder: Final = msgspec.msgpack.Decoder(dict[str, Scalar | list[Scalar]])

# -- what the server writes -------------------------------------------------------------------------------------------


def routes_answer(answer: RoutesAnswer) -> bytes:
    """20001."""
    return msgspec.msgpack.encode(answer)


def server_info_answer(info: ServerInfo) -> bytes:
    """20002."""
    return msgspec.msgpack.encode(info)


def events_answer(boot_id: str, events: Iterable[Mapping[str, Any]]) -> bytes:
    """20003; of each event all members, flat."""
    return msgspec.msgpack.encode({"boot_id": boot_id, "events": list(events)})


def connections_answer(connections: Sequence[Connection]) -> bytes:
    """20004."""
    return msgspec.msgpack.encode({"connections": connections})


def brokers_answer(boot_id: str, brokers: Sequence[LiveBroker]) -> bytes:
    """20005."""
    return msgspec.msgpack.encode({"boot_id": boot_id, "brokers": brokers})


# -- what clients read; all of these raise RemoteProtocolError --------------------------------------------------------


def read_routes(body: bytes) -> PulledRoutes:
    """20001. Routes that are spelt the same, as most of a cluster's are, become one object."""
    raw = _read(_routes_decoder, body, "PULL_ROUTES")
    # by their bytes: a route does not say of which topic it is
    seen: dict[bytes, TopicRouteData | None] = {}
    routes = {}
    for topic, spelt in raw.routes.items():
        data = bytes(spelt)
        if data not in seen:
            seen[data] = _read(_route_decoder, data, f"the route of {topic}")
        routes[topic] = seen[data]
    return PulledRoutes(raw.boot_id, raw.revision, raw.ready, raw.full, routes)


def read_server_info(body: bytes) -> ServerInfo:
    """20002."""
    return _read(_info_decoder, body, "SERVER_INFO")


def read_events(body: bytes) -> Events:
    """20003."""
    raw = _read(_events_decoder, body, "RECENT_EVENTS")
    return Events(raw.boot_id, [_event(bytes(one)) for one in raw.events])


def _event(body: bytes) -> Event:
    known = _read(_event_decoder, body, "RECENT_EVENTS")
    others = _read(_members_decoder, body, "RECENT_EVENTS")
    for member in ("seq", "event", "ts_ms"):
        others.pop(member, None)
    return Event(known.seq, known.event, known.ts_ms, others)


def read_connections(body: bytes) -> list[Connection]:
    """20004."""
    return _read(_connections_decoder, body, "LIST_CONNECTIONS").connections


def read_brokers(body: bytes) -> list[LiveBroker]:
    """20005."""
    return _read(_brokers_decoder, body, "LIST_BROKERS").brokers


def _read(decoder: msgspec.msgpack.Decoder[T], body: bytes, what: str) -> T:
    try:
        return read_msgpack(decoder, body, what)
    except ResponseError as error:
        raise RemoteProtocolError(str(error)) from error
