"""How do the routes of many topics share what they have in common?

A cluster has a few brokers and thousands of topics, most of them with the same queues on all brokers.
"""

from collections.abc import Sequence
from typing import Final

from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData

# Values remembered before all are forgotten: routes that live on keep sharing, new ones share among themselves.
MAX_SHARED: Final = 10_000


class RouteInterner:
    """Equal parts of routes become the same object; a route is put into an order of its own besides.

    Servers list brokers as they like: sorted by name, two routes that say the same are equal.
    """

    def __init__(self, limit: int = MAX_SHARED) -> None:
        self._limit = limit
        self._brokers: dict[object, BrokerData] = {}
        self._queues: dict[QueueData, QueueData] = {}
        # by the identities of the parts, which the tables above keep alive
        self._broker_rows: dict[tuple[int, ...], tuple[BrokerData, ...]] = {}
        self._queue_rows: dict[tuple[int, ...], tuple[QueueData, ...]] = {}
        self._routes: dict[tuple[int, int], TopicRouteData] = {}
        # what was asked last: topics that were pulled together often have the very same route
        self._last: tuple[TopicRouteData, TopicRouteData] | None = None

    def __len__(self) -> int:
        return len(self._brokers) + len(self._queues) + len(self._broker_rows) + len(self._queue_rows)

    def __repr__(self) -> str:
        return f"<RouteInterner [{len(self)} shared]>"

    def shared(self, data: TopicRouteData) -> TopicRouteData:
        """An equal route, in order, made of shared parts."""
        if self._last is not None and self._last[0] is data:
            return self._last[1]
        if len(self) > self._limit:
            self._forget()
        brokers = self._broker_row(data.broker_datas)
        queues = self._queue_row(data.queue_datas)
        if data.filter_server_table or data.order_topic_conf is not None or data.topic_queue_mapping_by_broker:
            found = TopicRouteData(
                brokers,
                queues,
                data.filter_server_table,
                data.order_topic_conf,
                data.topic_queue_mapping_by_broker or None,
            )
        else:
            key = (id(brokers), id(queues))
            known = self._routes.get(key)
            found = known if known is not None else self._routes.setdefault(key, TopicRouteData(brokers, queues))
        self._last = (data, found)
        return found

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

    def _forget(self) -> None:
        self._last = None
        for table in (self._brokers, self._queues, self._broker_rows, self._queue_rows, self._routes):
            table.clear()
