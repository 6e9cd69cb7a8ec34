"""Which queues may a producer write to, and a consumer read from, and in which order do they come?

After `topicRouteData2TopicPublishInfo` and its sibling for subscriptions (section 1.7 and 1.9 of the client reference).
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_remoting.codes import MASTER_ID, PERM_READ, PERM_WRITE

# the broker of a logical queue, and of one that nobody has
LOGICAL_PREFIX: Final = "__syslo__"
GLOBAL_SCOPE: Final = "__global__"
NO_BROKER: Final = "__syslo__none__"
_INDEX_MASK: Final = 0x7FFFFFFF


class MessageQueue(NamedTuple):
    """One queue of one topic on one broker group."""

    topic: str
    broker_name: str
    queue_id: int


class PublishInfo:
    """The queues of one topic that a producer may write to, broker by broker, and whose turn it is for each sender."""

    __slots__ = ("_turns", "is_ordered", "queues", "topic")

    def __init__(self, topic: str, queues: Sequence[MessageQueue], *, is_ordered: bool = False) -> None:
        self.topic = topic
        self.queues = tuple(queues)
        # queues come from the order configuration and not from what is alive
        self.is_ordered = is_ordered
        # sender (thread or task) -> the turn it took last
        self._turns: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<PublishInfo [{self.topic} | {len(self.queues)} queues]>"

    def select(self, sender: int, last_broker: str | None = None) -> MessageQueue:
        """The sender's next queue, on another broker than the last one if there is one.

        Raises:
            IndexError: there is no queue.
        """
        queues = self.queues
        turn = self._turns.get(sender)
        if turn is None:
            # everybody begins somewhere else
            turn = random.randrange(_INDEX_MASK)
        if last_broker is None:
            self._turns[sender] = turn = (turn + 1) & _INDEX_MASK
            return queues[turn % len(queues)]
        for _ in queues:
            turn = (turn + 1) & _INDEX_MASK
            queue = queues[turn % len(queues)]
            if queue.broker_name != last_broker:
                self._turns[sender] = turn
                return queue
        self._turns[sender] = turn = (turn + 1) & _INDEX_MASK
        return queues[turn % len(queues)]

    def select_where(self, sender: int, *filters: Callable[[str], bool]) -> MessageQueue | None:
        """The sender's next queue on a broker that passes all filters; None when none does."""
        queues = self.queues
        turn = self._turns.get(sender)
        if turn is None:
            turn = random.randrange(_INDEX_MASK)
        for _ in queues:
            turn = (turn + 1) & _INDEX_MASK
            queue = queues[turn % len(queues)]
            if all(passes(queue.broker_name) for passes in filters):
                self._turns[sender] = turn
                return queue
        self._turns[sender] = turn
        return None


def publish_info(topic: str, route: TopicRouteData) -> PublishInfo:
    """The queues that a producer may write to."""
    if route.order_topic_conf:
        return PublishInfo(topic, list(_ordered(topic, route.order_topic_conf)), is_ordered=True)
    if route.order_topic_conf is None and route.topic_queue_mapping_by_broker:
        return PublishInfo(topic, logical_queues(topic, route.topic_queue_mapping_by_broker))
    masters = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
    return PublishInfo(
        topic,
        [
            MessageQueue(topic, queues.broker_name, number)
            for queues in sorted(route.queue_datas, key=lambda queues: queues.broker_name)
            if queues.perm & PERM_WRITE and queues.broker_name in masters
            for number in range(queues.write_queue_nums)
        ],
    )


def _ordered(topic: str, conf: str) -> Iterable[MessageQueue]:
    """`brokerA:4;brokerB:2`, in the listed order, without a look at permissions, masters or existence."""
    for part in conf.split(";"):
        name, colon, count = part.strip().partition(":")
        if name and colon and count.strip().isdecimal():
            for number in range(int(count)):
                yield MessageQueue(topic, name, number)


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues that a consumer reads: also those of a group that has only slaves left."""
    if route.topic_queue_mapping_by_broker:
        return logical_queues(topic, route.topic_queue_mapping_by_broker)
    return [
        MessageQueue(topic, queues.broker_name, number)
        for queues in route.queue_datas
        if queues.perm & PERM_READ
        for number in range(queues.read_queue_nums)
    ]


def logical_queues(topic: str, mappings: Mapping[str, TopicQueueMappingInfo]) -> list[MessageQueue]:
    """The logical queues of a static topic, by id; ids that no broker maps stand on the broker NO_BROKER."""
    found = []
    for scope, infos in _by_scope(mappings).items():
        total = max(info.total_queues for info in infos)
        owned: dict[int, str] = {}
        # ascending epoch: the highest one, and the later of two equal ones, is written last
        for info in sorted(infos, key=lambda info: info.epoch):
            for logical_id in info.curr_id_map or {}:
                owned[logical_id] = logical_broker(scope)
        found += [MessageQueue(topic, owned.get(number, NO_BROKER), number) for number in range(total)]
    return sorted(found, key=lambda queue: queue.queue_id)


def _by_scope(mappings: Mapping[str, TopicQueueMappingInfo]) -> dict[str, list[TopicQueueMappingInfo]]:
    scopes: dict[str, list[TopicQueueMappingInfo]] = {}
    for info in mappings.values():
        if info.curr_id_map or info.total_queues:
            scopes.setdefault(info.scope or GLOBAL_SCOPE, []).append(info)
    return scopes


def logical_broker(scope: str) -> str:
    """The name that stands for a broker in the queues of a static topic."""
    return LOGICAL_PREFIX + (scope.removeprefix("__") if scope == GLOBAL_SCOPE else scope)


def endpoints(topic_mappings: Mapping[str, TopicQueueMappingInfo]) -> dict[MessageQueue, str]:
    """Logical queue -> the broker that has it now."""
    found: dict[MessageQueue, str] = {}
    for scope, infos in _by_scope(topic_mappings).items():
        for info in sorted(infos, key=lambda info: info.epoch):
            for logical_id in info.curr_id_map or {}:
                if info.bname is not None:
                    found[MessageQueue(info.topic or "", logical_broker(scope), logical_id)] = info.bname
    return found
