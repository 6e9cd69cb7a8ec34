"""Removals of brokers: which brokers are silent, what a leaving broker changes, and the removal itself."""

from typing import Final, NamedTuple

from namesrv.routeinfo.acting_master import loses_write
from namesrv.routeinfo.tables.effects import Evicted, Fenced, MinBrokerIdChanged, Unregistered
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo, Reason, RouteOptions
from namesrv.routeinfo.tables.route_tables import Changes, RouteTables
from namesrv.routeinfo.tables.rows import row_with
from namesrv.routeinfo.topics import plan_perms
from namesrv.routeinfo.write_section import WriteSection
from namesrv_remoting.bodies.base import Steps, chunked
from namesrv_remoting.bodies.route import BrokerData
from namesrv_remoting.codes import PERM_WRITE

# Brokers searched between two yields: about half a millisecond.
_CHUNK_BROKERS: Final = 1_000


def silent_brokers(tables: RouteTables, now: float) -> Steps[dict[BrokerAddrInfo, float]]:
    """Return the brokers without a heartbeat within their expiry, longest overdue first, and their last heartbeats.

    A broker may be silent for exactly its expiry; the first instant after that the broker is due. Checking all of ten
    thousand brokers is quicker than keeping their deadlines in order. No object is made for each broker: thousands of
    new ones would cause garbage collections, which take longer than the search.
    """
    table = tables.broker_live_table
    seen_at: dict[BrokerAddrInfo, float] = {}
    ends_at: dict[BrokerAddrInfo, float] = {}
    for keys in chunked(list(table), _CHUNK_BROKERS):
        for key in keys:
            live = table.get(key)
            if live is not None and (ends := live.expires_at()) < now:
                seen_at[key], ends_at[key] = live.last_update, ends
        yield
    return {key: seen_at[key] for key in sorted(ends_at, key=ends_at.__getitem__)}


class Removal(NamedTuple):
    """The removal of a broker, with the value of its live entry by which the removal was decided.

    A removal is stale, and ignored, once the live entry has another value; None stands for any value.
    """

    key: BrokerAddrInfo
    reason: Reason
    generation: int | None = None
    broker_name: str | None = None
    connection_id: int | None = None
    last_update: float | None = None
    # The number of the scan that found a silent broker.
    scan: int | None = None

    def is_stale(self, live: BrokerLiveInfo) -> bool:
        """True if the broker's live entry is not that by which the removal was decided."""
        decided = (self.generation, self.broker_name, self.connection_id, self.last_update)
        actual = (live.generation, live.broker_name, live.connection_id, live.last_update)
        return any(value is not None and value != now for value, now in zip(decided, actual, strict=True))


def remove(section: WriteSection, removal: Removal) -> Steps[bool]:
    """Remove a live broker, unless the removal is stale by then; return True if the broker is removed.

    Heartbeats and unchanged registrations may come before and while the removal is planned.
    """
    tables, key, reason = section.tables, removal.key, removal.reason
    changes = yield from plan_removal(tables, key, tables.broker_live_table[key], section.rules.options)
    prepared = yield from tables.prepare(changes)
    live = tables.broker_live_table[key]
    if removal.is_stale(live):
        section.effects.append(Fenced(key, live, reason, removal.scan))
        return False
    if reason == "unregistered":
        section.effects.append(Unregistered(key, live))
    revision = section.apply(prepared, live.broker_name)
    silent_seconds = section.rules.now() - live.last_update
    section.effects.append(Evicted(key, live, reason, silent_seconds, removal.scan, revision))
    write_removal = tables.write_removed.get(live.broker_name)
    if write_removal is not None:
        is_last = live.broker_name not in tables.broker_addr_table
        after = write_removal.after_departure(live, reason, is_last=is_last)
        section.set_write_removal(live.broker_name, after, "unregistered")
    if changes.notice is not None:
        section.effects.append(changes.notice)
    return True


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
            name,
            min(addrs),
            addrs[min(addrs)],
            recipients,
            offline_broker_addr=key.broker_addr,
            offline_advertised=live.advertised,
        )
    return changes
