"""The console's knowledge: a frozen view of each NameServer, and a numbered cluster of all views.

The module has no clock and no I/O: times are monotonic seconds of the console's own clock, passed as arguments.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from namesrv_client.health import ServerState, is_starting, state_of
from namesrv_remoting.bodies.extensions import Connection, Event, LiveBroker, ServerInfo
from namesrv_remoting.bodies.route import TopicRouteData

# A response travels for a few milliseconds, and each for another few: only a last-seen time that is later by more than
# this is a new heartbeat.
_JITTER_SECONDS: Final = 0.25
# A server's wall clock was set if its difference to the console's clock has changed by this much.
_WALL_JITTER_SECONDS: Final = 2.0
# 300 years: no time on our clock is farther away.
_FARTHEST_SECONDS: Final = 1e10
# Number of events of RECENT_EVENTS that are kept, as many as pages show.
KEPT_EVENTS: Final = 200


class BrokerKey(NamedTuple):
    """Key of one instance of a broker group; keys sort in the order in which pages list brokers."""

    cluster: str
    broker_name: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """One broker as one server reports it. The times are None from Apache's server, which does not report them."""

    live: LiveBroker = field(compare=False)
    # Times of the last heartbeat, and of the eviction unless another heartbeat arrives.
    last_seen_at: float | None
    evicted_at: float | None
    # All values that do not change by themselves from one second to the next.
    steady: tuple[object, ...] = field(repr=False, default=())


class TopicReport(NamedTuple):
    """The topics and routes that a server reports."""

    # Names of all topics of the server.
    topics: frozenset[str] = frozenset()
    # Topic -> route; Apache's server is asked for all routes only if there are few.
    routes: Mapping[str, TopicRouteData] = MappingProxyType({})
    # Revision of the routes; without meaning for Apache's server.
    revision: int = 0

    def of(self, topic: str) -> TopicRouteData | bool:
        """The route of a topic, or whether the server has the topic."""
        return self.routes.get(topic) or topic in self.topics


class ConnectionReport(NamedTuple):
    """The connections that a server reports."""

    # Time of the request: two reports are compared by it first, which takes no time.
    requested_at: float
    connections: tuple[Connection, ...]


class Failure(NamedTuple):
    """The reason that a server is unreachable, and the time of the first failed request."""

    since: float
    error: str
    # State of the server as far as the last error shows it.
    state: ServerState = "unreachable"


