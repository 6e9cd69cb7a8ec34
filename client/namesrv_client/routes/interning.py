"""Interning of routes: the routes of many topics share what they have in common.

A cluster has a few brokers and thousands of topics, most of them with the same queues on all brokers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData

T = TypeVar("T")
Part = TypeVar("Part", BrokerData, QueueData)

# So many values may be remembered before those that no route has any more are looked for.
_MIN_SWEEP: Final = 256


class RouteInterner:
    """Equal parts of routes become the same object; a route is put into an order of its own besides.

    Servers list brokers as they like: sorted by name, two routes that say the same are equal.

    What no live route has any more is forgotten whenever the table has doubled: brokers and routes that come and go
    for years leave nothing behind.
    """

    def __init__(self, live: Callable[[], Iterable[TopicRouteData]]) -> None:
        self._live = live
        self._sweep_at = _MIN_SWEEP
        # Brokers and queues by what they say; rows of them, and routes, by the identities of their parts, which this
        # keeps alive.
        self._parts: dict[object, Any] = {}
        # what was asked last: topics that were pulled together often have the very same route
        self._last: tuple[TopicRouteData, TopicRouteData] | None = None

    def __len__(self) -> int:
        return len(self._parts)

    def __repr__(self) -> str:
        return f"<RouteInterner [{len(self)} shared]>"

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
