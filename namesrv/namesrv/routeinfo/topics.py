"""Changes of topics and permissions: by registrations, by operators (205, 216, 217, 327), and by masters that leave."""

from collections.abc import Callable, Sequence

from namesrv.routeinfo.tables.records import Registration, RouteOptions
from namesrv.routeinfo.tables.route_tables import Changes, RouteTables
from namesrv.routeinfo.tables.rows import CHUNK_TOPICS, TopicRow, queues_of, row_with
from namesrv_remoting.bodies.base import Steps, chunked
from namesrv_remoting.bodies.route import QueueData
from namesrv_remoting.codes import PERM_WRITE


def plan_delete_topic(tables: RouteTables, topic: str, cluster_name: str | None) -> Steps[Changes]:
    """Plan the removal of a topic with its static mappings; with a cluster, only from that cluster's brokers.

    A broker that still has the topic brings it back with its next full registration, as in Java.
    """
    row = queues_of(tables.topic_queue_table.get(topic))
    topic = tables.topics.names.get(topic, topic)
    leaving = tables.broker_addr_table if cluster_name is None else tables.cluster_addr_table.get(cluster_name, ())
    left = tuple(queues for queues in row if queues.broker_name not in leaving)
    if left == row:
        return Changes()
    changes = Changes({topic: TopicRow(left) if left else None})
    losing = [queues.broker_name for queues in row if queues.broker_name in leaving]
    for names in chunked(losing, CHUNK_TOPICS):
        changes.incomplete += [key for name in names for key, live in tables.brokers_named(name) if live.is_native]
        yield
    return changes


def plan_register_topic(tables: RouteTables, topic: str, queue_datas: Sequence[QueueData]) -> Changes:
    """Replace a topic's queues broker by broker.

    The first unknown broker ends the plan: the queues before it are kept if the topic existed, as in Java.
    """
    before = row = tables.topic_queue_table.get(topic)
    for queues in queue_datas:
        if queues.broker_name not in tables.broker_addr_table:
            if before is None:
                return Changes()
            break
        taken = PERM_WRITE if queues.broker_name in tables.write_removed else 0
        row = row_with(row, queues.broker_name, with_perm(queues, queues.perm & ~taken))
    return (
        Changes()
        if queues_of(row) == queues_of(before)
        else Changes(dict.fromkeys(tables.topics.names_of([topic]), row))
    )


def plan_perms(tables: RouteTables, changes: Changes, broker_name: str, new_perm: Callable[[int], int]) -> Steps[None]:
    """Plan the permission of all topics of a broker; `new_perm` maps the old permission to the new one."""

    def step(row: TopicRow) -> TopicRow:
        return TopicRow(
            tuple(
                with_perm(queues, new_perm(queues.perm)) if queues.broker_name == broker_name else queues
                for queues in row.queues
            )
        )

    return tables.topics.change_each(changes.rows, tables.topics.of_broker.get(broker_name, ()), step)


def with_perm(queues: QueueData, perm: int) -> QueueData:
    """Return the same queues with another permission."""
    read, write, flags = queues.read_queue_nums, queues.write_queue_nums, queues.topic_sys_flag
    return QueueData(queues.broker_name, read, write, perm, flags)


def topics_added(tables: RouteTables, registration: Registration, options: RouteOptions) -> Steps[int]:
    """Return how many topics the broker name would gain; negative if a registration drops more topics than it adds."""
    name = registration.broker_name
    if not registration.makes_routes(tables.addrs_of(name)):
        return 0
    present = tables.topics.of_broker.get(name, {})
    new: set[str] = set()
    for number, topic in enumerate(registration.body.topic_configs, start=1):
        if topic.topic_name not in present:
            new.add(topic.topic_name)
        if number % CHUNK_TOPICS == 0:
            yield
    dropped = yield from topics_dropped(tables, registration, options)
    return len(new) - len(dropped)


def topics_dropped(tables: RouteTables, registration: Registration, options: RouteOptions) -> Steps[set[str]]:
    """Return the topics that a registration drops.

    These are the deleted topics of a delta, and the missing topics of a full registration, if the broker is native, or
    if the option is on and the registration has no static mappings, as in Java.
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
