"""Views of the route tables, as responses need them."""

from collections.abc import Iterable

from namesrv.routeinfo.acting_master import is_shown_as_it_is, shown_to_clients
from namesrv.routeinfo.records import BrokerAddrInfo, RouteOptions
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.bodies.route import BrokerData, TopicRouteData


def topic_route(
    tables: RouteTables, topic: str, options: RouteOptions, order_topic_conf: str | None = None
) -> TopicRouteData | None:
    """Return the route of a topic; None without a route."""
    row = tables.topic_queue_table.get(topic)
    if row is None:
        return None
    groups = [tables.broker_addr_table[queues.broker_name] for queues in row.queues]
    if options.support_acting_master and not is_shown_as_it_is(topic):
        groups = [shown_to_clients(group, queues) for group, queues in zip(groups, row.queues, strict=True)]
    return TopicRouteData(
        groups,
        row.queues,
        _filter_servers(tables, groups),
        order_topic_conf if options.order_message_enable else None,
        tables.topics.mappings.get(topic),
    )


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


def system_topics(tables: RouteTables) -> tuple[list[str], str | None]:
    """Return cluster names, broker names, and the address of one registered broker (304)."""
    names = sorted({*tables.cluster_addr_table, *tables.broker_addr_table})
    for name in sorted(tables.broker_addr_table):
        return names, next(iter(tables.broker_addr_table[name].broker_addrs.values()))
    return names, None
