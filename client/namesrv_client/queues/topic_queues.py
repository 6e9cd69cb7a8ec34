"""The queues of a topic: which a producer may write to and a consumer read from, static topics included.

After `topicRouteData2TopicPublishInfo`, its sibling for subscriptions (section 1.7 of the client reference) and
`ClientMetadata.topicRouteData2EndpointsForStaticTopic` (section 1.9): a logical queue of a static topic stays where it
is for producers and consumers while it moves from broker to broker.
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


class QueueRun(NamedTuple):
    """Neighbouring queues of one broker, whether these are 4 or, by somebody's mistake, a billion."""

    broker_name: str
    first_id: int
    size: int


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
    # scope -> how many queues it has
    totals: dict[str, int] = {}
    for info in mappings.values():
        scope = info.scope or GLOBAL_SCOPE
        totals[scope] = max(totals.get(scope, 0), info.total_queues)
    if len(totals) == 1:
        [(scope, total)] = totals.items()
        yield QueueRun(logical_broker(scope), 0, total)
        return
    for number in range(max(totals.values(), default=0)):
        for scope in sorted(totals):
            if number < totals[scope]:
                yield QueueRun(logical_broker(scope), number, 1)


def endpoint(queue: MessageQueue, mappings: Mappings) -> str:
    """The broker that has a logical queue: of several that say so the one with the newest epoch, the last if equal."""
    newest: TopicQueueMappingInfo | None = None
    for info in mappings.values():
        scope = info.scope or GLOBAL_SCOPE
        if queue.broker_name == logical_broker(scope) and queue.queue_id in (info.curr_id_map or {}):
            newest = info if newest is None or info.epoch >= newest.epoch else newest
    return NO_BROKER if newest is None or newest.bname is None else newest.bname


# Senders whose turn is remembered. Each request of a web server may be a task of its own: beyond this all begin anew.
MAX_SENDERS: Final = 1_000
# of a number that fits into Java's int
_COUNT_DIGITS: Final = 10


class PublishInfo:
    """The queues of one topic that a producer may write to, broker by broker, and whose turn it is for each sender."""

    __slots__ = ("_bases", "_ends", "_names", "_turns", "count", "is_ordered", "runs", "topic")

    def __init__(self, topic: str, runs: Iterable[QueueRun], *, is_ordered: bool = False) -> None:
        self.topic = topic
        self.runs = tuple(run for run in runs if run.size > 0)
        # queues come from the order configuration and not from what is alive
        self.is_ordered = is_ordered
        # of each run: its broker, the position behind its last queue, and what to take from a position to get an id
        self._names = tuple(run.broker_name for run in self.runs)
        self._ends = tuple(accumulate(run.size for run in self.runs))
        self._bases = tuple(end - run.size - run.first_id for run, end in zip(self.runs, self._ends, strict=True))
        # how many queues there are
        self.count = self._ends[-1] if self._ends else 0
        # sender (thread or task) -> the position of the queue that it got last
        self._turns: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<PublishInfo [{self.topic} | {self.count} queues]>"

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """All of them, in their order."""
        return tuple(_each(self.topic, self.runs))

    def select(self, sender: int, last_broker: str | None = None) -> MessageQueue:
        """The sender's next queue, on another broker than the last one if there is one. Raises NoQueueError."""
        if last_broker is not None:
            found = self.select_where(sender, lambda name: name != last_broker)
            if found is not None:
                return found
        try:
            at = self._turns[sender] + 1
            if at >= self.count:
                at = 0
        except KeyError:
            at = self._begin()
        self._turns[sender] = at
        run = bisect_right(self._ends, at)
        return MessageQueue(self.topic, self._names[run], at - self._bases[run])

    def select_where(self, sender: int, passes: Callable[[str], bool]) -> MessageQueue | None:
        """The sender's next queue on a broker that passes; None when none does, and it stays its turn."""
        last = self._turns.get(sender)
        at = self._begin() if last is None else (last + 1) % self.count
        # one more than there are runs: the search may begin in the middle of one
        for _ in range(len(self._names) + 1):
            run = bisect_right(self._ends, at)
            if passes(self._names[run]):
                self._turns[sender] = at
                return MessageQueue(self.topic, self._names[run], at - self._bases[run])
            # none of this broker's
            at = self._ends[run] % self.count
        return None

    def _begin(self) -> int:
        """Everybody begins somewhere else."""
        if not self.count:
            raise NoQueueError(f"topic {self.topic} has no queue that can be written to")
        if len(self._turns) >= MAX_SENDERS:
            self._turns.clear()
        return random.randrange(self.count)


def publish_info(topic: str, route: TopicRouteData) -> PublishInfo:
    """The queues that a producer may write to."""
    if route.order_topic_conf:
        return PublishInfo(topic, _ordered(route.order_topic_conf), is_ordered=True)
    if route.order_topic_conf is None and route.topic_queue_mapping_by_broker:
        return PublishInfo(topic, logical_runs(route.topic_queue_mapping_by_broker))
    masters = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
    rows = [row for row in route.queue_datas if row.perm & PERM_WRITE and row.broker_name in masters]
    rows.sort(key=lambda row: row.broker_name)
    return PublishInfo(topic, (QueueRun(row.broker_name, 0, row.write_queue_nums) for row in rows))


def _ordered(conf: str) -> Iterator[QueueRun]:
    """`brokerA:4;brokerB:2`, in the listed order, without a look at permissions, masters or existence."""
    for part in conf.split(";"):
        name, _, count = part.strip().partition(":")
        if name and count.strip().isdecimal() and len(count) <= _COUNT_DIGITS:
            yield QueueRun(name, 0, int(count))


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues that a consumer reads: also those of a group that has only slaves left."""
    if route.topic_queue_mapping_by_broker:
        return list(_each(topic, logical_runs(route.topic_queue_mapping_by_broker)))
    rows = (row for row in route.queue_datas if row.perm & PERM_READ)
    return list(_each(topic, (QueueRun(row.broker_name, 0, row.read_queue_nums) for row in rows)))


def _each(topic: str, runs: Iterable[QueueRun]) -> Iterator[MessageQueue]:
    for run in runs:
        for number in range(run.first_id, run.first_id + run.size):
            yield MessageQueue(topic, run.broker_name, number)
