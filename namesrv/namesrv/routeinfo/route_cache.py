"""Cache of encoded answers to route questions.

Filled lazily, emptied by topic when a write section publishes. Topics with the same queues have the same answer, so
that ten thousand topics of one broker group cost one encoding and one body.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import repeat
from typing import Final, Generic, TypeVar

from namesrv.routeinfo import views
from namesrv.routeinfo.records import RouteOptions, TopicRow
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.bodies.route import TopicRouteData, in_zone

T = TypeVar("T")

# Bodies held per dialect before the cache is emptied and fills again: only when most topics have queues of their own.
DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
# Zones with a cache of their own; a deployment has a handful, and a hostile peer could name any number.
MAX_ZONES: Final = 32


@dataclass(eq=False, repr=False)
class RouteCache(Generic[T]):
    """Encoded answers in one dialect: `entries[topic]`, or `fill(topic)` when that has none."""

    tables: RouteTables
    options: RouteOptions
    order_topic_conf: Callable[[str], str | None]
    encode: Callable[[TopicRouteData], tuple[T, int]]
    max_bytes: int = DEFAULT_MAX_BYTES

    def __post_init__(self) -> None:
        # topic -> its answer, ready but for the opaque
        self.entries: dict[str, T] = {}
        # zone (casefolded) -> topic -> answer
        self.zones: dict[str, dict[str, T]] = {}
        self._bytes = 0
        # id of a row -> the row (which keeps the id its own) and its answer
        self._by_row: dict[int, tuple[TopicRow, T]] = {}

    def __repr__(self) -> str:
        return f"<RouteCache [{len(self.entries)} topics | {len(self._by_row)} bodies | {len(self.zones)} zones]>"

    def fill(self, topic: str) -> T | None:
        """The answer for a topic that has no entry; None when it has no route."""
        row = self.tables.topic_queue_table.get(topic)
        if row is None:
            return None
        is_shareable = (
            topic not in self.tables.topic_queue_mapping_info_table
            and not self.options.order_message_enable
            and not self.options.support_acting_master
        )
        shared = self._by_row.get(id(row)) if is_shareable else None
        if shared is not None:
            answer = shared[1]
        else:
            route = self.route(topic)
            assert route is not None  # noqa: S101 - it has a row
            answer = self._counted(*self.encode(route))
            if is_shareable:
                self._by_row[id(row)] = (row, answer)
        self.entries[topic] = answer
        return answer

    def fill_zone(self, topic: str, zone_name: str) -> T | None:
        """The answer for a client in a zone."""
        zone = zone_name.casefold()
        known = self.zones.get(zone, {}).get(topic)
        if known is not None:
            return known
        route = self.route(topic)
        if route is None:
            return None
        answer, size = self.encode(in_zone(route, zone_name))
        if zone in self.zones or len(self.zones) < MAX_ZONES:
            self._counted(answer, size)
            self.zones.setdefault(zone, {})[topic] = answer
        return answer

    def route(self, topic: str) -> TopicRouteData | None:
        """The route as it is now."""
        return views.topic_route(self.tables, topic, self.options, self.order_topic_conf(topic))

    def _counted(self, answer: T, size: int) -> T:
        self._bytes += size
        if self._bytes > self.max_bytes:
            self.clear()
            self._bytes = size
        return answer

    def invalidate(self, topics: Collection[str]) -> None:
        """Forget the answers of these topics; where they are more than the answers, all answers."""
        for answers in (self.entries, *self.zones.values()):
            if len(topics) > len(answers):
                answers.clear()
            else:
                # without a step of Python's for each: there may be a hundred thousand
                deque(map(answers.pop, topics, repeat(None)), maxlen=0)
        # the bodies are few and cheap to make; which of them a change touches is not worth knowing
        self._by_row.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.entries.clear()
        self.zones.clear()
        self._by_row.clear()
        self._bytes = 0
