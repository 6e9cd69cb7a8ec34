"""The queues of a topic that a producer may write to and a consumer may read from, including static topics.

The rules are those of Java's `topicRouteData2TopicPublishInfo`, its counterpart for subscriptions and
`ClientMetadata.topicRouteData2EndpointsForStaticTopic`: producers and consumers see the same logical queue of a static
topic while its messages move from broker to broker.
"""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from namesrv_client.routes.route import NoQueueError
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_remoting.codes import MASTER_ID, PERM_READ, PERM_WRITE


class MessageQueue(NamedTuple):
    """One queue of one topic on one broker group."""

    topic: str
    broker_name: str
    queue_id: int


class QueueRange(NamedTuple):
    """Queues of one broker with consecutive ids; a range stays small in memory even if a typo makes it a billion."""

    broker_name: str
    first_id: int
    size: int


Mappings = Mapping[str, TopicQueueMappingInfo]

# the prefix of the broker names in the logical queues of a static topic
LOGICAL_PREFIX: Final = "__syslo__"
GLOBAL_SCOPE: Final = "__global__"
# the broker name of a logical queue that is mapped to no broker
NO_BROKER: Final = "__syslo__none__"


def logical_broker(scope: str) -> str:
    """The broker name in the logical queues of a static topic."""
    return LOGICAL_PREFIX + (scope.removeprefix("__") if scope == GLOBAL_SCOPE else scope)


def logical_ranges(mappings: Mappings) -> Iterator[QueueRange]:
    """All logical queues of a static topic, ordered by id, including those that are mapped to no broker."""
    # scope -> number of its queues
    totals: dict[str, int] = {}
    for info in mappings.values():
        scope = info.scope or GLOBAL_SCOPE
        totals[scope] = max(totals.get(scope, 0), info.total_queues)
    if len(totals) == 1:
        [(scope, total)] = totals.items()
        yield QueueRange(logical_broker(scope), 0, total)
        return
    for number in range(max(totals.values(), default=0)):
        for scope in sorted(totals):
            if number < totals[scope]:
                yield QueueRange(logical_broker(scope), number, 1)


def endpoint(queue: MessageQueue, mappings: Mappings) -> str:
    """The broker of a logical queue: the mapping with the newest epoch counts, among equal ones the last."""
    newest: TopicQueueMappingInfo | None = None
    for info in mappings.values():
        scope = info.scope or GLOBAL_SCOPE
        if queue.broker_name == logical_broker(scope) and queue.queue_id in (info.curr_id_map or {}):
            newest = info if newest is None or info.epoch >= newest.epoch else newest
    return NO_BROKER if newest is None or newest.bname is None else newest.bname


# Number of senders whose position is kept. Each request of a web server may be a sender of its own; beyond this number
# all senders begin again at a random queue.
MAX_SENDERS: Final = 1_000
# the most digits of a number that fits into Java's int
_COUNT_DIGITS: Final = 10


class PublishInfo:
    """The queues of one topic that a producer may write to, and the position of each sender in their cycle."""

    __slots__ = ("_bases", "_ends", "_names", "_positions", "count", "is_ordered", "ranges", "topic")

    def __init__(self, topic: str, ranges: Iterable[QueueRange], *, is_ordered: bool = False) -> None:
        self.topic = topic
        self.ranges = tuple(each for each in ranges if each.size > 0)
        # True if the queues come from the order configuration and not from live brokers
        self.is_ordered = is_ordered
        # three values of each range: its broker, the position after its last queue, and position minus queue id
        self._names = tuple(each.broker_name for each in self.ranges)
        self._ends = tuple(accumulate(each.size for each in self.ranges))
        self._bases = tuple(end - each.size - each.first_id for each, end in zip(self.ranges, self._ends, strict=True))
        # number of queues
        self.count = self._ends[-1] if self._ends else 0
        # sender (thread or task) -> position of its last queue
        self._positions: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<PublishInfo [{self.topic} | {self.count} queues]>"

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """All queues, in order."""
        return tuple(_each(self.topic, self.ranges))

    def select(self, sender: int, last_broker: str | None = None) -> MessageQueue:
        """The sender's next queue, if possible on another broker than `last_broker`. Raises NoQueueError."""
        if last_broker is not None:
            queue = self.select_where(sender, lambda name: name != last_broker)
            if queue is not None:
                return queue
        try:
            position = self._positions[sender] + 1
            if position >= self.count:
                position = 0
        except KeyError:
            position = self._begin()
        self._positions[sender] = position
        number = bisect_right(self._ends, position)
        return MessageQueue(self.topic, self._names[number], position - self._bases[number])

    def select_where(self, sender: int, passes: Callable[[str], bool]) -> MessageQueue | None:
        """The sender's next queue on a broker that passes; None, without a change of position, if no broker does."""
        last = self._positions.get(sender)
        position = self._begin() if last is None else (last + 1) % self.count
        # One round more than there are ranges, because the search may begin in the middle of a range.
        for _ in range(len(self._names) + 1):
            number = bisect_right(self._ends, position)
            if passes(self._names[number]):
                self._positions[sender] = position
                return MessageQueue(self.topic, self._names[number], position - self._bases[number])
            # Skip the remaining queues of this range.
            position = self._ends[number] % self.count
        return None

    def _begin(self) -> int:
        """A random first position, so that senders do not all begin with the same queue."""
        if not self.count:
            raise NoQueueError(f"topic {self.topic} has no queue that can be written to")
        if len(self._positions) >= MAX_SENDERS:
            self._positions.clear()
        return random.randrange(self.count)


def publish_info(topic: str, route: TopicRouteData) -> PublishInfo:
    """The queues that a producer may write to."""
    if route.order_topic_conf:
        return PublishInfo(topic, _ordered(route.order_topic_conf), is_ordered=True)
    if route.order_topic_conf is None and route.topic_queue_mapping_by_broker:
        return PublishInfo(topic, logical_ranges(route.topic_queue_mapping_by_broker))
    masters = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
    rows = [row for row in route.queue_datas if row.perm & PERM_WRITE and row.broker_name in masters]
    rows.sort(key=lambda row: row.broker_name)
    return PublishInfo(topic, (QueueRange(row.broker_name, 0, row.write_queue_nums) for row in rows))


def _ordered(conf: str) -> Iterator[QueueRange]:
    """The queues of `brokerA:4;brokerB:2`, in the listed order, regardless of permissions, masters and existence."""
    for part in conf.split(";"):
        name, _, count = part.strip().partition(":")
        if name and count.strip().isdecimal() and len(count) <= _COUNT_DIGITS:
            yield QueueRange(name, 0, int(count))


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues that a consumer reads from, including those of a group without a master."""
    if route.topic_queue_mapping_by_broker:
        return list(_each(topic, logical_ranges(route.topic_queue_mapping_by_broker)))
    rows = (row for row in route.queue_datas if row.perm & PERM_READ)
    return list(_each(topic, (QueueRange(row.broker_name, 0, row.read_queue_nums) for row in rows)))


def _each(topic: str, ranges: Iterable[QueueRange]) -> Iterator[MessageQueue]:
    for each in ranges:
        for queue_id in range(each.first_id, each.first_id + each.size):
            yield MessageQueue(topic, each.broker_name, queue_id)
