"""The cache of routes, and the changes that a server's response makes in it. No I/O, no event loop."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from namesrv_client.routes.route import Route, RouteChange, Source, difference
from namesrv_client.routes.status import RouteStatus
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_runtime.clock import Clock

T = TypeVar("T")
Part = TypeVar("Part", BrokerData, QueueData)

# With fewer shared parts than this, parts that no route has any more are not looked for.
_MIN_SWEEP: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteResponse:
    """The response of one server to a request for the routes of some topics."""

    # the server's boot id; for Apache's server, which has no boot id, a name of the connection
    boot_id: str
    # Number of the connection over which the response arrived; no two connections of the process have the same number.
    # If the connection ended before the response was processed, a number that belongs to no connection: then it equals
    # that of no other response.
    connection: int
    # True if all brokers have had time to register, so that brokers missing in a route are gone
    is_complete: bool
    # True if the server has sent a complete response over this connection in this boot, perhaps this response
    was_complete: bool
    # True if a topic that this server and this client do not know does not exist
    knows_all_topics: bool = True
    # all requested topics
    topics: Sequence[str]
    # topic -> route, None if the topic does not exist; for a conditional request only the changed topics
    routes: Mapping[str, TopicRouteData | None]
    # the server's revision of the routes; None from Apache's server
    revision: int | None = None
    # True for a response to a request for the changes after a revision
    is_conditional: bool = False


class SyncPoint:
    """The boot id and revision of a server up to which every change of some topics is known.

    A conditional request asks for the changes after revision 17 of boot id b00t, for all topics at once. A topic whose
    route is not of revision 17 (it came from disk, from another server, or while the request was under way) has to be
    requested in full first; otherwise a change of that topic would be missed for ever.
    """

    def __init__(self, on_leave: Callable[[Iterable[str]], None] = lambda _: None) -> None:
        # called with topics that are about to be dropped, whose time of confirmation would be lost
        self._on_leave = on_leave
        # None while no server has sent a revision
        self.boot_id: str | None = None
        # all changes of `topics` up to this revision are known
        self.revision = 0
        # topics that a conditional request may name
        self.topics: set[str] = set()
        # monotonic time at which the server last confirmed all topics at once
        self.confirmed_at = float("-inf")

    def __repr__(self) -> str:
        return f"<SyncPoint [{self.boot_id} | {self.revision} | {len(self.topics)} topics]>"

    def known(self, boot_id: str | None, topics: Iterable[str]) -> tuple[list[str], list[str]]:
        """Divide topics into those that a conditional request to a server may name, and the others."""
        known: list[str] = []
        others: list[str] = []
        for topic in topics:
            (known if boot_id == self.boot_id and topic in self.topics else others).append(topic)
        return known, others

    def advance(self, response: RouteResponse, now: float) -> bool:
        """Move the sync point; True if the response covers all topics. A response of another boot id is ignored."""
        if response.revision is None or response.boot_id != self.boot_id:
            return False
        covers_all = self.topics.issubset(response.topics)
        # The other topics are still known only up to the old revision.
        self.revision = response.revision if covers_all else min(self.revision, response.revision)
        if not response.is_conditional:
            self.topics.update(response.topics)
        elif covers_all:
            self.confirmed_at = now
        return covers_all

    def retain(self, topics: Collection[str]) -> None:
        """Drop all topics except these, so that the next request asks for them in full."""
        self._on_leave(self.topics.difference(topics))
        self.topics.intersection_update(topics)


class RouteInterner:
    """Makes equal parts of routes the same object, because a cluster has few brokers and thousands of similar topics.

    Servers list brokers in any order; sorting them by name makes routes with equal content equal. Parts that no live
    route has any more are removed whenever the table has doubled, so that the table stays small over years.
    """

    def __init__(self, live: Callable[[], Iterable[TopicRouteData]]) -> None:
        self._live = live
        self._sweep_at = _MIN_SWEEP
        # Brokers and queues by their content; tuples of them, and routes, by the identities of their parts, which the
        # table keeps alive.
        self._parts: dict[object, Any] = {}
        # argument and result of the last call: topics of one response often have the same route
        self._last: tuple[TopicRouteData, TopicRouteData] | None = None

    def shared(self, data: TopicRouteData) -> TopicRouteData:
        """An equal route, with sorted brokers, made of shared parts."""
        if self._last is not None and self._last[0] is data:
            return self._last[1]
        if len(self._parts) > self._sweep_at:
            self._parts.clear()
            for route in self._live():
                self._interned(route)
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self._parts))
        interned = self._interned(data)
        self._last = (data, interned)
        return interned

    def _interned(self, data: TopicRouteData) -> TopicRouteData:
        """The shared route with this content; `data` itself if it is sorted and the first with this content."""
        brokers, queues = self._row(data.broker_datas, _broker_key), self._row(data.queue_datas, lambda part: part)
        route = data
        if data.broker_datas is not brokers or data.queue_datas is not queues:
            mappings = data.topic_queue_mapping_by_broker or None
            route = TopicRouteData(brokers, queues, data.filter_server_table, data.order_topic_conf, mappings)
        if route.filter_server_table or route.topic_queue_mapping_by_broker or route.order_topic_conf is not None:
            # Such a route belongs to one topic only.
            return route
        return self._share((TopicRouteData, id(brokers), id(queues)), route)

    def _row(self, parts: Sequence[Part], key: Callable[[Part], object]) -> Sequence[Part]:
        row = tuple(self._share(key(part), part) for part in sorted(parts, key=lambda part: part.broker_name))
        return self._share(tuple(map(id, row)), parts if parts == row else row)

    def _share(self, key: object, value: T) -> T:
        shared: T = self._parts.setdefault(key, value)
        return shared


def _broker_key(data: BrokerData) -> object:
    addresses = tuple(sorted(data.broker_addrs.items()))
    return data.cluster, data.broker_name, addresses, data.zone_name, data.enable_acting_master


class KnownRoutes:
    """The known routes by topic.

    A failing server drops no route. A server that is not complete, because it has just started or may have been cut off
    from its brokers, can add brokers to a known route. Such a server removes a broker only from a route that the server
    itself has sent in the same boot, and only if no network failure can lie between: the route arrived over the same
    connection, or the server has been complete on the connection of the response. Otherwise the failure that ended the
    former connection may also have ended the connections of live brokers, which are about to register again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # topic -> route; a route was last confirmed at its `confirmed_at` or with the sync point, whichever is later
        self._routes: dict[str, Route] = {}
        # broker name -> the group as the last new route with this broker had it; and the number of routes that have the
        # broker, which is dropped with the last of them
        self._brokers: dict[str, BrokerData] = {}
        self._uses: Counter[str] = Counter()
        self._interner = RouteInterner(lambda: (route.data for route in self._routes.values()))
        self.point = SyncPoint(self._leave_point)
        # topics whose last response was not accepted, or that the server refused, and that have to be requested again
        self.unconfirmed: set[str] = set()

    def __repr__(self) -> str:
        return f"<KnownRoutes [{len(self._routes)} topics | {len(self.unconfirmed)} unconfirmed | {self.point!r}]>"

    def __len__(self) -> int:
        return len(self._routes)

    def get(self, topic: str) -> Route | None:
        """The known route of a topic."""
        route, at = self._routes.get(topic), self.point.confirmed_at
        if route is None or at <= route.confirmed_at or topic not in self.point.topics:
            return route
        return Route(topic, route.data, route.source, at, route.confirmed_absent_since, route.clock, route.sender)

    def existing(self) -> list[Route]:
        """All known routes, without topics that a server reports as absent."""
        routes = (self.get(topic) for topic in self._routes)
        return [route for route in routes if route is not None and route.confirmed_absent_since is None]

    def statuses(self, in_use: Container[str]) -> tuple[RouteStatus, ...]:
        """The status of each route, in the order in which they became known; any thread may call this."""
        point, now = self.point, self._clock.monotonic()
        listed = []
        for topic in tuple(self._routes):
            if (route := self.get(topic)) is not None:
                absent_since = route.confirmed_absent_since
                listed.append(
                    RouteStatus(
                        topic,
                        route.source,
                        max(0.0, now - route.confirmed_at),
                        point.revision if topic in point.topics else None,
                        None if absent_since is None else now - absent_since,
                        topic in in_use,
                    )
                )
        return tuple(listed)

    def broker(self, name: str) -> BrokerData | None:
        """A broker group, as in the newest route that has it."""
        return self._brokers.get(name)

    def topics_of(self, brokers: Collection[str]) -> set[str]:
        """Topics whose route has one of the brokers. Searches all routes."""
        return {topic for topic, route in self._routes.items() if not route.brokers.keys().isdisjoint(brokers)}

    def restore(self, routes: Iterable[Route]) -> None:
        """Add routes from disk for unknown topics."""
        for route in routes:
            if route.topic not in self._routes:
                self._put(replace(route, data=self._interner.shared(route.data)))

    def forget(self, topic: str) -> None:
        """Drop a topic that is not used any more."""
        self.point.topics.discard(topic)
        self.unconfirmed.discard(topic)
        route = self._routes.pop(topic, None)
        if route is not None:
            self._uncount(route.data)

    def apply(self, response: RouteResponse, source: Source, *, is_sync: bool) -> list[RouteChange]:
        """Apply a server's response, and return the changes of routes.

        `is_sync` is True for a request that keeps known routes fresh (a poll, a watch, a refresh after a failed send):
        such a response moves the sync point to its server. The response to the first request for a topic does not,
        because the other topics would have to be requested in full again.
        """
        point, now = self.point, self._clock.monotonic()
        if response.boot_id != point.boot_id:
            if response.is_conditional:
                # Changes since a revision of another server cannot be applied to these routes.
                return []
            if response.revision is not None and (is_sync or point.boot_id is None):
                # From now on the sync point follows this server.
                self._leave_point(tuple(point.topics))
                point.boot_id = response.boot_id
        changes, rejected = [], []
        for topic, data in response.routes.items():
            old = self.get(topic)
            if old is not None and not _is_accepted(old, data, response):
                rejected.append(topic)
                continue
            self.unconfirmed.discard(topic)
            if data is not None:
                sender = response.boot_id, response.connection
                new = Route(topic, self._interner.shared(data), source, now, None, self._clock, sender)
            elif old is not None:
                # The last route stays, marked as absent.
                since = now if old.confirmed_absent_since is None else old.confirmed_absent_since
                new = replace(old, confirmed_at=now, confirmed_absent_since=since)
            else:
                continue
            self._put(new)
            change = difference(topic, old, new)
            if change is not None:
                changes.append(change)
        self._move_point(response, rejected, now)
        return changes

    def _move_point(self, response: RouteResponse, rejected: Collection[str], now: float) -> None:
        """Move the sync point; rejected topics have to be requested in full until a response is accepted."""
        # After the response of a server that the sync point does not follow, the routes are not of the sync point's
        # revision any more.
        self._leave_point(rejected if response.boot_id == self.point.boot_id else response.routes)
        covers_all = self.point.advance(response, now)
        self.point.topics.difference_update(rejected)
        self.unconfirmed.update(rejected)
        if not covers_all:
            # The sync point keeps its time of confirmation, which is that of all its topics.
            for topic in self.point.topics.intersection(response.topics):
                if topic in self._routes:
                    self._routes[topic] = replace(self._routes[topic], confirmed_at=now)

    def _leave_point(self, topics: Iterable[str]) -> None:
        """Remove topics from the sync point, and keep their time of confirmation with their routes."""
        for topic in topics:
            route = self.get(topic)
            if route is not None:
                self._routes[topic] = route
            self.point.topics.discard(topic)

    def _put(self, route: Route) -> None:
        old = self._routes.get(route.topic)
        self._routes[route.topic] = route
        if old is not None and old.data is route.data:
            return
        self._brokers.update(route.brokers)
        self._uses.update(data.broker_name for data in route.data.broker_datas)
        if old is not None:
            self._uncount(old.data)

    def _uncount(self, data: TopicRouteData) -> None:
        for broker in data.broker_datas:
            self._uses[broker.broker_name] -= 1
            if not self._uses[broker.broker_name]:
                del self._uses[broker.broker_name], self._brokers[broker.broker_name]


def _is_accepted(old: Route, data: TopicRouteData | None, response: RouteResponse) -> bool:
    """True if a response may replace the old route.

    The response must be of a server that is complete; or remove no broker from the old route; or be of the same boot id
    as the old route, and either have arrived over the same connection or over one on which the server was complete.
    """
    boot_id, connection = old.sender
    is_unbroken = response.was_complete or connection == response.connection
    if response.is_complete or (boot_id == response.boot_id and is_unbroken):
        return True
    return data is not None and _instances(old.data) <= _instances(data)


def _instances(data: TopicRouteData) -> set[tuple[str, int]]:
    return {(group.broker_name, broker_id) for group in data.broker_datas for broker_id in group.broker_addrs}
