"""The path of a registration, from its decoded body to the changed tables; `register` is the whole of it.

    processors/broker.py    decodes a request, calls the access guard, then the manager
            |               an unchanged registration (equal digest) only refreshes its live entry: `refresh`
            v
    manager.register        takes the write lock, runs `register` in steps of a millisecond, performs the effects
            |
            v
    1. check                refused: an exception, and nothing changes                                     checks.py
    2. displace             squatters, and the broker that had the address before, are removed           eviction.py
    3. plan                 rows, groups, mappings and the live entry after the registration: `Changes`
    4. prepare              indexes, counts and renewed routes after the changes: `Prepared`          topic_table.py
    5. apply                all tables in one step; the effects describe what has changed

Other tasks may run during every step but the last, but no other change: only steps that need no lock come in between,
which are heartbeats, unchanged registrations, closed connections that move a broker, and renewed routes.

The result is that of `RouteInfoManager.registerBroker` of Apache's server, without its faults: a refused registration
changes nothing at all, a displaced master leaves entirely, and a removed write permission does not come back.
"""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from namesrv.routeinfo.acting_master import loses_write, registers_without_write
from namesrv.routeinfo.checks import check_registration
from namesrv.routeinfo.connections import OtherConnection
from namesrv.routeinfo.effects import Evicted, MinBrokerIdChanged, Registered
from namesrv.routeinfo.eviction import Removal, remove
from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo, RegisterResult, Registration, RouteOptions
from namesrv.routeinfo.rows import row_with
from namesrv.routeinfo.shares import topics_dropped
from namesrv.routeinfo.tables import Changes, Prepared, RouteTables
from namesrv.routeinfo.takeovers import squats, superseded_entries
from namesrv.routeinfo.topics import plan_perms
from namesrv.routeinfo.write_section import WriteSection
from namesrv_remoting.bodies.base import Steps
from namesrv_remoting.bodies.route import BrokerData
from namesrv_remoting.codes import MASTER_ID, PERM_WRITE


def register(section: WriteSection, registration: Registration) -> Steps[RegisterResult]:
    """Take a registration into the tables, in steps; return the addresses of the response.

    If the connection closes meanwhile, the registration is not applied, since no close event would follow; a broker
    that was displaced before stays removed. Raises ResponseError if the registration is refused.
    """
    tables, rules = section.tables, section.rules
    options_version = tables.digests.options_version
    yield from check_registration(section, registration)
    if rules.is_connected(registration.connection_id):
        yield from _displace(section, registration)
    generation = tables.versions.next_generation()
    changes, result = yield from plan_registration(tables, registration, rules.options, rules.now(), generation)
    prepared = yield from tables.prepare(changes)
    if not rules.is_connected(registration.connection_id):
        return RegisterResult()
    _apply(section, registration, prepared)
    tables.digests.keep(registration.key, registration.digest, options_version)
    return result


# -- 2. displace ------------------------------------------------------------------------------------------------------


def _displace(section: WriteSection, registration: Registration) -> Steps[None]:
    """Remove the brokers in whose places a broker registers: squatters, and the former broker at its address."""
    table = section.tables.broker_live_table
    for place in registration.displaces:
        key = BrokerAddrInfo(*place)
        squatter = table.get(key)
        if squatter is not None and squats(key, squatter, registration):
            yield from remove(section, Removal(key, "superseded", generation=squatter.generation))
    key = registration.key
    former = table.get(key)
    is_other = former is not None and former.broker_name != registration.broker_name
    if former is not None and is_other and section.rules.is_connected(registration.connection_id):
        # The process at this address was another broker before, whose entry would stay for ever.
        yield from remove(section, Removal(key, "superseded", broker_name=former.broker_name))


# -- 3. plan ----------------------------------------------------------------------------------------------------------


