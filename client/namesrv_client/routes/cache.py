"""The cache of routes: what is known of each topic, and what an answer changes. No I/O, no loop."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from namesrv_client.routes.interning import RouteInterner
from namesrv_client.routes.route import Answer, Route, RouteChange, Source, difference, lost_brokers
from namesrv_client.routes.sync_point import SyncPoint
from namesrv_remoting.bodies.route import BrokerData, TopicRouteData
from namesrv_runtime.clock import Clock

# what came from no server
_NO_RUN = ""


class SavedRoute(NamedTuple):
    """What is worth keeping over the end of the process."""

    topic: str
    data: TopicRouteData
    # monotonic seconds
    confirmed_at: float


@dataclass(slots=True)
class _Known:
    """One topic."""

    data: TopicRouteData
    source: Source
    # monotonic; the sync point may have confirmed it since
    confirmed_at: float
    absent_since: float | None
    # which told it
    run: str


class RouteCache:
    """Topic to route. Nothing is ever dropped because a server failed, and nothing shrinks on a young server's word.

    A server whose brokers may not all be back yet can add to a known route. It can take something out of it only if it
    had told of that itself: then it is gone, and not still on its way.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._routes: dict[str, _Known] = {}
        # broker name -> its group as the last route told it that had it, and how many routes have it
        self._brokers: dict[str, BrokerData] = {}
        self._uses: dict[str, int] = {}
        self._interner = RouteInterner(lambda: (known.data for known in self._routes.values()))
        self.point = SyncPoint()
        # topics of which the last answer was not believed: they have to be asked about again
        self.doubted: set[str] = set()

    def __repr__(self) -> str:
        return f"<RouteCache [{len(self._routes)} topics | {len(self.doubted)} doubted | {self.point!r}]>"

    def __len__(self) -> int:
        return len(self._routes)

    # -- what is known ------------------------------------------------------------------------------------------------

    def get(self, topic: str) -> Route | None:
        """What is known of a topic."""
        known = self._routes.get(topic)
        return None if known is None else self._route(topic, known)

    def age(self, topic: str) -> float:
        """Seconds since a server last confirmed the topic; infinity when nothing is known of it."""
        known = self._routes.get(topic)
        return float("inf") if known is None else max(0.0, self._clock.monotonic() - self._confirmed_at(topic, known))

    def saved(self) -> list[SavedRoute]:
        """What the next process should know: all routes that exist, as far as anybody knows."""
        return [
            SavedRoute(topic, known.data, self._confirmed_at(topic, known))
            for topic, known in self._routes.items()
            if known.absent_since is None
        ]

    def broker(self, name: str) -> BrokerData | None:
        """A broker group, as the last answer told it that had it."""
        return self._brokers.get(name)

    def topics_of(self, brokers: Collection[str]) -> set[str]:
        """Topics whose route has one of the brokers. Looks through everything."""
        return {
            topic
            for topic, known in self._routes.items()
            if any(data.broker_name in brokers for data in known.data.broker_datas)
        }

    def _route(self, topic: str, known: _Known) -> Route:
        confirmed_at = self._confirmed_at(topic, known)
        return Route(topic, known.data, known.source, confirmed_at, known.absent_since, self._clock)

    def _confirmed_at(self, topic: str, known: _Known) -> float:
        point = self.point
        if point.confirmed_at > known.confirmed_at and topic in point.topics:
            return point.confirmed_at
        return known.confirmed_at

    # -- what changes it ----------------------------------------------------------------------------------------------

    def restore(self, routes: Iterable[SavedRoute]) -> None:
        """Take routes from disk for topics that are not known."""
        for topic, data, confirmed_at in routes:
            if topic not in self._routes:
                self._put(topic, _Known(self._interner.shared(data), "disk", confirmed_at, None, _NO_RUN))

    def forget(self, topic: str) -> None:
        """Drop a topic that nobody uses any more."""
        self.point.drop(topic)
        self.doubted.discard(topic)
        known = self._routes.pop(topic, None)
        if known is not None:
            self._uncount(known.data)

    def apply(self, answer: Answer, source: Source) -> list[RouteChange]:
        """Take in what a server said; how routes differ from before."""
        point, now = self.point, self._clock.monotonic()
        if not point.accepts(answer):
            return []
        if point.begins(answer):
            for topic in list(point.topics):
                self._leave_point(topic)
            point.begin(answer.run)
        changes, doubts = [], []
        for topic, data in answer.routes.items():
            known = self._routes.get(topic)
            if known is not None and not _is_believed(known, data, answer):
                doubts.append(topic)
                continue
            self.doubted.discard(topic)
            change = self._update(topic, data, source, now, answer.run)
            if change is not None:
                changes.append(change)
        self._count_in(answer, doubts, now)
        return changes

    def _update(
        self, topic: str, data: TopicRouteData | None, source: Source, now: float, run: str
    ) -> RouteChange | None:
        known = self._routes.get(topic)
        if data is None:
            return None if known is None else self._absent(topic, known, now)
        data = self._interner.shared(data)
        if known is not None and known.absent_since is None and known.data == data:
            known.source, known.confirmed_at, known.run = source, now, run
            return None
        old = self.get(topic)
        self._put(topic, _Known(data, source, now, None, run))
        return difference(topic, old, self.get(topic))

    def _absent(self, topic: str, known: _Known, now: float) -> RouteChange | None:
        """The last route stays, with a word to it."""
        if known.absent_since is not None:
            known.confirmed_at = now
            return None
        old = self.get(topic)
        known.confirmed_at = known.absent_since = now
        return difference(topic, old, self.get(topic))

    def _count_in(self, answer: Answer, doubts: Collection[str], now: float) -> None:
        """Move the sync point; what was not believed has to be asked about fully, until it is."""
        point = self.point
        is_of_point = answer.run == point.run
        for topic in doubts if is_of_point else answer.routes:
            self._leave_point(topic)
        confirms_all = point.advance(answer, now)
        for topic in doubts:
            point.drop(topic)
        self.doubted.update(doubts)
        if answer.is_conditional and not confirms_all:
            for topic in answer.topics:
                known = self._routes.get(topic)
                if known is not None and topic in point.topics:
                    known.confirmed_at = now

    def _leave_point(self, topic: str) -> None:
        known = self._routes.get(topic)
        if known is not None:
            known.confirmed_at = self._confirmed_at(topic, known)
        self.point.drop(topic)

    # -- brokers by name ----------------------------------------------------------------------------------------------

    def _put(self, topic: str, known: _Known) -> None:
        old = self._routes.get(topic)
        self._routes[topic] = known
        for data in known.data.broker_datas:
            self._brokers[data.broker_name] = data
        if old is None or old.data.broker_datas is not known.data.broker_datas:
            for data in known.data.broker_datas:
                self._uses[data.broker_name] = self._uses.get(data.broker_name, 0) + 1
            if old is not None:
                self._uncount(old.data)

    def _uncount(self, data: TopicRouteData) -> None:
        for broker in data.broker_datas:
            left = self._uses[broker.broker_name] - 1
            if left:
                self._uses[broker.broker_name] = left
            else:
                del self._uses[broker.broker_name], self._brokers[broker.broker_name]


def _is_believed(known: _Known, data: TopicRouteData | None, answer: Answer) -> bool:
    if answer.is_warm or known.run == answer.run:
        return True
    return data is not None and not lost_brokers(known.data, data)
