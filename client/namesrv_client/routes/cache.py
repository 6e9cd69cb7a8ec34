"""The cache of routes: what is known of each topic, and what an answer changes. No I/O, no loop."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from namesrv_client.routes.route import Route, RouteChange, Source, difference
from namesrv_client.routes.status import RouteStatus
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_runtime.clock import Clock

T = TypeVar("T")
Part = TypeVar("Part", BrokerData, QueueData)

# So many parts of routes may be remembered before those that no route has any more are looked for.
_MIN_SWEEP: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of one server to one question."""

    # which run of which server: a native one's boot id, or a connection to one that has none
    run: str
    # the server has run for long enough that what it does not know does not exist
    is_warm: bool
    # for long enough, too, that a topic that it does not know and nobody else either does not exist
    can_deny: bool = True
    # all that were asked about
    topics: Sequence[str]
    # what was said of them, None: does not exist; of a conditional question only what changed
    routes: Mapping[str, TopicRouteData | None]
    # as of which of the run's changes; None from a server that does not count them
    revision: int | None = None
    # asked for changes after some revision
    is_conditional: bool = False


class SyncPoint:
    """The run and revision of a server up to which every change of some topics is known.

    A conditional question says "what changed after revision 17 of run b00t?" for all topics at once. A topic that was
    not known at 17 (it came from the disk, from another server, or while the question was under way) has to be asked
    about fully first, or a change of it would be missed for ever.
    """

    def __init__(self) -> None:
        # None: nothing is known of any run
        self.run: str | None = None
        # changes up to this one are known of all topics
        self.revision = 0
        self.topics: set[str] = set()
        # monotonic: when the run last confirmed all of them at once
        self.confirmed_at = float("-inf")

    def __repr__(self) -> str:
        return f"<SyncPoint [{self.run} | {self.revision} | {len(self.topics)} topics]>"

    def known(self, run: str | None, topics: Iterable[str]) -> tuple[list[str], list[str]]:
        """Those of the topics that a conditional question to this run may name, and those that it may not."""
        found: tuple[list[str], list[str]] = ([], [])
        for topic in topics:
            found[run != self.run or topic not in self.topics].append(topic)
        return found

    def advance(self, answer: Answer, now: float) -> bool:
        """Take in an answer; whether it is about all topics at once. One of another run says nothing here."""
        if answer.revision is None or answer.run != self.run:
            return False
        covers_all = self.topics.issubset(answer.topics)
        # what else is known is known only up to where it was
        self.revision = answer.revision if covers_all else min(self.revision, answer.revision)
        if not answer.is_conditional:
            self.topics.update(answer.topics)
        elif covers_all:
            self.confirmed_at = now
        return covers_all

    def retain(self, topics: Collection[str]) -> None:
        """Ask fully about all topics but these the next time."""
        self.topics.intersection_update(topics)


class RouteInterner:
    """Equal parts of routes become the same object: a cluster has few brokers and thousands of topics, most alike.

    Servers list brokers as they like: sorted by name, two routes that say the same are equal. What no live route has
    any more is forgotten whenever the table has doubled: what comes and goes for years leaves nothing behind.
    """

    def __init__(self, live: Callable[[], Iterable[TopicRouteData]]) -> None:
        self._live = live
        self._sweep_at = _MIN_SWEEP
        # Brokers and queues by what they say; rows of them, and routes, by the identities of their parts, which this
        # keeps alive.
        self._parts: dict[object, Any] = {}
        # what was asked last: topics that were pulled together often have the very same route
        self._last: tuple[TopicRouteData, TopicRouteData] | None = None

    def shared(self, data: TopicRouteData) -> TopicRouteData:
        """An equal route, in order, made of shared parts."""
        if self._last is not None and self._last[0] is data:
            return self._last[1]
        if len(self._parts) > self._sweep_at:
            self._parts.clear()
            for route in self._live():
                self._interned(route)
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self._parts))
        found = self._interned(data)
        self._last = (data, found)
        return found

    def _interned(self, data: TopicRouteData) -> TopicRouteData:
        """The data itself if it is the first to say so, in order: a live route goes on sharing with those to come."""
        brokers, queues = self._row(data.broker_datas, _broker_key), self._row(data.queue_datas, lambda part: part)
        found = data
        if data.broker_datas is not brokers or data.queue_datas is not queues:
            mappings = data.topic_queue_mapping_by_broker or None
            found = TopicRouteData(brokers, queues, data.filter_server_table, data.order_topic_conf, mappings)
        if found.filter_server_table or found.topic_queue_mapping_by_broker or found.order_topic_conf is not None:
            # this topic's alone
            return found
        return self._share((TopicRouteData, id(brokers), id(queues)), found)

    def _row(self, parts: Sequence[Part], key: Callable[[Part], object]) -> Sequence[Part]:
        row = tuple(self._share(key(part), part) for part in sorted(parts, key=lambda part: part.broker_name))
        return self._share(tuple(map(id, row)), parts if parts == row else row)

    def _share(self, key: object, value: T) -> T:
        found: T = self._parts.setdefault(key, value)
        return found


def _broker_key(data: BrokerData) -> object:
    addresses = tuple(sorted(data.broker_addrs.items()))
    return data.cluster, data.broker_name, addresses, data.zone_name, data.enable_acting_master


