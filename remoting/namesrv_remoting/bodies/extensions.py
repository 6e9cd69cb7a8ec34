"""Request and response bodies of the extension codes, 20001 and above.

In a response, only members that every version of a server has sent are required; a reader ignores unknown members.
"""

import functools
from collections.abc import KeysView, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self

import msgspec

from namesrv_remoting.bodies.advertised import AdvertisedAddresses
from namesrv_remoting.bodies.base import CHUNK_BYTES, Steps, check_size, read_msgpack
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.slices import Elements, MsgpackMember, Whole
from namesrv_remoting.bodies.topic import DataVersion, TopicName
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.errors import BadRequestError, RemoteProtocolError
from namesrv_remoting.headers import requested_zone

Scalar = str | int | float | bool | None

# A large producer uses fewer topics than this; a request for more is a mistake or an attack.
MAX_PULLED_TOPICS: Final = 100_000
# A NAT or a proxy on the way may drop a connection that is idle for longer than this.
MAX_WAIT_MS: Final = 300_000
# The reported state of a broker is a handful of numbers, which is kept for every live broker and shown to operators.
MAX_STATE_BYTES: Final = 16 * 1024
# 16 KiB could have 4,000 numbers, which take 300 KiB of memory.
MAX_STATE_NUMBERS: Final = 256

# the remark of a server whose response to PULL_ROUTES would be too large for a frame
FEWER_TOPICS: Final = "ask for fewer topics at a time"

# the route of a topic that the server knows not to exist
ABSENT_ROUTE: Final = msgspec.Raw(b"\xc0")


class RequestBody(msgspec.Struct, gc=False):
    """The native body of a request with an extension code."""

    code: ClassVar[RequestCode]
    # Most requests have only a number, or one or two names.
    max_bytes: ClassVar[int] = 4 * 1024

    @classmethod
    def read(cls, body: bytes) -> Self:
        """The request in a body; an empty body has all defaults, except in PULL_ROUTES. Raises BadRequestError."""
        if not body and cls is not PullRoutesRequest:
            return cls()
        return NATIVE.read(cls, body, what=cls.code.name, max_bytes=cls.max_bytes)


class PullRoutesRequest(RequestBody, gc=False):
    """20001: the client's topics; the client has all route changes of the boot `boot_id` up to revision `since`."""

    code = RequestCode.PULL_ROUTES
    # MAX_PULLED_TOPICS topics of 36 bytes fit. Unknown members are skipped, which takes up to 10 ms for each MiB.
    max_bytes = 4 * 1024 * 1024

    topics: Annotated[list[TopicName], msgspec.Meta(max_length=MAX_PULLED_TOPICS)]
    boot_id: str | None = None
    since: Annotated[int, msgspec.Meta(ge=0)] = 0
    # the longest time for which the server holds the request while no topic changes; 0: the server responds at once
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 0
    # True if the routes are only displayed: no client sends or receives by the response, so the heartbeat log omits it.
    observes: bool | msgspec.UnsetType = msgspec.UNSET
    # the zone of the client: its routes are those of 105 with the zone fields
    zone: Annotated[str, msgspec.Meta(max_length=255)] | msgspec.UnsetType = msgspec.UNSET


class Pull(NamedTuple):
    """20001, as decoded by a server, without repeated topics."""

    topics: KeysView[str]
    boot_id: str | None
    since: int
    wait_ms: int
    observes: bool = False
    zone: str = ""


class RecentEventsRequest(RequestBody, gc=False):
    """20003: of the events with numbers above `since`, the latest `limit`; there are no pages for earlier ones."""

    code = RequestCode.RECENT_EVENTS

    since: Annotated[int, msgspec.Meta(ge=0)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1000


class ListConnectionsRequest(RequestBody, gc=False):
    """20004: list all connections, or only the connections of one role (broker, client, admin)."""

    code = RequestCode.LIST_CONNECTIONS

    role: str | None = None


class ListBrokersRequest(RequestBody, gc=False):
    """20005: list all live brokers, or only the brokers of one cluster or one name."""

    code = RequestCode.LIST_BROKERS

    cluster: str | None = None
    broker_name: str | None = None


_pulled_topics: Final = msgspec.msgpack.Decoder(list[TopicName])
_anything: Final = msgspec.msgpack.Decoder(msgspec.Raw)


def pull_in_steps(body: bytes) -> Steps[Pull]:
    """Decode the body of a PULL_ROUTES request, a large body slice by slice. Raises BadRequestError."""
    topics: dict[str, None] = {}
    if len(body) <= CHUNK_BYTES:
        request = PullRoutesRequest.read(body)
        topics.update(dict.fromkeys(request.topics))
    else:
        from namesrv_remoting.bodies.msgpack_slices import MsgpackSlices  # noqa: PLC0415  # clients do not need this module

        check_size(body, PullRoutesRequest.code.name, PullRoutesRequest.max_bytes)
        # Small members are collected, and decoded in the end like those of a small request.
        others: dict[str, Any] = {}

        def begin() -> None:
            topics.clear()
            others["topics"] = []

        members: dict[str, MsgpackMember] = {
            name: Whole(_anything, functools.partial(others.__setitem__, name))
            for name in PullRoutesRequest.__struct_fields__
        }
        members["topics"] = Elements(
            _pulled_topics,
            lambda part: topics.update(dict.fromkeys(part)),
            begin=begin,
            what="topics",
            most=MAX_PULLED_TOPICS,
        )
        chunks = (body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES))
        yield from MsgpackSlices(chunks, PullRoutesRequest.code.name, "request").read(members)
        request = PullRoutesRequest.read(NATIVE.encode(others))
    zone = "" if request.zone is msgspec.UNSET else requested_zone(request.zone)
    return Pull(topics.keys(), request.boot_id, request.since, request.wait_ms, request.observes is True, zone)


