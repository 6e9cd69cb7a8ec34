"""What the console knows: a frozen view of each NameServer, and a numbered whole of all of them.

No clock and no I/O: times are monotonic seconds of the console's own clock, handed in.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, Self

from namesrv_remoting.bodies.extensions import Connection, Event, LiveBroker, ServerInfo
from namesrv_remoting.bodies.route import TopicRouteData

ServerState = Literal["asking", "ready", "not_ready", "draining", "answers", "refuses", "unreachable"]

# Answers travel for a few milliseconds, each for another few: a broker was heard again only if it seems later by more.
_JITTER_SECONDS: Final = 0.25
# what RECENT_EVENTS gave, as far as pages show it
KEPT_EVENTS: Final = 200


class BrokerKey(NamedTuple):
    """One instance of a broker group; in the order in which pages list them."""

    cluster: str
    broker_name: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """What one server knows of one broker. The times are None from Apache's server, which does not tell them."""

    live: LiveBroker = field(compare=False)
    # when the server last heard it, and when it will evict it unless it hears it again
    heard_at: float | None
    evicted_at: float | None
    # everything that does not change by itself from one second to the next
    steady: tuple[object, ...] = field(repr=False, default=())


@dataclass(frozen=True, slots=True)
class ServerView:
    """What one server says, or said last."""

    address: str
    # None: it was not asked yet
    is_reachable: bool | None = None
    # since when it is (or is not) reachable
    since: float = 0.0
    # why it is not reachable
    error: str | None = None
    # it can be reached, and tells us nothing
    refuses: bool = False
    # False: Apache's server; None: not known yet
    is_native: bool | None = None
    # when it answered last
    answered_at: float | None = field(default=None, compare=False)
    info: ServerInfo | None = field(default=None, compare=False)
    brokers: Mapping[BrokerKey, BrokerSeen] = field(default_factory=dict)
    # the names of all its topics
    topics: frozenset[str] = frozenset()
    # topic -> its route; Apache's server is asked for all of them only if they are few
    routes: Mapping[str, TopicRouteData] = field(default_factory=dict)
    # the change that the routes are as of; of no meaning for Apache's server
    routes_revision: int = 0
    # None: it does not tell
    connections: tuple[Connection, ...] | None = field(default=None, compare=False)
    connections_at: float = 0.0
    # the last ones, oldest first
    events: tuple[Event, ...] = ()
    # what it does not tell (brokers, routes, events, connections) -> why
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def state(self) -> ServerState:
        """In one word."""
        if self.is_reachable is None:
            return "asking"
        if not self.is_reachable:
            return "refuses" if self.refuses else "unreachable"
        if self.info is None:
            return "answers"
        if self.info.draining:
            return "draining"
        return "ready" if self.info.ready else "not_ready"

    def lost(self, why: str, now: float, *, refuses: bool = False) -> Self:
        """The same server, no longer reachable, or to others only: what it said last stays."""
        since = self.since if self.is_reachable is False else now
        return replace(self, is_reachable=False, since=since, error=why, refuses=refuses)

    def answered(self, now: float, *, info: ServerInfo | None) -> Self:
        """The same server after an answer; one that runs anew is known by nothing but that."""
        view = self
        if self.boot_id != (None if info is None else info.boot_id):
            view = replace(
                self, topics=frozenset(), routes={}, routes_revision=0, events=(), brokers={}, connections=None
            )
        since = view.since if view.is_reachable else now
        return replace(
            view,
            is_reachable=True,
            since=since,
            error=None,
            refuses=False,
            is_native=info is not None,
            answered_at=now,
            info=info,
        )

    @property
    def boot_id(self) -> str | None:
        """Which run of the server it is."""
        return None if self.info is None else self.info.boot_id

    @property
    def last_seq(self) -> int:
        """The number of its last event that is known."""
        return self.events[-1].seq if self.events else 0

    def shows_the_same_as(self, other: "ServerView") -> bool:
        """Whether no page would look different."""
        return self == other and _steady_info(self.info) == _steady_info(other.info)


@dataclass(frozen=True, slots=True)
class Cluster:
    """All servers at one moment, in the order in which they were named."""

    # grows with every change that can be seen
    revision: int
    servers: tuple[ServerView, ...]

    @classmethod
    def of(cls, addresses: Sequence[str]) -> Self:
        """Servers that were not asked yet."""
        return cls(0, tuple(map(ServerView, addresses)))

    def with_view(self, view: ServerView) -> Self:
        """The same with another view of one server; another revision only if that can be seen."""
        old = self.server(view.address)
        servers = tuple(view if one.address == view.address else one for one in self.servers)
        return replace(self, revision=self.revision + (not view.shows_the_same_as(old)), servers=servers)

    def server(self, address: str) -> ServerView:
        """One of them. Raises KeyError if there is none."""
        for view in self.servers:
            if view.address == address:
                return view
        raise KeyError(address)

    @property
    def broker_keys(self) -> list[BrokerKey]:
        """Every broker that any of the servers knows, sorted."""
        return sorted({key for view in self.servers for key in view.brokers})

    @property
    def topics(self) -> list[str]:
        """Every topic that any of the servers knows, sorted."""
        return sorted(frozenset[str]().union(*(view.topics for view in self.servers)))


def seen_brokers(
    known: Mapping[BrokerKey, BrokerSeen], found: Sequence[LiveBroker], asked_at: float
) -> dict[BrokerKey, BrokerSeen]:
    """What a server's answer means on our clock; a time that differs by the way it travelled only stays as it was."""
    brokers = {}
    for live in found:
        key = BrokerKey(live.cluster, live.broker_name, live.broker_id)
        old = known.get(key)
        heard_at = None if live.age_seconds is None else _moment(asked_at - live.age_seconds)
        evicted_at = None if live.expires_in_seconds is None else _moment(asked_at + live.expires_in_seconds)
        brokers[key] = BrokerSeen(
            live,
            _kept(None if old is None else old.heard_at, heard_at),
            _kept(None if old is None else old.evicted_at, evicted_at),
            (live.broker_addr, live.data_version, live.topics, live.write_wiped, live.agent_id, live.state),
        )
    return brokers


def _moment(seconds: float) -> float | None:
    """A server may say anything; what is no time is not told."""
    return seconds if math.isfinite(seconds) else None


def _kept(old: float | None, new: float | None) -> float | None:
    return old if old is not None and new is not None and abs(new - old) < _JITTER_SECONDS else new


def _steady_info(info: ServerInfo | None) -> tuple[object, ...]:
    """What a server says of itself, but for what changes by itself."""
    if info is None:
        return ()
    return (info.boot_id, info.revision, info.ready, info.draining, info.version, info.connections, info.brokers)
