"""Interning of routes: the routes of many topics share what they have in common.

A cluster has a few brokers and thousands of topics, most of them with the same queues on all brokers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData

# So many values may be remembered before those that no route has any more are looked for.
_MIN_SWEEP: Final = 256


class RouteInterner:
    """Equal parts of routes become the same object; a route is put into an order of its own besides.

    Servers list brokers as they like: sorted by name, two routes that say the same are equal.

    What no live route has any more is forgotten whenever the tables have doubled: brokers and routes that come and go
    for years leave nothing behind.
    """

    def __init__(self, live: Callable[[], Iterable[TopicRouteData]]) -> None:
        self._live = live
        self._sweep_at = _MIN_SWEEP
        self._brokers: dict[object, BrokerData] = {}
        self._queues: dict[QueueData, QueueData] = {}
        # by the identities of the parts, which the tables above keep alive
        self._broker_rows: dict[tuple[int, ...], tuple[BrokerData, ...]] = {}
        self._queue_rows: dict[tuple[int, ...], tuple[QueueData, ...]] = {}
        self._routes: dict[tuple[int, int], TopicRouteData] = {}
        # what was asked last: topics that were pulled together often have the very same route
        self._last: tuple[TopicRouteData, TopicRouteData] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._tables))

    def __repr__(self) -> str:
        return f"<RouteInterner [{len(self)} shared]>"

    def shared(self, data: TopicRouteData) -> TopicRouteData:
        """An equal route, in order, made of shared parts."""
        if self._last is not None and self._last[0] is data:
            return self._last[1]
        if len(self) > self._sweep_at:
            self._sweep()
        found = self._interned(data)
        self._last = (data, found)
        return found

    def _interned(self, data: TopicRouteData) -> TopicRouteData:
        brokers = self._broker_row(data.broker_datas)
        queues = self._queue_row(data.queue_datas)
        if _has_more(data):
            return TopicRouteData(
                brokers,
                queues,
                data.filter_server_table,
                data.order_topic_conf,
                data.topic_queue_mapping_by_broker or None,
            )
        key = (id(brokers), id(queues))
        known = self._routes.get(key)
        return known if known is not None else self._routes.setdefault(key, TopicRouteData(brokers, queues))

    def _broker_row(self, datas: Sequence[BrokerData]) -> tuple[BrokerData, ...]:
        row = tuple(self._broker(data) for data in sorted(datas, key=lambda data: data.broker_name))
        return self._broker_rows.setdefault(tuple(map(id, row)), row)

    def _queue_row(self, datas: Sequence[QueueData]) -> tuple[QueueData, ...]:
        queues = self._queues
        row = tuple(queues.setdefault(data, data) for data in sorted(datas, key=lambda data: data.broker_name))
        return self._queue_rows.setdefault(tuple(map(id, row)), row)

    def _broker(self, data: BrokerData) -> BrokerData:
        addresses = tuple(sorted(data.broker_addrs.items()))
        key = (data.cluster, data.broker_name, addresses, data.zone_name, data.enable_acting_master)
        return self._brokers.setdefault(key, data)

    @property
    def _tables(self) -> Sequence[dict[Any, Any]]:
        return self._brokers, self._queues, self._broker_rows, self._queue_rows, self._routes

    def _sweep(self) -> None:
        self._last = None
        for table in self._tables:
            table.clear()
        # as they are, not made anew: they go on sharing their parts with routes to come
        for route in self._live():
            brokers, queues = tuple(route.broker_datas), tuple(route.queue_datas)
            self._broker_rows.setdefault(tuple(id(self._broker(data)) for data in brokers), brokers)
            self._queue_rows.setdefault(tuple(id(self._queues.setdefault(data, data)) for data in queues), queues)
            if not _has_more(route):
                self._routes.setdefault((id(brokers), id(queues)), route)
        self._sweep_at = max(_MIN_SWEEP, 2 * len(self))


def _has_more(data: TopicRouteData) -> bool:
    """Whether the topic has what others do not share."""
    return bool(data.filter_server_table or data.topic_queue_mapping_by_broker) or data.order_topic_conf is not None
