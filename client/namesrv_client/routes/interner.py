"""The interner of routes: equal parts of routes become one object, so that a large cache stays small."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData

T = TypeVar("T")
Part = TypeVar("Part", BrokerData, QueueData)

# With fewer shared parts than this, parts that no route has any more are not looked for.
_MIN_SWEEP: Final = 256


class RouteInterner:
    """Makes equal parts of routes the same object, because a cluster has few brokers and thousands of similar topics.

    Servers list brokers in any order; sorting them by name makes routes with equal content equal. Parts that no live
    route has any more are removed whenever the table has doubled, so that the table stays small over years.
    """

    def __init__(self, live: Callable[[], Iterable[TopicRouteData]]) -> None:
        # returns the routes whose parts are still needed
        self._live = live
        # number of shared parts above which the table is searched for parts that no route has any more
        self._sweep_at = _MIN_SWEEP
        # Brokers and queues by their content; tuples of them, and routes, by the identities of their parts, which the
        # table keeps alive.
        self._parts: dict[object, Any] = {}
        # argument and result of the last call: topics of one response often have the same route
        self._last: tuple[TopicRouteData, TopicRouteData] | None = None

    def __repr__(self) -> str:
        return f"<RouteInterner [{len(self._parts)} parts]>"

    def shared(self, data: TopicRouteData) -> TopicRouteData:
        """An equal route, with sorted brokers, made of shared parts."""
        if self._last is not None and self._last[0] is data:
            return self._last[1]
        if len(self._parts) > self._sweep_at:
            self._sweep()
        shared = self._shared_route(data)
        self._last = (data, shared)
        return shared

    def _sweep(self) -> None:
        """Keep only the parts of live routes."""
        self._parts.clear()
        for route in self._live():
            self._shared_route(route)
        self._sweep_at = max(_MIN_SWEEP, 2 * len(self._parts))

    def _shared_route(self, data: TopicRouteData) -> TopicRouteData:
        """The shared route with this content; `data` itself if it is sorted and the first with this content."""
        brokers = self._shared_parts(data.broker_datas, _broker_key)
        queues = self._shared_parts(data.queue_datas, _queue_key)
        route = data
        if data.broker_datas is not brokers or data.queue_datas is not queues:
            mappings = data.topic_queue_mapping_by_broker or None
            route = TopicRouteData(brokers, queues, data.filter_server_table, data.order_topic_conf, mappings)
        if route.filter_server_table or route.topic_queue_mapping_by_broker or route.order_topic_conf is not None:
            # Such a route belongs to one topic only.
            return route
        return self._first_with((TopicRouteData, id(brokers), id(queues)), route)

    def _shared_parts(self, parts: Sequence[Part], key: Callable[[Part], object]) -> Sequence[Part]:
        """The shared sequence of the sorted, shared parts; `parts` itself if it is such a tuple and the first one."""
        in_order = sorted(parts, key=lambda part: part.broker_name)
        shared = tuple(self._first_with(key(part), part) for part in in_order)
        return self._first_with(tuple(map(id, shared)), parts if parts == shared else shared)

    def _first_with(self, key: object, value: T) -> T:
        """The value that the table has for a key; a new key gets the given value."""
        first: T = self._parts.setdefault(key, value)
        return first


def _broker_key(data: BrokerData) -> object:
    addresses = tuple(sorted(data.broker_addrs.items()))
    return data.cluster, data.broker_name, addresses, data.zone_name, data.enable_acting_master


def _queue_key(data: QueueData) -> object:
    return data