def plan_registration(
    tables: RouteTables, registration: Registration, options: RouteOptions, now: float, generation: int
) -> Steps[tuple[Changes, RegisterResult]]:
    """Plan the changes of a checked registration, and its response, in steps of a millisecond.

    Live entries that end with the registration are dropped: the former holder of the id, and the broker's own address
    under another cluster.
    """
    name, key = tables.name_of_broker(registration.broker_name), registration.key
    before = tables.broker_addr_table.get(name)
    addrs_before = tables.addrs_of(name)
    addrs = registration.addrs_after(addrs_before)
    changes = Changes(cluster_name=registration.cluster_name)
    changes.groups[name] = BrokerData(
        # The group keeps its first cluster: a broker name is global, as in Java.
        registration.cluster_name if before is None else before.cluster,
        name,
        addrs,
        registration.zone_name,
        registration.enable_acting_master is True,
    )
    changes.dropped.extend(superseded_entries(tables, name, key, addrs_before.get(registration.broker_id)))
    was_master = addrs_before.get(MASTER_ID) == key.broker_addr
    if was_master and loses_write(addrs, enable_acting_master=registration.enable_acting_master is True):
        # The group loses its master as if the broker had left. In Java the write permission stays until the prime slave
        # registers its topics anew, which the heartbeats of an agent do not.
        yield from plan_perms(tables, changes, name, lambda perm: perm & ~PERM_WRITE)
    if registration.makes_routes(addrs_before):
        dropped = yield from topics_dropped(tables, registration, options)
        yield from _plan_topics(tables, registration, changes, dropped)
    changes.live[key] = _live_entry(registration, name, now, generation)
    if registration.body.filter_servers is not None:
        changes.filter_servers[key] = registration.body.filter_servers
    if options.notify_min_broker_id_changed and registration.broker_id < min(addrs_before, default=0):
        # As in Java, the smallest id of an empty group counts as 0: its first member causes a notice only with an id
        # below 0.
        others = tuple(addr for i, addr in addrs.items() if i != registration.broker_id)
        changes.notice = MinBrokerIdChanged(
            name,
            registration.broker_id,
            key.broker_addr,
            others or (key.broker_addr,),
            ha_broker_addr=registration.ha_server_addr,
        )
    return changes, master_of(tables, registration.cluster_name, addrs, registration.broker_id)


def _plan_topics(
    tables: RouteTables, registration: Registration, changes: Changes, dropped: Collection[str]
) -> Steps[None]:
    """Plan the rows and static mappings of a registration that makes routes, and drops topics."""
    name, flag = tables.name_of_broker(registration.broker_name), registration.enable_acting_master
    has_no_write = (
        registers_without_write(registration.broker_id, enable_acting_master=flag) or name in tables.write_removed
    )
    body, rows, topics = registration.body, changes.rows, tables.topics
    yield from topics.plan_queues(rows, name, body.topic_configs, without_perm=PERM_WRITE if has_no_write else 0)
    yield from topics.change_each(rows, dropped, lambda row: row_with(row, name, None))
    yield from topics.plan_mappings(rows, changes.mappings, name, body.mappings)
    if registration.is_native and registration.kind == "full":
        yield from topics.plan_lost_mappings(changes.mappings, name, body.mappings)


def _live_entry(registration: Registration, name: str, now: float, generation: int) -> BrokerLiveInfo:
    return BrokerLiveInfo(
        name,
        registration.broker_id,
        now,
        registration.expiry_seconds,
        registration.body.data_version,
        registration.connection_id,
        registration.ha_server_addr,
        generation,
        registration.agent_id,
        registration.registration_seq,
        registration.is_native,
        account=registration.account,
        advertised=registration.body.advertised,
    )


def master_of(tables: RouteTables, cluster_name: str, addrs: Mapping[int, str], broker_id: int) -> RegisterResult:
    """Return the addresses of the slave's master, if the master is alive in the same cluster."""
    if broker_id == MASTER_ID or MASTER_ID not in addrs:
        return RegisterResult()
    live = tables.broker_live_table.get(BrokerAddrInfo(cluster_name, addrs[MASTER_ID]))
    return RegisterResult() if live is None else RegisterResult(addrs[MASTER_ID], live.ha_server_addr)


