"""Rows of the topic table, shared by topics, and the changes of rows.

Nearly all topics of a broker have the same queues on the same brokers, and change together. So topics share row
objects: the row that follows a row in a change is computed once, for all topics that share the row.
tests/namesrv/routeinfo/tables/test_rows.py shows these invariants:

1. Topics that share a row have the same queues. A row's queues never change: another row takes its place.
2. A change gives new rows to all topics whose routes change, even if their queues stay the same, and to no other.
3. Topics that shared a row before a change, and change in the same way, share one after it.
4. `RowChanges.chunks` has each topic of `RowChanges.rows` once, in the same order, and with its row before and after.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter, is_
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from namesrv_remoting.bodies.route import BrokerData, QueueData

S = TypeVar("S", bound=Hashable)

_broker_name: Final = attrgetter("broker_name")

# Topics processed between two yields: about a millisecond.
CHUNK_TOPICS: Final = 1000
# Rows that `NextRows` remembers, since further topics may have the same row; freeing them takes a millisecond or two.
MOST_NEXT_ROWS: Final = 5 * CHUNK_TOPICS


# The queues of one topic, ordered by broker name.
QueueRow = tuple[QueueData, ...]
# Of a registered topic: read queues, write queues, permission, flags.
TopicNumbers = tuple[int, int, int, int]


class TopicRow(msgspec.Struct, gc=False, eq=False):
    """A row of the topic table: one object for all topics that got the same queues in the same way by one change.

    Shared rows make a million topics fit in memory, since no topic needs a revision or a response of its own. The
    values in a row cannot refer to a row, so that the garbage collector need not track rows. A topic with static
    mappings shares its row with no other topic.
    """

    queues: QueueRow
    # The revision of the last change of these topics' routes, 0 until it is set; every change of a route makes a new
    # row.
    revision: int = 0


def queues_of(row: TopicRow | None) -> QueueRow:
    """Return the queues of a topic; empty without a row."""
    return () if row is None else row.queues


class RowChange(NamedTuple):
    """The change of one row: the topics that shared it, and their row after the change; None stands for no row."""

    topics: Sequence[str]
    before: TopicRow | None
    after: TopicRow | None


def grouped_by_row(
    topics: Sequence[str], befores: Sequence[TopicRow | None], afters: Sequence[TopicRow | None]
) -> Sequence[RowChange]:
    """Group topics by their rows before and after a change; nearly always there is one group."""
    first_before, first_after = befores[0], afters[0]
    if all(map(is_, befores, repeat(first_before))) and (
        afters is befores or all(map(is_, afters, repeat(first_after)))
    ):
        return (RowChange(topics, first_before, first_after),)
    pairs = zip(map(id, befores), map(id, afters), strict=True)
    topics_of: dict[tuple[int, int], list[str]] = {}
    changes: list[RowChange] = []
    for topic, pair, before, after in zip(topics, pairs, befores, afters, strict=True):
        if pair in topics_of:
            topics_of[pair].append(topic)
        else:
            topics_of[pair] = [topic]
            changes.append(RowChange(topics_of[pair], before, after))
    return changes


class NextRows(Generic[S]):
    """Computes the row that follows a row once for all topics that share it: `change` is called for new pairs only.

    The row that follows may depend on the second argument of `change` as well. Rows are remembered by their ids, and
    kept alive, so that no id is reused for another row.
    """

    def __init__(self, change: Callable[[TopicRow | None, S], TopicRow | None]) -> None:
        self._change = change
        # (id of a row, second argument) -> the row, and the row that follows.
        self._known: dict[tuple[int, S], tuple[TopicRow | None, TopicRow | None]] = {}

    def __repr__(self) -> str:
        return f"<NextRows [{len(self._known)} known]>"

    def after(self, row: TopicRow | None, also: S) -> TopicRow | None:
        """Return the row that follows; the same row if nothing changes."""
        known = self._known.get((id(row), also))
        if known is None:
            known = self._known[id(row), also] = row, self._change(row, also)
        return known[1]

    def forget_many(self) -> None:
        """Drop all remembered rows if there are too many."""
        if len(self._known) > MOST_NEXT_ROWS:
            self._known.clear()


def renewed_rows() -> NextRows[None]:
    """Return new rows with the same queues, for routes that change although the queues stay."""
    return NextRows(lambda row, _: None if row is None else TopicRow(row.queues))


def rows_with_queues(broker_name: str, *, without_perm: int) -> NextRows[TopicNumbers]:
    """Return the rows with the queues that a broker registers, without these bits of the permission."""
    # Equal queues share one object.
    known: dict[TopicNumbers, QueueData] = {}

    def with_queues(row: TopicRow | None, numbers: TopicNumbers) -> TopicRow | None:
        if numbers not in known:
            if len(known) > MOST_NEXT_ROWS:
                known.clear()
            read, write, perm, flags = numbers
            known[numbers] = QueueData(broker_name, read, write, perm & ~without_perm, flags)
        return row_with(row, broker_name, known[numbers])

    return NextRows(with_queues)


@dataclass(slots=True)
class RowChanges:
    """The new rows of all topics whose routes a change touches. The value is not modified once it is applied."""

    # Topic (the table's own string) -> its row after the change, always a new one (None: the topic has no row).
    rows: dict[str, TopicRow | None] = field(default_factory=dict)
    # The same topics grouped by their rows, at most CHUNK_TOPICS in each chunk.
    chunks: list[Sequence[RowChange]] = field(default_factory=list)
    # Broker name -> its group before (None: it is new), for every group that changed.
    groups_before: dict[str, BrokerData | None] = field(default_factory=dict)
    # The rows in `rows`, seldom with duplicates; and the topics without a row.
    made: list[TopicRow] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def add(self, chunk: Sequence[RowChange]) -> None:
        """Add topics that `rows` does not have yet."""
        for topics, _, after in chunk:
            self.rows.update(dict.fromkeys(topics, after))
        self.note(chunk)

    def note(self, chunk: Sequence[RowChange]) -> None:
        """Note a chunk of topics whose rows are in `rows`."""
        self.chunks.append(chunk)
        for topics, _, after in chunk:
            if after is None:
                self.gone += topics
            elif not self.made or self.made[-1] is not after:
                self.made.append(after)


class IndexChange(NamedTuple):
    """The change of the table's indexes for each topic whose row changes."""

    # Broker names that a topic gains and loses.
    joined: frozenset[str]
    left: frozenset[str]
    # The number of queues that a topic gains.
    more_queues: int


