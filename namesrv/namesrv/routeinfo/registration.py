"""Plans the changes of a registration.

The plan has the effect of `RouteInfoManager.registerBroker` of Apache's server, without its faults: a refused
registration changes nothing at all, a displaced master leaves entirely, and a removed write permission does not come
back.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import Final, TypeAlias

from namesrv.routeinfo.acting_master import makes_routes, registers_without_write
from namesrv.routeinfo.effects import MinBrokerIdChanged
from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo, RegisterResult, Registration, RouteOptions
from namesrv.routeinfo.rows import CHUNK_TOPICS, MOST_STEPS, StepsOfRows, TopicRow, place_in, queues_of, row_with
from namesrv.routeinfo.tables import Changes, RouteTables
from namesrv_remoting.bodies.base import Steps, parts
from namesrv_remoting.bodies.route import BrokerData, QueueData
from namesrv_remoting.codes import MASTER_ID, PERM_WRITE

# Of a registered topic: read queues, write queues, permission, flags.
_Numbers: TypeAlias = tuple[int, int, int, int]
_topic_name: Final = attrgetter("topic_name")
_numbers: Final = attrgetter("read_queue_nums", "write_queue_nums", "perm", "topic_sys_flag")


def plan_registration(
    tables: RouteTables, registration: Registration, options: RouteOptions, now: float, generation: int
) -> Steps[tuple[Changes, RegisterResult]]:
    """Plan the changes of an admitted registration, and its response, in steps of a millisecond.

    Live entries that end with the registration are dropped: the former holder of the id, and the broker's own address
    under another cluster.
    """
    name, key = tables.name_of_broker(registration.broker_name), registration.key
    before = tables.broker_addr_table.get(name)
    addrs_before = {} if before is None else dict(before.broker_addrs)
    holder = addrs_before.get(registration.broker_id)
    addrs = addrs_after(registration, addrs_before)
    changes = Changes(cluster_name=registration.cluster_name)
    changes.groups[name] = BrokerData(
        # The group keeps its first cluster: a broker name is global, as in Java.
        registration.cluster_name if before is None else before.cluster,
        name,
        addrs,
        registration.zone_name,
        registration.enable_acting_master is True,
    )
    changes.dropped.extend(displaced(tables, name, key, holder))
    live = tables.broker_live_table.get(key)
    if creates_routes(registration, addrs):
        is_acting = registers_without_write(
            registration.broker_id, enable_acting_master=registration.enable_acting_master
        )
        taken = PERM_WRITE if is_acting or name in tables.wiped else 0
        yield from _plan_rows(tables, registration, changes, without_perm=taken)
        dropped = yield from topics_dropped(tables, registration, options)
        yield from tables.topics.change_each(changes.rows, dropped, lambda row: row_with(row, name, None))
        yield from _plan_mappings(tables, registration, changes)

    changes.live[key] = BrokerLiveInfo(
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
        None if live is None else live.state,
        registration.account,
    )
    if registration.body.filter_servers is not None:
        changes.filter_servers[key] = registration.body.filter_servers
    if options.notify_min_broker_id_changed and registration.broker_id < min(addrs_before, default=0):
        # As in Java, the smallest id of an empty group counts as 0, so that its first member causes no notice.
        others = tuple(addr for i, addr in sorted(addrs.items()) if i != registration.broker_id)
        changes.notice = MinBrokerIdChanged(
            name,
            registration.broker_id,
            key.broker_addr,
            others or (key.broker_addr,),
            ha_broker_addr=registration.ha_server_addr,
        )
    return changes, master_of(tables, registration.cluster_name, addrs, registration.broker_id)


def addrs_after(registration: Registration, before: Mapping[int, str]) -> dict[int, str]:
    """Return the group's addresses, ordered by id as in responses, after a broker of the group has registered.

    The same address under another id is this broker in its former role, and leaves the group.
    """
    own, broker_id = registration.broker_addr, registration.broker_id
    others = {i: addr for i, addr in before.items() if addr != own and i != broker_id}
    return dict(sorted({**others, broker_id: own}.items()))


def creates_routes(registration: Registration, addrs: Mapping[int, str]) -> bool:
    """True if a registration creates routes: that of a master, or of the prime slave of a group without a master."""
    return makes_routes(registration.broker_id, addrs, enable_acting_master=registration.enable_acting_master)


def displaced(tables: RouteTables, name: str, key: BrokerAddrInfo, holder: str | None) -> Iterator[BrokerAddrInfo]:
    """Yield the displaced brokers; a name is global, so they may have registered under another cluster."""
    for cluster, names in tables.cluster_addr_table.items():
        for addr in {key.broker_addr, holder or key.broker_addr} if name in names else ():
            found = BrokerAddrInfo(cluster, addr)
            live = tables.broker_live_table.get(found)
            if found != key and live is not None and live.broker_name == name:
                yield found


def _plan_rows(tables: RouteTables, registration: Registration, changes: Changes, *, without_perm: int) -> Steps[None]:
    """Plan the rows of the registered topics: the registered queues count, with any DataVersion.

    Java keeps a known topic unchanged while the DataVersion equals the stored one. But after a lost increment, another
    one brings the newest version, and then every full registration would look outdated.
    """
    name, table, rows = tables.name_of_broker(registration.broker_name), tables.topic_queue_table, changes.rows
    # Equal queues share one object.
    queues: dict[_Numbers, QueueData] = {}

    def step(row: TopicRow | None, numbers: _Numbers) -> TopicRow | None:
        read, write, perm, flags = numbers
        if numbers not in queues:
            queues[numbers] = QueueData(name, read, write, perm & ~without_perm, flags)
        return row_with(row, name, queues[numbers])

    # Nearly all topics of a broker make the same step.
    steps = StepsOfRows(step)
    for part in parts(registration.body.topic_configs, CHUNK_TOPICS):
        topics = tables.topics.names_of([*map(_topic_name, part)])
        befores, registered = [*map(table.get, topics)], [*map(_numbers, part)]
        first, numbers = befores[0], registered[0]
        if registered.count(numbers) == len(registered) and all(map(is_, befores, repeat(first))):
            # Nearly always all topics are equal; then no Python code runs per topic.
            after = steps.after(first, numbers)
            if after is not first:
                rows.update(zip(topics, repeat(after)))
            elif rows:
                _put_each(rows, topics, befores, befores)
        else:
            _put_each(rows, topics, befores, [*map(steps.after, befores, registered)])
        steps.forget_many()
        if len(queues) > MOST_STEPS:
            queues.clear()
        if len(part) == CHUNK_TOPICS:
            yield


def _put_each(
    rows: dict[str, TopicRow | None],
    topics: Sequence[str],
    befores: Sequence[TopicRow | None],
    afters: Sequence[TopicRow | None],
) -> None:
    for topic, before, after in zip(topics, befores, afters, strict=True):
        if after is not before:
            rows[topic] = after
        elif topic in rows:
            # A body may name a topic twice: the last entry counts, as in Java.
            del rows[topic]


def topics_dropped(tables: RouteTables, registration: Registration, options: RouteOptions) -> Steps[set[str]]:
    """Return the topics that a registration drops.

    These are the deleted topics of a delta, and the missing topics of a full registration, if the broker is native or
    the option is on.
    """
    known, body = tables.topics.of_broker.get(registration.broker_name, {}), registration.body
    if registration.kind == "delta":
        return known.keys() & body.deleted_topics
    if not registration.is_native and (not options.delete_topic_with_broker_registration or body.mappings):
        return set()
    named, dropped = set(), set()
    for number, topic in enumerate(body.topic_configs, start=1):
        named.add(topic.topic_name)
        if number % CHUNK_TOPICS == 0:
            yield
    for number, name in enumerate(known, start=1):
        if name not in named:
            dropped.add(name)
        if number % CHUNK_TOPICS == 0:
            yield
    return dropped


def _plan_mappings(tables: RouteTables, registration: Registration, changes: Changes) -> Steps[None]:
    """Plan the static mappings of a registration, for topics that have queues on this broker."""
    name, mappings = registration.broker_name, registration.body.mappings
    for number, (topic, mapping) in enumerate(mappings.items(), start=1):
        row = changes.rows.get(topic, tables.topic_queue_table.get(topic))
        if place_in(queues_of(row), name)[1]:
            changes.mappings[topic, name] = mapping
        if number % CHUNK_TOPICS == 0:
            yield
    if registration.is_native and registration.kind == "full":
        table = tables.topics.mappings
        for number, (topic, by_broker) in enumerate(table.items(), start=1):
            if name in by_broker and topic not in mappings:
                changes.mappings[topic, name] = None
            if number % CHUNK_TOPICS == 0:
                yield


def master_of(tables: RouteTables, cluster_name: str, addrs: Mapping[int, str], broker_id: int) -> RegisterResult:
    """Return the addresses of the slave's master, if the master is alive in the same cluster."""
    if broker_id == MASTER_ID or MASTER_ID not in addrs:
        return RegisterResult()
    live = tables.broker_live_table.get(BrokerAddrInfo(cluster_name, addrs[MASTER_ID]))
    return RegisterResult() if live is None else RegisterResult(addrs[MASTER_ID], live.ha_server_addr)