# -- 5. apply ---------------------------------------------------------------------------------------------------------


def _apply(section: WriteSection, registration: Registration, prepared: Prepared) -> None:
    """Apply a prepared registration in one step, with all that depends on what happened while it was planned."""
    tables, changes, key, now = section.tables, prepared.changes, registration.key, section.rules.now()
    name, live_table = registration.broker_name, tables.broker_live_table
    before, on = live_table.get(key), registration.connection_id
    if before is not None and before.connection_id > on and section.rules.is_connected(before.connection_id):
        # A registration over a newer connection was applied first: the broker stays there when the older connection
        # closes.
        on = before.connection_id
    state = None if before is None else before.state
    network = section.rules.network_of(on)
    live = changes.live[key] = replace(
        changes.live[key], last_update=now, connection_id=on, state=state, network=network
    )
    section.effects.extend(
        Evicted(dropped, live_table[dropped], "superseded", now - live_table[dropped].last_update)
        for dropped in changes.dropped
    )
    if name in tables.write_removed:
        removal, is_first = tables.write_removed[name], name not in tables.broker_addr_table
        tables.write_removed[name] = removal.after_registration(registration.broker_id, is_first=is_first)
    if prepared.topics.row_changes.rows:
        # Two brokers of a group may make routes, a master and a broker with an id below 0: after a registration of one
        # of them, the next registration of the other is applied even if it is unchanged.
        tables.forget_digests((name,))
    section.apply(prepared, name)
    if registration.kind == "full":
        tables.incomplete.discard(key)
    if before is not None:
        _note_former_connection(section, key, before, on)
        if registration.connection_id != on:
            other = OtherConnection(registered=True, last_seen=now)
            tables.connections.note_other(key, registration.connection_id, other)
    silent = 0.0 if before is None else now - before.last_update
    deleted = registration.body.deleted_topics if registration.kind == "delta" else ()
    topics = len(registration.body.topic_configs) + len(deleted)
    section.effects.append(Registered(key, live, registration.kind, topics, before is None, silent, before))
    if changes.notice is not None:
        section.effects.append(changes.notice)


def _note_former_connection(section: WriteSection, key: BrokerAddrInfo, before: BrokerLiveInfo, on: int) -> None:
    """Remember the former connection of a broker that moved to another one: the newer one may be another process's."""
    if before.connection_id != on and section.rules.is_connected(before.connection_id):
        other = OtherConnection(registered=True, last_seen=before.last_update)
        section.tables.connections.note_other(key, before.connection_id, other)


# -- the short path ---------------------------------------------------------------------------------------------------


def refresh(
    section: WriteSection, key: BrokerAddrInfo, digest: bytes, connection_id: int, registration_seq: int | None
) -> RegisterResult | None:
    """Refresh a live entry if `digest` is that of the last registration; None if the request must be applied."""
    tables, rules = section.tables, section.rules
    live = tables.broker_live_table.get(key)
    if live is None or tables.digests.of_broker.get(key) != digest or connection_id < live.connection_id:
        return None
    if connection_id != live.connection_id and rules.policy.takeover != "allow":
        # The takeover policy decides about a move to another connection.
        return None
    if not rules.is_connected(connection_id):
        # The connection closed after the request was received.
        return None
    now = rules.now()
    refreshed = replace(
        live,
        last_update=now,
        connection_id=connection_id,
        generation=tables.versions.next_generation(),
        registration_seq=live.registration_seq if registration_seq is None else registration_seq,
        network=rules.network_of(connection_id),
    )
    tables.set_live(key, refreshed)
    _note_former_connection(section, key, live, connection_id)
    topics, silent = len(tables.topics.of_broker.get(live.broker_name, ())), now - live.last_update
    registered = Registered(key, refreshed, "unchanged", topics, is_new=False, silent_seconds=silent, before=live)
    section.effects.append(registered)
    return master_of(tables, key.cluster_name, tables.addrs_of(live.broker_name), live.broker_id)
