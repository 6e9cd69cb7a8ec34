"""Which queues may a producer write to, and a consumer read from, and in which order do they come?

After `topicRouteData2TopicPublishInfo` and its sibling for subscriptions (section 1.7 of the client reference).
"""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from namesrv_client.errors import NoQueueError
from namesrv_client.logical_queues import logical_runs
from namesrv_client.message_queue import MessageQueue, QueueRun
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.codes import MASTER_ID, PERM_READ, PERM_WRITE

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
        return tuple(_queues(self.topic, self.runs))

    def select(self, sender: int, last_broker: str | None = None) -> MessageQueue:
        """The sender's next queue, on another broker than the last one if there is one.

        Raises:
            NoQueueError: there is no queue at all.
        """
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
        """The sender's next queue on a broker that passes; None when none does, and it stays its turn.

        Raises:
            NoQueueError: there is no queue at all.
        """
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
    return PublishInfo(
        topic,
        [
            QueueRun(queues.broker_name, 0, queues.write_queue_nums)
            for queues in sorted(route.queue_datas, key=lambda queues: queues.broker_name)
            if queues.perm & PERM_WRITE and queues.broker_name in masters
        ],
    )


def _ordered(conf: str) -> Iterator[QueueRun]:
    """`brokerA:4;brokerB:2`, in the listed order, without a look at permissions, masters or existence."""
    for part in conf.split(";"):
        name, _, count = part.strip().partition(":")
        if name and count.strip().isdecimal() and len(count) <= _COUNT_DIGITS:
            yield QueueRun(name, 0, int(count))


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues that a consumer reads: also those of a group that has only slaves left."""
    if route.topic_queue_mapping_by_broker:
        return list(_queues(topic, logical_runs(route.topic_queue_mapping_by_broker)))
    return list(
        _queues(
            topic,
            [
                QueueRun(queues.broker_name, 0, queues.read_queue_nums)
                for queues in route.queue_datas
                if queues.perm & PERM_READ
            ],
        )
    )


def _queues(topic: str, runs: Iterable[QueueRun]) -> Iterator[MessageQueue]:
    for run in runs:
        for number in range(run.first_id, run.first_id + run.size):
            yield MessageQueue(topic, run.broker_name, number)
