"""Plans of removals: silent brokers, and the changes that a leaving broker causes."""

from namesrv.routeinfo.acting_master import loses_write
from namesrv.routeinfo.effects import MinBrokerIdChanged
from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo, RouteOptions
from namesrv.routeinfo.rows import row_with
from namesrv.routeinfo.tables import Changes, RouteTables
from namesrv.routeinfo.topics import plan_perms
from namesrv_remoting.bodies.base import Steps
from namesrv_remoting.bodies.route import BrokerData
from namesrv_remoting.codes import PERM_WRITE


def silent_brokers(tables: RouteTables, now: float) -> list[tuple[BrokerAddrInfo, BrokerLiveInfo]]:
    """Return the brokers without a heartbeat within their expiry, longest overdue first.

    A broker may be silent for exactly its expiry; the first instant after that the broker is due. Checking all of ten
    thousand brokers is quicker than keeping their deadlines in order.
    """
    due = [(key, live) for key, live in tables.broker_live_table.items() if live.expires_at() < now]
    return sorted(due, key=lambda found: (found[1].expires_at(), found[0]))


def plan_removal(
    tables: RouteTables, key: BrokerAddrInfo, live: BrokerLiveInfo, options: RouteOptions
) -> Steps[Changes]:
    """Plan the removal of one broker, yielding about every millisecond."""
    changes, name = Changes(dropped=[key]), live.broker_name
    group = tables.broker_addr_table[name]
    addrs = {i: addr for i, addr in group.broker_addrs.items() if addr != key.broker_addr}
    if not addrs:
        changes.groups[name] = None
        topics = tables.topics.of_broker.get(name, ())
        yield from tables.topics.change_each(changes.rows, topics, lambda row: row_with(row, name, None))
        return changes
    changes.groups[name] = BrokerData(group.cluster, name, addrs, group.zone_name, group.enable_acting_master)
    if loses_write(addrs, enable_acting_master=group.enable_acting_master):
        yield from plan_perms(tables, changes, name, lambda perm: perm & ~PERM_WRITE)
    if options.notify_min_broker_id_changed and group.enable_acting_master and min(addrs) != min(group.broker_addrs):
        recipients = tuple(addr for _, addr in sorted(addrs.items()))
        changes.notice = MinBrokerIdChanged(
            name, min(addrs), addrs[min(addrs)], recipients, offline_broker_addr=key.broker_addr
        )
    return changes
