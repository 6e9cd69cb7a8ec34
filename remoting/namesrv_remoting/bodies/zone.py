"""A route as a client in a zone sees it."""

from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.codes import MASTER_ID


def in_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """Its zone's groups, and those whose master is down wherever they are, as RocketMQ's NameServer filters."""
    zone = zone_name.casefold()
    kept = [
        group
        for group in route.broker_datas
        if (group.zone_name or "").casefold() == zone or MASTER_ID not in group.broker_addrs
    ]
    names = {group.broker_name for group in kept}
    addrs = {addr for group in kept for addr in group.broker_addrs.values()}
    return TopicRouteData(
        kept,
        [queues for queues in route.queue_datas if queues.broker_name in names],
        {addr: servers for addr, servers in route.filter_server_table.items() if addr in addrs},
        route.order_topic_conf,
        route.topic_queue_mapping_by_broker,
    )