@dataclass(frozen=True, slots=True)
class ServerView:
    """The last reported state of one server."""

    address: str
    # True: another server has the same name, so that pages show the address instead.
    shares_name: bool = False
    # None: the last request was answered, or none has finished yet.
    failure: Failure | None = None
    # Seconds by which the server's wall clock is ahead of the console's monotonic clock; None if it is unknown.
    wall_minus_monotonic: float | None = None
    # Time of the last response; None before the first.
    answered_at: float | None = field(default=None, compare=False)
    # None: Apache's server, which does not report it, or one without a response yet.
    info: ServerInfo | None = field(default=None, compare=False)
    # Empty after the server denied them.
    brokers: Mapping[BrokerKey, BrokerSeen] = field(default_factory=dict)
    # Number of the last event that was known before the brokers were requested; later events may have removed some.
    brokers_seq: int = field(default=0, compare=False)
    topic_report: TopicReport = field(default_factory=TopicReport)
    # None: the server does not report its connections.
    connection_report: ConnectionReport | None = None
    # The last events, oldest first.
    events: tuple[Event, ...] = ()
    # Refused request (brokers, routes, events, connections) -> reason.
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The server's own name; its address while the name is unknown, or if another server has the same one."""
        own = None if self.info is None else self.info.nameserver
        return self.address if self.shares_name or not own else own

    @property
    def state(self) -> ServerState:
        """The state in one word."""
        if self.failure is not None:
            return self.failure.state
        return "asking" if self.answered_at is None else state_of(self.info)

    @property
    def is_reachable(self) -> bool | None:
        """True if the last request was answered; None if none has finished yet."""
        if self.failure is not None:
            return False
        return None if self.answered_at is None else True

    @property
    def error(self) -> str | None:
        """The reason that the server is unreachable."""
        return None if self.failure is None else self.failure.error

    @property
    def reports_brokers(self) -> bool:
        """True if the brokers are those that the server has now."""
        return bool(self.is_reachable) and "brokers" not in self.refused

    @property
    def reports_all_brokers(self) -> bool:
        """True if the server has no brokers but the reported ones; after a start it still waits for others."""
        return self.reports_brokers and self.state != "not_ready"

    @property
    def has_read_topics(self) -> bool:
        """True once the topics were read: after a start they are read later than the brokers."""
        if self.info is None:
            # Apache's server has a topic for each of its brokers, so without any topic its list was not received yet.
            return bool(self.topic_report.topics)
        return bool(self.topic_report.revision) or not self.info.revision

    @property
    def reports_topics(self) -> bool:
        """True if the topics are those that the server has now."""
        return bool(self.is_reachable) and "routes" not in self.refused and self.has_read_topics

    @property
    def is_compared(self) -> bool:
        """True if the server reports its brokers and topics now, so that they can be compared with those of others."""
        return self.reports_topics and self.reports_brokers

    @property
    def reports_events(self) -> bool:
        """True if the events are the last ones of the server."""
        return bool(self.is_reachable) and self.info is not None and "events" not in self.refused

    @property
    def connections(self) -> tuple[Connection, ...] | None:
        """The open connections; None if they are unknown: an unreachable server may have closed those it reported."""
        return self.connection_report.connections if self.is_reachable and self.connection_report else None

    def last_request_at(self, connection: Connection) -> float | None:
        """The time of the last request on a reported connection; None if the server does not report it."""
        report, seconds_ago = self.connection_report, connection.last_request_seconds
        return None if report is None or seconds_ago is None else report.requested_at - seconds_ago

    def is_starting(self, now: float) -> bool:
        """True if brokers may not have registered with the server since its start."""
        return is_starting(self.info, 0.0 if self.answered_at is None else now - self.answered_at)

    def lost(self, error: str, now: float, state: ServerState = "unreachable") -> Self:
        """The view after a failed request; the last reported state of the server stays."""
        since = now if self.failure is None else self.failure.since
        return replace(self, failure=Failure(since, error, state))

    def without(self, request: str) -> Self:
        """The view without the last response to a request that the server now refuses; past events stay."""
        match request:
            case "brokers":
                return replace(self, brokers={})
            case "routes":
                return replace(self, topic_report=TopicReport())
            case "connections":
                return replace(self, connection_report=None)
        return self

    def answered(self, now: float, *, info: ServerInfo | None) -> Self:
        """The view after a response; with another boot id only the new response counts."""
        is_same_boot = self.boot_id == (None if info is None else info.boot_id)
        known = self if is_same_boot else type(self)(self.address, self.shares_name)
        before = self.wall_minus_monotonic
        ahead = _kept(before, _wall_minus_monotonic(info, now), _WALL_JITTER_SECONDS)
        step_seconds = 0.0 if before is None or ahead is None else ahead - before
        return replace(
            known,
            failure=None,
            wall_minus_monotonic=ahead,
            answered_at=now,
            info=info,
            # After its clock was set, a server reports its earlier events at other times.
            events=_moved(known.events, round(step_seconds * 1000)),
        )

    def with_events(self, events: Iterable[Event]) -> Self:
        """The view with further events."""
        return replace(self, events=(*self.events, *events)[-KEPT_EVENTS:])

    def on_console_clock(self, ts_ms: int | None, moment_ms: Callable[[float], int]) -> int | None:
        """A time of the server's wall clock on the console's; `moment_ms` converts the console's monotonic clock."""
        return None if ts_ms is None else ts_ms + self._behind_ms(moment_ms)

    def events_on_console_clock(self, moment_ms: Callable[[float], int]) -> Sequence[Event]:
        """The events, with their times on the console's wall clock."""
        if not self._behind_ms(moment_ms):
            return self.events
        return [replace(event, ts_ms=self.on_console_clock(event.ts_ms, moment_ms)) for event in self.events]

    def _behind_ms(self, moment_ms: Callable[[float], int]) -> int:
        """Milliseconds by which the server's wall clock is behind the console's."""
        behind_ms = 0 if self.wall_minus_monotonic is None else moment_ms(-self.wall_minus_monotonic)
        # A smaller difference may be the time that the response travelled.
        return behind_ms if abs(behind_ms) >= 1000 * _WALL_JITTER_SECONDS else 0

    @property
    def boot_id(self) -> str | None:
        """The boot id of the server."""
        return None if self.info is None else self.info.boot_id

    @property
    def last_seq(self) -> int:
        """The number of the last known event."""
        return self.events[-1].seq if self.events else 0

    def shows_the_same_as(self, other: "ServerView") -> bool:
        """True if no page would look different."""
        is_same_state = self.is_reachable == other.is_reachable and _steady_info(self.info) == _steady_info(other.info)
        return is_same_state and self == other


