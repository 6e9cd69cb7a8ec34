"""Plans of changes of topics and permissions: requests of operators (205, 216, 217, 327), and masters that leave."""

from collections.abc import Callable, Sequence

from namesrv.routeinfo.rows import CHUNK_TOPICS, TopicRow, queues_of, row_with
from namesrv.routeinfo.tables import Changes, RouteTables
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
