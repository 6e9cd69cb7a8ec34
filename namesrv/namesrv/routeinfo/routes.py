"""Routes of topics and the list of system topics, made from the route tables for responses."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from namesrv.routeinfo.acting_master import is_shown_as_it_is, shown_to_clients
from namesrv.routeinfo.tables.records import BrokerAddrInfo, RouteOptions
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv_remoting.address_views import AddressView
from namesrv_remoting.bodies.route import BrokerData, TopicRouteData
from namesrv_remoting.zones import ZoneFallback


@dataclass(slots=True)
class RouteInputs:
    """Everything from which a server makes routes, but for a request's topic, zone and address view.

    No cached response is used after a change of its inputs:

    - `tables`: every topic whose route changes gets a new row, which is part of a response's key.
    - `options`, `zone_fallback`: all responses are dropped (`RouteInfoManager.routes_may_differ`).
    - `order_topic_conf`, zone and view: they are parts of the key.
    """

    tables: RouteTables
    options: RouteOptions
    # Returns the order configuration of a topic.
    order_topic_conf: Callable[[str], str | None]
    # How routes for clients of a zone spill over to other zones.
    zone_fallback: ZoneFallback

    def route(self, topic: str, zone_name: str = "", view: AddressView | None = None) -> TopicRouteData | None:
        """Return the route of a topic for a client in a zone (empty: in no zone); None without a route.

        The view (None: addresses as registered) is applied first: its addresses depend on the registered broker ids,
        which acting masters do not keep, and brokers that it hides do not count when the zone's brokers are chosen.
        """
        route = self._registered(topic)
        if route is not None and view is not None:
            route = view.route(route, self.tables.advertised_of)
        if route is not None and self.options.support_acting_master and not is_shown_as_it_is(topic):
            route = self._with_acting_masters(route)
        if route is not None and zone_name:
            route = self.zone_fallback.route(route, zone_name).route
        return route

    def follow_zones(self, zone_fallback: ZoneFallback) -> None:
        """Use other rules for zones from now on; the caller drops the cached responses."""
        self.zone_fallback = zone_fallback

    def _registered(self, topic: str) -> TopicRouteData | None:
        tables = self.tables
        row = tables.topic_queue_table.get(topic)
        if row is None:
            return None
        groups = [tables.broker_addr_table[queues.broker_name] for queues in row.queues]
        return TopicRouteData(
            groups,
            row.queues,
            _filter_servers(tables, groups),
            self.order_topic_conf(topic) if self.options.order_message_enable else None,
            tables.topics.mappings.get(topic),
        )

    def _with_acting_masters(self, route: TopicRouteData) -> TopicRouteData:
        groups = [
            shown_to_clients(group, queues, self.tables.addrs_of(group.broker_name))
            for group, queues in zip(route.broker_datas, route.queue_datas, strict=True)
        ]
        return msgspec.structs.replace(route, broker_datas=groups)


def _filter_servers(tables: RouteTables, groups: Iterable[BrokerData]) -> dict[str, tuple[str, ...]]:
    if not tables.filter_server_table:
        return {}
    by_addr = {}
    for group in groups:
        for addr in group.broker_addrs.values():
            key = BrokerAddrInfo(group.cluster, addr)
            servers = tables.filter_server_table.get(key)
            # Only the broker's own filter servers count: a group that moved keeps its first cluster's name, where
            # another broker may live now.
            if servers and tables.broker_live_table[key].broker_name == group.broker_name:
                by_addr[addr] = servers
    return by_addr


def system_topics(tables: RouteTables, view: AddressView | None = None) -> tuple[list[str], str | None]:
    """Return cluster names, broker names, and the address of the first broker that the view shows (304)."""
    names = sorted({*tables.cluster_addr_table, *tables.broker_addr_table})
    for name in sorted(tables.broker_addr_table):
        group = tables.broker_addr_table[name]
        shown = group if view is None else view.group(group, tables.advertised_of)
        if shown is not None:
            return names, next(iter(shown.broker_addrs.values()))
    return names, None