def index_change(before: TopicRow | None, after: TopicRow | None) -> IndexChange:
    """Return the change of the indexes for each topic with these rows."""
    gone, new = difference(queues_of(before), queues_of(after))
    names_gone, names_new = frozenset(map(_broker_name, gone)), frozenset(map(_broker_name, new))
    return IndexChange(names_new - names_gone, names_gone - names_new, queues_in(new) - queues_in(gone))


def row_with(row: TopicRow | None, broker_name: str, queues: QueueData | None) -> TopicRow | None:
    """Return the row with other queues of a broker, or without them (None); None for a row without queues."""
    held = queues_of(row)
    at, is_there = place_in(held, broker_name)
    if queues == (held[at] if is_there else None):
        return row
    others = (*held[:at], *(() if queues is None else (queues,)), *held[at + is_there :])
    return TopicRow(others) if others else None


def queues_in(row: QueueRow) -> int:
    """Return the number of queues of one topic on all its brokers; a queue counts if it is read or written."""
    return sum(max(queues.read_queue_nums, queues.write_queue_nums) for queues in row)


def place_in(row: QueueRow, broker_name: str) -> tuple[int, bool]:
    """Return the position of a broker's queues in a row, and whether the row has them."""
    at = bisect_left(row, broker_name, key=_broker_name)
    return at, at < len(row) and row[at].broker_name == broker_name


def difference(before: QueueRow, after: QueueRow) -> tuple[QueueRow, QueueRow]:
    """Return the queues that only one of two rows has, with any equal queues in between.

    Ten thousand brokers may share a topic, and each broker that comes or goes changes its row: rows are compared as
    tuples.
    """
    shorter = min(len(before), len(after))
    start = _common(shorter, lambda low, high: before[low:high] == after[low:high])
    before, after = before[start:], after[start:]
    shorter -= start
    end = _common(shorter, lambda low, high: before[-high : -low or None] == after[-high : -low or None])
    return before[: len(before) - end], after[: len(after) - end]


def _common(size: int, are_same: Callable[[int, int], bool]) -> int:
    """Return the length of the common part, by bisection.

    `are_same(low, high)` compares the elements with numbers from `low` to `high`, counted from one end of both rows.
    """
    same = 0
    while size > same:
        middle = (same + size + 1) // 2
        if are_same(same, middle):
            same = middle
        else:
            size = middle - 1
    return same
