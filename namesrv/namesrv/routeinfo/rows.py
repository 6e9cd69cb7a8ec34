"""Rows of the topic table, shared by topics, and the changes of them.

Nearly all topics of a broker have the same queues on the same brokers, and get others together. So topics that made the
same step share one row object, and what a change means is worked out once for a row, and not for each topic. What holds
of it, and what tests/namesrv/routeinfo/test_rows.py shows:

1. Topics that share a row have the same queues. A row's queues never change: another row takes its place.
2. A change gives new rows to all topics whose routes change, even if their queues stay the same, and to no other.
3. Topics that shared a row before a change, and make the same step, share one after it.
4. `RowChanges.batches` has each topic of `RowChanges.rows` once, in the same order, and with its row before and after.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter, is_
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from namesrv_remoting.bodies.route import BrokerData, QueueData

S = TypeVar("S", bound=Hashable)

_broker_name: Final = attrgetter("broker_name")

# Topics worked out between two yields: about a millisecond.
CHUNK_TOPICS: Final = 1000
# Steps of rows that are remembered, since other topics may make the same: to free them takes a millisecond or two.
MOST_STEPS: Final = 5 * CHUNK_TOPICS


# The queues of one topic, ordered by broker name.
QueueRow = tuple[QueueData, ...]


class TopicRow(msgspec.Struct, gc=False, eq=False):
    """A row of the topic table: one object for all topics that got the same queues by the same step of one change.

    So a million topics fit, and none needs a number or an answer of its own. Nothing in it can refer to a row, so that
    the garbage collector need not know it. A topic with static mappings shares its row with no other.
    """

    queues: QueueRow
    # the last change of these topics' routes, 0 until that is made; every change of a route gives it a new row
    revision: int = 0
    # The encoded answers to questions for these topics, see route_cache and fast_path: bytes, and tuples and lists of
    # those. None: there is none yet, or it depends on more than the row.
    json: Any = None
    native: Any = None


def queues_of(row: TopicRow | None) -> QueueRow:
    """The queues of a topic, none if it has no row."""
    return () if row is None else row.queues


class SharedStep(NamedTuple):
    """Topics that had the same row before a change and have the same one after it; None: no row."""

    topics: Sequence[str]
    before: TopicRow | None
    after: TopicRow | None


def shared_steps(
    topics: Sequence[str], befores: Sequence[TopicRow | None], afters: Sequence[TopicRow | None]
) -> Sequence[SharedStep]:
    """Topics by their rows before and after a change; nearly always one step for all."""
    first_before, first_after = befores[0], afters[0]
    if all(map(is_, befores, repeat(first_before))) and (
        afters is befores or all(map(is_, afters, repeat(first_after)))
    ):
        return (SharedStep(topics, first_before, first_after),)
    pairs = zip(map(id, befores), map(id, afters), strict=True)
    topics_of: dict[tuple[int, int], list[str]] = {}
    steps: list[SharedStep] = []
    for topic, pair, before, after in zip(topics, pairs, befores, afters, strict=True):
        if pair in topics_of:
            topics_of[pair].append(topic)
        else:
            topics_of[pair] = [topic]
            steps.append(SharedStep(topics_of[pair], before, after))
    return steps


class StepsOfRows(Generic[S]):
    """The row that follows a row, worked out once for all topics that share it: `step` is called for a new pair only.

    What follows may depend on more than the row, the second argument. Rows are remembered by their ids, and kept, so
    that no id stands for two of them.
    """

    def __init__(self, step: Callable[[TopicRow | None, S], TopicRow | None]) -> None:
        self._step = step
        # (id of a row, what else the step depends on) -> the row, and the one that follows
        self._known: dict[tuple[int, S], tuple[TopicRow | None, TopicRow | None]] = {}

    def __repr__(self) -> str:
        return f"<StepsOfRows [{len(self._known)} steps]>"

    def after(self, row: TopicRow | None, also: S) -> TopicRow | None:
        """The row that follows; the same row, if nothing changes."""
        known = self._known.get((id(row), also))
        if known is None:
            known = self._known[id(row), also] = row, self._step(row, also)
        return known[1]

    def forget_many(self) -> None:
        """Forget all steps if there are too many of them."""
        if len(self._known) > MOST_STEPS:
            self._known.clear()


def renewal_of_rows() -> StepsOfRows[None]:
    """Steps to new rows with the same queues: the routes change with what is in no row."""
    return StepsOfRows(lambda row, _: None if row is None else TopicRow(row.queues))


@dataclass(slots=True)
class RowChanges:
    """The rows of all topics whose routes a change touches. Frozen as soon as it is applied."""

    # topic (the table's own string) -> its row after the change, always a new one (None: it has none)
    rows: dict[str, TopicRow | None] = field(default_factory=dict)
    # the same topics by their rows, at most CHUNK_TOPICS in each batch
    batches: list[Sequence[SharedStep]] = field(default_factory=list)
    # broker name -> its group (None: there was none), of every group that changed
    groups_before: dict[str, BrokerData | None] = field(default_factory=dict)
    # the rows of `rows`, each seldom more than once; and the topics that have none
    made: list[TopicRow] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def add(self, batch: Sequence[SharedStep]) -> None:
        """Add topics that are not in it yet."""
        for topics, _, after in batch:
            self.rows.update(dict.fromkeys(topics, after))
        self.note(batch)

    def note(self, batch: Sequence[SharedStep]) -> None:
        """Note the steps of topics whose rows are in it."""
        self.batches.append(batch)
        for topics, _, after in batch:
            if after is None:
                self.gone += topics
            elif not self.made or self.made[-1] is not after:
                self.made.append(after)


class QueueStep(NamedTuple):
    """What a step from one row to another means for the indexes of the tables."""

    # broker names that a topic gets and loses
    joined: frozenset[str]
    left: frozenset[str]
    # how many more queues it has then
    more_queues: int


def queue_step(before: TopicRow | None, after: TopicRow | None) -> QueueStep:
    """What the step means."""
    gone, new = difference(queues_of(before), queues_of(after))
    names_gone, names_new = frozenset(map(_broker_name, gone)), frozenset(map(_broker_name, new))
    return QueueStep(names_new - names_gone, names_gone - names_new, queues_in(new) - queues_in(gone))


def row_with(row: TopicRow | None, broker_name: str, queues: QueueData | None) -> TopicRow | None:
    """The row with other queues of a broker, or without any (None); a row without queues is none."""
    held = queues_of(row)
    at, is_there = place_in(held, broker_name)
    if queues == (held[at] if is_there else None):
        return row
    others = (*held[:at], *(() if queues is None else (queues,)), *held[at + is_there :])
    return TopicRow(others) if others else None


def queues_in(row: QueueRow) -> int:
    """Queues of one topic, on all its brokers; one that is read or written."""
    return sum(max(queues.read_queue_nums, queues.write_queue_nums) for queues in row)


def place_in(row: QueueRow, broker_name: str) -> tuple[int, bool]:
    """Where a broker's queues are in a row, or would be, and whether they are there."""
    at = bisect_left(row, broker_name, key=_broker_name)
    return at, at < len(row) and row[at].broker_name == broker_name


def difference(before: QueueRow, after: QueueRow) -> tuple[QueueRow, QueueRow]:
    """What is only in the one row and what is only in the other, but for queues in between.

    Ten thousand brokers may share a topic, and each that comes or goes changes its row: they are compared as tuples.
    """
    shorter = min(len(before), len(after))
    start = _common(shorter, lambda low, high: before[low:high] == after[low:high])
    before, after = before[start:], after[start:]
    shorter -= start
    end = _common(shorter, lambda low, high: before[-high : -low or None] == after[-high : -low or None])
    return before[: len(before) - end], after[: len(after) - end]


def _common(size: int, are_same: Callable[[int, int], bool]) -> int:
    """How many elements are the same, counted from one end; `are_same` compares those from low to high."""
    same = 0
    while size > same:
        middle = (same + size + 1) // 2
        if are_same(same, middle):
            same = middle
        else:
            size = middle - 1
    return same