@dataclass(frozen=True, slots=True)
class Cluster:
    """All servers at one moment, in the order in which they were named."""

    # A number that grows with every visible change.
    revision: int
    servers: tuple[ServerView, ...]

    @classmethod
    def of(cls, addresses: Sequence[str]) -> Self:
        """A cluster of servers without any response yet."""
        return cls(0, tuple(map(ServerView, addresses)))

    def with_view(self, view: ServerView) -> Self:
        """The cluster with a new view of one server, and a new revision if the change is visible."""
        old = self.server(view.address)
        servers = _named([view if one.address == view.address else one for one in self.servers])
        is_same = view.shows_the_same_as(old) and [one.name for one in servers] == [one.name for one in self.servers]
        return replace(self, revision=self.revision + (not is_same), servers=servers)

    def server(self, address: str) -> ServerView:
        """The view of a server. Raises KeyError if the address is unknown."""
        for view in self.servers:
            if view.address == address:
                return view
        raise KeyError(address)

    def name(self, address: str) -> str:
        """The name of the server with this address; any other text as it is."""
        return next((view.name for view in self.servers if view.address == address), address)

    def names(self, addresses: Iterable[str]) -> list[str]:
        """The names of the servers with these addresses."""
        return list(map(self.name, addresses))

    @property
    def compared(self) -> int:
        """Number of servers that can be compared."""
        return sum(view.is_compared for view in self.servers)

    @property
    def reporting(self) -> int:
        """Number of servers that report their brokers."""
        return sum(view.reports_brokers for view in self.servers)

    @property
    def broker_keys(self) -> list[BrokerKey]:
        """Every broker on any of the servers, sorted."""
        return sorted({key for view in self.servers for key in view.brokers})


def _named(views: Sequence[ServerView]) -> tuple[ServerView, ...]:
    """The views, each with the knowledge whether another server has the same name."""
    counts = Counter(None if view.info is None else view.info.nameserver for view in views)
    shared = {view.address: view.info is not None and counts[view.info.nameserver] > 1 for view in views}
    return tuple(
        view if view.shares_name == shared[view.address] else replace(view, shares_name=shared[view.address])
        for view in views
    )


def seen_brokers(
    known: Mapping[BrokerKey, BrokerSeen], found: Sequence[LiveBroker], asked_at: float
) -> dict[BrokerKey, BrokerSeen]:
    """The brokers of a response on our clock; a time that differs only by the response's travel time stays."""
    brokers = {}
    for live in found:
        key = BrokerKey(live.cluster, live.broker_name, live.broker_id)
        old = known.get(key)
        last_seen_at = None if live.age_seconds is None else _moment(asked_at - live.age_seconds)
        evicted_at = None if live.expires_in_seconds is None else _moment(asked_at + live.expires_in_seconds)
        brokers[key] = BrokerSeen(
            live,
            _kept(None if old is None else old.last_seen_at, last_seen_at),
            _kept(None if old is None else old.evicted_at, evicted_at),
            (live.broker_addr, live.data_version, live.topics, live.write_removed, live.agent_id, live.state),
        )
    return brokers


def _moved(events: tuple[Event, ...], by_ms: int) -> tuple[Event, ...]:
    """The events, each `by_ms` later."""
    if not by_ms:
        return events
    return tuple(each if each.ts_ms is None else replace(each, ts_ms=each.ts_ms + by_ms) for each in events)


def _moment(seconds: float) -> float | None:
    """The time if there can be one, else None, since a server may send any number."""
    return seconds if abs(seconds) < _FARTHEST_SECONDS else None


def _wall_minus_monotonic(info: ServerInfo | None, now: float) -> float | None:
    return None if info is None or info.wall_ms is None else _moment(info.wall_ms / 1000 - now)


def _kept(old: float | None, new: float | None, jitter_seconds: float = _JITTER_SECONDS) -> float | None:
    return old if old is not None and new is not None and abs(new - old) < jitter_seconds else new


def _steady_info(info: ServerInfo | None) -> tuple[object, ...]:
    """The values of a server's info that do not change by themselves."""
    if info is None:
        return ()
    # A newer server may describe a problem with a number that changes every second; the kinds count.
    kinds = [one.kind for one in info.problems]
    return (info.boot_id, info.revision, info.ready, info.draining, info.version, info.connections, info.brokers, kinds)
