"""Plans operators' changes of one topic (216, 217)."""

from collections.abc import Sequence

from namesrv.routeinfo.tables import Changes, RouteTables
from namesrv_remoting.bodies.route import QueueData
from namesrv_remoting.codes import PERM_WRITE


def plan_delete_topic(tables: RouteTables, topic: str, cluster_name: str | None) -> Changes:
    """Drop a topic; with a cluster, only from that cluster's brokers. Its static mappings go with it."""
    changes = Changes()
    row = tables.topic_queue_table.get(topic)
    if row is None:
        return changes
    leaving = None if cluster_name is None else tables.cluster_addr_table.get(cluster_name, frozenset())
    left = () if leaving is None else tuple(queues for queues in row if queues.broker_name not in leaving)
    if len(left) != len(row):
        changes.rows[topic] = left or None
    return changes


def plan_register_topic(tables: RouteTables, topic: str, queue_datas: Sequence[QueueData]) -> Changes:
    """Replace a topic's queues broker by broker.

    The first broker that is not known ends it: what stands before it is kept if the topic existed, as in Java.
    """
    changes = Changes()
    row = {queues.broker_name: queues for queues in tables.topic_queue_table.get(topic, ())}
    existed = bool(row)
    for queues in queue_datas:
        if queues.broker_name not in tables.broker_addr_table:
            if not existed:
                return changes
            break
        taken = PERM_WRITE if queues.broker_name in tables.wiped else 0
        row[queues.broker_name] = QueueData(
            queues.broker_name,
            queues.read_queue_nums,
            queues.write_queue_nums,
            queues.perm & ~taken,
            queues.topic_sys_flag,
        )
    after = tuple(row[name] for name in sorted(row))
    if after and after != tables.topic_queue_table.get(topic):
        changes.rows[topic] = after
    return changes
