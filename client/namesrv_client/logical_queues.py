"""Which queues has a static topic, and which broker has each of them now?

After `ClientMetadata.topicRouteData2EndpointsForStaticTopic` (section 1.9 of the client reference): a logical queue
stays where it is for producers and consumers while it moves from broker to broker.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from namesrv_client.message_queue import MessageQueue, QueueRun
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo

Mappings = Mapping[str, TopicQueueMappingInfo]

# what stands for a broker in the queues of a static topic
LOGICAL_PREFIX: Final = "__syslo__"
GLOBAL_SCOPE: Final = "__global__"
# which broker has a logical queue that no broker has
NO_BROKER: Final = "__syslo__none__"


def logical_broker(scope: str) -> str:
    """The name that stands for a broker in the queues of a static topic."""
    return LOGICAL_PREFIX + (scope.removeprefix("__") if scope == GLOBAL_SCOPE else scope)


def logical_runs(mappings: Mappings) -> Iterator[QueueRun]:
    """All logical queues, by id, whether a broker has them or not."""
    totals = _totals(mappings.values())
    if len(totals) == 1:
        [(scope, total)] = totals.items()
        yield QueueRun(logical_broker(scope), 0, total)
        return
    for number in range(max(totals.values(), default=0)):
        for scope in sorted(totals):
            if number < totals[scope]:
                yield QueueRun(logical_broker(scope), number, 1)


def _totals(infos: Iterable[TopicQueueMappingInfo]) -> dict[str, int]:
    """How many queues each scope has."""
    totals: dict[str, int] = {}
    for info in infos:
        scope = _scope(info)
        totals[scope] = max(totals.get(scope, 0), info.total_queues)
    return totals


def _scope(info: TopicQueueMappingInfo) -> str:
    return info.scope or GLOBAL_SCOPE


def endpoint(queue: MessageQueue, mappings: Mappings) -> str:
    """The broker that has a logical queue: of several that say so the one with the newest epoch, the last if equal."""
    newest: TopicQueueMappingInfo | None = None
    for info in mappings.values():
        if queue.broker_name == logical_broker(_scope(info)) and queue.queue_id in (info.curr_id_map or {}):
            newest = info if newest is None or info.epoch >= newest.epoch else newest
    return NO_BROKER if newest is None or newest.bname is None else newest.bname


def endpoints(topic: str, mappings: Mappings) -> dict[MessageQueue, str]:
    """Each logical queue of a topic and the broker that has it."""
    queues = (
        MessageQueue(topic, run.broker_name, number)
        for run in logical_runs(mappings)
        for number in range(run.first_id, run.first_id + run.size)
    )
    return {queue: endpoint(queue, mappings) for queue in queues}