class _Heartbeat(msgspec.Struct, gc=False):
    state: Annotated[dict[str, Scalar], msgspec.Meta(max_length=MAX_STATE_NUMBERS)] | None = None


_heartbeat_decoder: Final = msgspec.msgpack.Decoder(_Heartbeat)


def heartbeat_state(body: bytes) -> dict[str, Any] | None:
    """The reported state in a native 904; None without a state. Raises BadRequestError unless small and flat."""
    if not body:
        return None
    if len(body) > MAX_STATE_BYTES:
        raise BadRequestError(f"state of {len(body)} bytes, limit {MAX_STATE_BYTES}")
    return read_msgpack(_heartbeat_decoder, body, "BROKER_HEARTBEAT").state


class RoutesResponse(msgspec.Struct):
    """20001 on the wire: each route as encoded bytes, `ABSENT_ROUTE` for a topic that does not exist."""

    boot_id: str
    revision: int
    # False if the routes may lack brokers that lost their connection to the server a moment ago, and are alive
    ready: bool
    # True: the routes of all requested topics; False: only those that have changed since the revision in the request
    full: bool
    routes: Mapping[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class PulledRoutes:
    """20001, decoded; the route of a topic that the server knows not to exist is None."""

    boot_id: str
    revision: int
    ready: bool
    full: bool
    routes: dict[str, TopicRouteData | None]


class ServerProblem(msgspec.Struct, frozen=True):
    """A problem that a server knows by itself."""

    # one of `namesrv_remoting.health.LEVELS`; a newer server may send another one
    kind: str
    # the reason, or the names of the affected broker groups
    why: str = ""
    # the causes without the values in `why` that change with time, as "certificate expired", or the name of a file
    causes: list[str] = []


class Traffic(msgspec.Struct, frozen=True):
    """Counts of a server's work since its start, and its memory."""

    # all responses, those of the fast path included
    requests: int
    heartbeats: int
    registrations: int
    evictions: int
    # the memory of tables and peers that counts towards `max-memory-bytes`
    memory_bytes: int
    # response times of the dispatcher: the number of responses up to each bound in seconds, and above the last one
    response_bounds: list[float]
    response_counts: list[int]


class ServerInfo(msgspec.Struct):
    """20002: the boot of a server, its state, and the sizes of its tables."""

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
    # requests that the fast path answered
    pulls: int | None = None
    heartbeats: int | None = None
    refusals: dict[str, int] | None = None
    last_event_seq: int | None = None
    # problems of the server itself, not those of its broker groups
    problems: list[ServerProblem] = []
    traffic: Traffic | None = None

    @property
    def wall_ms(self) -> float | None:
        """The time of the response on the server's own wall clock, with which its other times have to be compared."""
        return None if self.started_ms is None else self.started_ms + 1000 * self.uptime_seconds


# The types of the events in 20003; a newer server may have more.
EVENT_TYPES: Final = ("register", "unregister", "evict", "fenced", "takeover_attempted", "route", "write_permission")


@dataclass(frozen=True, slots=True)
class Event:
    """One event in 20003: the members of every event, and in `fields` the members of this event type."""

    seq: int
    event: str
    ts_ms: int | None
    fields: dict[str, Scalar | list[Scalar]]

    def members(self) -> dict[str, Any]:
        """All members of the event, under the names that the server sent."""
        return {"seq": self.seq, "event": self.event, "ts_ms": self.ts_ms, **self.fields}

    def touches(self, topic: str) -> bool | None:
        """Whether a route change touched a topic; None if it names only the first of many topics, and not this one."""
        named, count = self.fields.get("topics"), self.fields.get("count")
        names = named if isinstance(named, list) else []
        if topic in names:
            return True
        return None if not isinstance(count, int) or count > len(names) else False


class EventsResponse(msgspec.Struct):
    """20003 on the wire: each event is a flat map of its members."""

    boot_id: str
    events: Sequence[Mapping[str, Scalar | list[Scalar]]]


@dataclass(frozen=True, slots=True)
class Events:
    """20003, decoded."""

    boot_id: str
    events: list[Event]


class Connection(msgspec.Struct):
    """One connection in 20004."""

    id: int
    peer: str
    proxied: str | None = None
    # broker, client or admin; None before the first request
    role: str | None = None
    # json, rocketmq (a binary header) or msgpack: the encoding of the last request
    protocol: str | None = None
    since_ms: int | None = None
    last_request_seconds: float | None = None
    requests: int | None = None
    in_flight: int | None = None
    unsent_bytes: int | None = None
    # the account of the last request, if the server has accounts
    account: str | None = None

    def open_seconds(self, wall_ms: float | None) -> float | None:
        """Seconds since the connection was opened, at a time on the server's wall clock; None if one is unknown."""
        if wall_ms is None or self.since_ms is None:
            return None
        return max(0.0, (wall_ms - self.since_ms) / 1000)


class ConnectionsResponse(msgspec.Struct):
    """20004."""

    connections: list[Connection]


class LiveBroker(msgspec.Struct):
    """One live broker in 20005. The members without a default also occur in RocketMQ's 106."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str | None = None
    age_seconds: float | None = None
    expires_in_seconds: float | None = None
    expiry_seconds: float | None = None
    data_version: DataVersion | None = None
    # number of topics of the whole broker group on this server, system topics included
    topics: int | None = None
    # whether an operator removed the write permission of the broker group
    write_removed: bool | None = None
    # a digest of the agent id, since a peer that knows the id could register in the agent's name
    agent_id: str | None = None
    registration_seq: int | None = None
    # the id of the broker's connection, as in 20004
    connection: int | None = None
    # msgpack, or rocketmq for a broker that speaks RocketMQ's protocol
    protocol: str | None = None
    state: dict[str, Scalar] | None = None
    # None if the broker advertises no addresses for address views
    advertised: AdvertisedAddresses | None = None


class Reservation(msgspec.Struct):
    """A broker name or address that stays reserved for the account that held it last."""

    # name or address
    kind: str
    value: str
    # the cluster in which the broker was registered
    cluster: str
    account: str
    expires_in_seconds: float


class BrokersResponse(msgspec.Struct):
    """20005."""

    brokers: list[LiveBroker]
    boot_id: str = ""
    # names and addresses of brokers that have left; always empty without an access file
    reserved: list[Reservation] = []


class WhoAmI(msgspec.Struct):
    """20006: the account as which the server recognises the requesting peer, and the rules of the account."""

    peer: str
    # "open" without an access file; "observe" if denied requests are allowed all the same; or "enforce"
    access: str = "open"
    # None if the peer matches no account
    account: str | None = None
    # how the account was recognised: native (signature), rocketmq (signature), certificate or network
    by: str | None = None
    certificate_names: list[str] = []
    # the account's rules as text
    may: list[str] = []


class Setting(msgspec.Struct):
    """One setting in 20007, with its current value."""

    # the name of the setting in the response to 319, and its name in this project
    key: str
    name: str
    value: str
    # the source of the value: default, file, environment, flag, request; with details, such as the name of the file, if
    # the server's setting `admin-enabled` is on
    origin: str | None = None
    # how the setting can be changed: by `request` (318), `reload` (SIGHUP), or only by `restart`
    changed_by: str | None = None


class SettingsResponse(msgspec.Struct):
    """20007."""

    settings: list[Setting]


class KVNamespacesResponse(msgspec.Struct):
    """20008: the number of keys of each namespace."""

    namespaces: dict[str, int]


class _KnownMembers(msgspec.Struct):
    seq: int
    event: str
    ts_ms: int | None = None


def read_routes(body: bytes, known: dict[bytes, TopicRouteData] | None = None) -> PulledRoutes:
    """Decode 20001; routes with equal bytes, as most in a cluster, share one object, also across responses.

    `known` has the decoded routes of earlier responses by their encoding, and gets the new ones of this response.
    Raises RemoteProtocolError.
    """
    raw = NATIVE.read_response(RoutesResponse, body)
    # The encoding is sufficient as a key, since a route does not contain its topic.
    seen = {} if known is None else known
    absent = bytes(ABSENT_ROUTE)
    routes: dict[str, TopicRouteData | None] = {}
    for topic, spelt in raw.routes.items():
        data = bytes(spelt)
        if data not in seen and data != absent:
            seen[data] = NATIVE.read_response(TopicRouteData, data)
        routes[topic] = seen.get(data)
    return PulledRoutes(raw.boot_id, raw.revision, raw.ready, raw.full, routes)


def read_events(body: bytes) -> Events:
    """Decode 20003. Raises RemoteProtocolError."""
    raw = NATIVE.read_response(EventsResponse, body)
    try:
        return Events(raw.boot_id, list(map(_event, raw.events)))
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"body of EventsResponse cannot be read: {error}") from error


def _event(members: Mapping[str, Scalar | list[Scalar]]) -> Event:
    known = msgspec.convert(members, _KnownMembers)
    others = {name: value for name, value in members.items() if name not in _KnownMembers.__struct_fields__}
    return Event(known.seq, known.event, known.ts_ms, others)