class RouteCache:
    """Topic to route. Nothing is ever dropped because a server failed, and nothing shrinks on a young server's word.

    A server whose brokers may not all be back yet can add to a known route. It can take something out of it only if it
    had told of that itself: then it is gone, and not still on its way.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # confirmed when they say so, or by the sync point since
        self._routes: dict[str, Route] = {}
        # broker name -> its group as the last route told it that had it, and how many routes have it
        self._brokers: dict[str, BrokerData] = {}
        self._uses: Counter[str] = Counter()
        self._interner = RouteInterner(lambda: (route.data for route in self._routes.values()))
        self.point = SyncPoint()
        # topics of which the last answer was not believed: they have to be asked about again
        self.doubted: set[str] = set()

    def __repr__(self) -> str:
        return f"<RouteCache [{len(self._routes)} topics | {len(self.doubted)} doubted | {self.point!r}]>"

    def __len__(self) -> int:
        return len(self._routes)

    def get(self, topic: str) -> Route | None:
        """What is known of a topic."""
        route, at = self._routes.get(topic), self.point.confirmed_at
        if route is None or at <= route.confirmed_at or topic not in self.point.topics:
            return route
        return Route(topic, route.data, route.source, at, route.confirmed_absent_since, route.clock, route.run)

    def existing(self) -> list[Route]:
        """All routes that exist, as far as anybody knows."""
        routes = (self.get(topic) for topic in self._routes)
        return [route for route in routes if route is not None and route.confirmed_absent_since is None]

    def statuses(self, in_use: Collection[str]) -> tuple[RouteStatus, ...]:
        """Each route, in the order in which they became known, for any thread."""
        point, now = self.point, self._clock.monotonic()
        found = []
        for topic in tuple(self._routes):
            if (route := self.get(topic)) is not None:
                absent_since = route.confirmed_absent_since
                found.append(
                    RouteStatus(
                        topic,
                        route.source,
                        max(0.0, now - route.confirmed_at),
                        point.revision if topic in point.topics else None,
                        None if absent_since is None else now - absent_since,
                        topic in in_use,
                    )
                )
        return tuple(found)

    def broker(self, name: str) -> BrokerData | None:
        """A broker group, as the last answer told it that had it."""
        return self._brokers.get(name)

    def topics_of(self, brokers: Collection[str]) -> set[str]:
        """Topics whose route has one of the brokers. Looks through everything."""
        return {topic for topic, route in self._routes.items() if not route.brokers.keys().isdisjoint(brokers)}

    def restore(self, routes: Iterable[Route]) -> None:
        """Take routes from disk for topics that are not known."""
        for route in routes:
            if route.topic not in self._routes:
                self._put(replace(route, data=self._interner.shared(route.data)))

    def forget(self, topic: str) -> None:
        """Drop a topic that nobody uses any more."""
        self.point.topics.discard(topic)
        self.doubted.discard(topic)
        route = self._routes.pop(topic, None)
        if route is not None:
            self._uncount(route.data)

    def apply(self, answer: Answer, source: Source, *, is_sync: bool) -> list[RouteChange]:
        """Take in what a server said, when all topics in use were to be fresh (`is_sync`) or not; how routes differ."""
        point, now = self.point, self._clock.monotonic()
        if answer.run != point.run:
            if answer.is_conditional:
                # changes of another run say nothing about what is known here
                return []
            if answer.revision is not None and (is_sync or point.run is None):
                # the run to keep up with from now on
                self._leave_point(tuple(point.topics))
                point.run = answer.run
        changes, doubts = [], []
        for topic, data in answer.routes.items():
            old = self.get(topic)
            if old is not None and not _is_believed(old, data, answer):
                doubts.append(topic)
                continue
            self.doubted.discard(topic)
            if data is not None:
                new = Route(topic, self._interner.shared(data), source, now, None, self._clock, answer.run)
            elif old is not None:
                # the last route stays, with a word to it
                since = now if old.confirmed_absent_since is None else old.confirmed_absent_since
                new = replace(old, confirmed_at=now, confirmed_absent_since=since)
            else:
                continue
            self._put(new)
            change = difference(topic, old, new)
            if change is not None:
                changes.append(change)
        self._count_in(answer, doubts, now)
        return changes

    def _count_in(self, answer: Answer, doubts: Collection[str], now: float) -> None:
        """Move the sync point; what was not believed has to be asked about fully, until it is."""
        self._leave_point(doubts if answer.run == self.point.run else answer.routes)
        covers_all = self.point.advance(answer, now)
        self.point.topics.difference_update(doubts)
        self.doubted.update(doubts)
        if not covers_all:
            for topic in self.point.topics.intersection(answer.topics):
                if topic in self._routes:
                    self._routes[topic] = replace(self._routes[topic], confirmed_at=now)

    def _leave_point(self, topics: Iterable[str]) -> None:
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


def _is_believed(old: Route, data: TopicRouteData | None, answer: Answer) -> bool:
    """Whether the server may say so: it is warm, had told the old route in this very run, or takes no instance away."""
    if answer.is_warm or old.run == answer.run:
        return True
    return data is not None and _instances(old.data) <= _instances(data)


def _instances(data: TopicRouteData) -> set[tuple[str, int]]:
    return {(group.broker_name, broker_id) for group in data.broker_datas for broker_id in group.broker_addrs}
