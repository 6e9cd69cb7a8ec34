"""The path of a registration, from its decoded body to the changed tables; `register` is the whole of it.

    processors/broker.py    computes the digest of the request; after an equal one, `refresh` renews the live entry, and
            |               that is all; otherwise the body is decoded, and the access guard checks the topics
            v
    manager.register        takes the write lock, runs `register` in steps of a millisecond, performs the effects
            |
            v
    1. check                refused: an exception, and nothing changes                                      checks.py
    2. displace             squatters, and the broker that had the address before, are removed            eviction.py
    3. plan                 `Changes`: rows, mappings, groups and live entries after the registration
    4. prepare              `Prepared`: with indexes, counts and renewed routes            tables.py, topic_table.py
    5. apply                all tables in one step; the effects describe what has changed

A removal (eviction.py) and an operator's change (manager.py) have the last three phases as well. Other tasks may run
during every phase but the last, but no other change: only steps that need no lock come in between. These are
heartbeats, unchanged registrations, closed connections that move a broker, deadlines that move after a stop of this
process, and renewed routes. So the last phase looks at the live entry again.

The result is that of `RouteInfoManager.registerBroker` of Apache's server, without its faults: a refused registration
changes nothing at all, a displaced master leaves entirely, and a removed write permission does not come back.
"""

from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from namesrv.routeinfo.acting_master import loses_write, registers_without_write
from namesrv.routeinfo.checks import check_registration
from namesrv.routeinfo.eviction import Removal, remove
from namesrv.routeinfo.tables.connections import OtherConnection
from namesrv.routeinfo.tables.effects import Evicted, MinBrokerIdChanged, Registered
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo, RegisterResult, Registration, RouteOptions
from namesrv.routeinfo.tables.route_tables import Changes, Prepared, RouteTables
from namesrv.routeinfo.tables.rows import row_with
from namesrv.routeinfo.takeovers import squats, superseded_entries
from namesrv.routeinfo.topics import plan_perms, topics_dropped
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
    """Remove the brokers in whose places a broker registers, while its connection is open."""
    for removal in _displaced_by(registration, section.tables):
        if not section.rules.is_connected(registration.connection_id):
            return
        yield from remove(section, removal)


def _displaced_by(registration: Registration, tables: RouteTables) -> Iterator[Removal]:
    """Yield the removals of squatters, and of the former broker at the address; each is carried out before the next."""
    for place in registration.displaces:
        key = BrokerAddrInfo(*place)
        squatter = tables.broker_live_table.get(key)
        if squatter is not None and squats(key, squatter, registration):
            yield Removal(key, "superseded", generation=squatter.generation)
    former = tables.broker_live_table.get(registration.key)
    if former is not None and former.broker_name != registration.broker_name:
        # The process at this address was another broker before, whose entry would stay for ever.
        yield Removal(registration.key, "superseded", broker_name=former.broker_name)


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
    # As in Java, the smallest id of an empty group counts as 0: its first member causes a notice only with an id below
    # 0.
    if options.notify_min_broker_id_changed and registration.broker_id < min(addrs_before, default=0):
        changes.notice = _notice(registration, name, addrs)
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


def _notice(registration: Registration, name: str, addrs: Mapping[int, str]) -> MinBrokerIdChanged:
    """Return the notice that the broker has the smallest id of its group: for the other members, or for itself."""
    own = registration.broker_addr
    others = tuple(addr for addr in addrs.values() if addr != own)
    ha_addr = registration.ha_server_addr
    return MinBrokerIdChanged(name, registration.broker_id, own, others or (own,), ha_broker_addr=ha_addr)


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
    before = live_table.get(key)
    live = changes.live[key] = _updated(section, changes.live[key], before, now)
    section.effects.extend(
        Evicted(dropped, live_table[dropped], "superseded", now - live_table[dropped].last_update)
        for dropped in changes.dropped
    )
    if name in tables.write_removed:
        tables.write_removed[name] = tables.write_removed[name].after_registration(registration.broker_id)
    if prepared.topics.row_changes.rows:
        # Two brokers of a group may make routes, a master and a broker with an id below 0: after a registration of one
        # of them, the next registration of the other is applied even if it is unchanged.
        tables.forget_digests((name,))
    section.apply(prepared, name)
    if registration.kind == "full":
        tables.incomplete.discard(key)
    if before is not None:
        _note_former_connection(section, key, before, live.connection_id)
        if registration.connection_id != live.connection_id:
            # The broker stays on a newer connection, see `_updated`.
            other = OtherConnection(registered=True, last_seen=now)
            tables.connections.note_other(key, registration.connection_id, other)
    silent = 0.0 if before is None else now - before.last_update
    deleted = registration.body.deleted_topics if registration.kind == "delta" else ()
    topics = len(registration.body.topic_configs) + len(deleted)
    section.effects.append(Registered(key, live, registration.kind, topics, before is None, silent, before))
    if changes.notice is not None:
        section.effects.append(changes.notice)


def _updated(
    section: WriteSection, planned: BrokerLiveInfo, before: BrokerLiveInfo | None, now: float
) -> BrokerLiveInfo:
    """Return the planned live entry as it is now: with its time, its connection, and the last reported state."""
    on = planned.connection_id
    if before is not None and before.connection_id > on and section.rules.is_connected(before.connection_id):
        # A registration over a newer connection was applied first: the broker stays there when the older connection
        # closes.
        on = before.connection_id
    state, network = None if before is None else before.state, section.rules.network_of(on)
    return replace(planned, last_update=now, connection_id=on, state=state, network=network)


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
