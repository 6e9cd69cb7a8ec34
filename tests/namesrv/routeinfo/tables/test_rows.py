"""Shared rows of topics, and steps from row to row: the invariants of `namesrv.routeinfo.tables.rows`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.routeinfo.tables import rows
from namesrv.routeinfo.tables.rows import (
    NextRows,
    RowChanges,
    TopicRow,
    difference,
    grouped_by_row,
    place_in,
    queues_of,
    row_with,
)
from namesrv_remoting.bodies.route import QueueData
from tests.support.route_builders import queue_data

rows_of_names = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 2)).map(
    lambda queues: tuple(QueueData(name, queues[name], 1, 6) for name in sorted(queues))
)


@given(rows_of_names, rows_of_names)
def test_difference_of_two_rows(before: tuple[QueueData, ...], after: tuple[QueueData, ...]) -> None:
    """Queues of one row only are in its part of the difference; queues of both parts are equal."""
    gone, new = difference(before, after)

    assert set(before) - set(after) == set(gone) - set(new)
    assert set(after) - set(before) == set(new) - set(gone)
    assert difference(before, before) == ((), ())


def test_difference_of_long_rows_is_short() -> None:
    """The difference of two long rows contains only the broker that was added."""
    row = tuple(QueueData(f"b{number:05}", 1, 1, 6) for number in range(10_000))
    more = (*row[:5_000], QueueData("b04999-new", 1, 1, 6), *row[5_000:])

    assert difference(row, more) == ((), more[5_000:5_001])
    assert difference(more, row) == (more[5_000:5_001], ())
    assert place_in(more, "b04999-new") == (5_000, True)
    assert place_in(row, "b04999-new") == (5_000, False)


# five topics at most, each with one of three rows or none, before and after
row_numbers = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5)
ROWS = (None, *(TopicRow((queue_data("b1", number),)) for number in (1, 2, 3)))


@given(row_numbers)
def test_row_changes_hold_each_topic_once(numbers: list[tuple[int, int]]) -> None:
    """Rows, chunks, made rows and removed topics of the changes agree."""
    topics = [f"t{number}" for number in range(len(numbers))]
    befores, afters = ([ROWS[pair[side]] for pair in numbers] for side in (0, 1))
    changes = RowChanges()

    for start in range(0, len(topics), 2):
        some = slice(start, start + 2)
        changes.add(grouped_by_row(topics[some], befores[some], afters[some]))

    assert changes.rows == dict(zip(topics, afters, strict=True))
    in_chunks = [topic for chunk in changes.chunks for change in chunk for topic in change.topics]
    assert in_chunks == topics
    assert {id(row) for row in changes.made} == {id(row) for row in afters if row is not None}
    assert changes.gone == [topic for topic, row in changes.rows.items() if row is None]


def test_next_row_is_computed_once_for_a_row() -> None:
    """Topics that share a row share the next one; another row or argument has another one."""
    computed: list[tuple[TopicRow | None, int]] = []

    def change(row: TopicRow | None, queues: int) -> TopicRow | None:
        computed.append((row, queues))
        return None if queues == 0 else row_with(row, "b2", queue_data("b2", queues))

    next_rows, one, other = NextRows(change), TopicRow((queue_data("b1"),)), TopicRow((queue_data("b1"),))
    found = [next_rows.after(row, queues) for row in (one, other, one, None) for queues in (4, 0) for _ in range(2)]

    assert computed == [(row, queues) for row in (one, other, None) for queues in (4, 0)]
    assert found[0] is found[1] is found[8]
    assert found[0] is not found[4]
    assert [queues_of(row) for row in found[::4]] == [
        (queue_data("b1"), queue_data("b2", 4)),
        (queue_data("b1"), queue_data("b2", 4)),
        (queue_data("b1"), queue_data("b2", 4)),
        (queue_data("b2", 4),),
    ]
    assert found[2::4] == [None] * 4


def test_rows_that_have_a_next_row_are_kept() -> None:
    """A known row is not freed, so that its id is never reused for another row."""
    next_rows = NextRows[int](lambda row, number: TopicRow((queue_data("b1", number),)))

    found = [queues_of(next_rows.after(TopicRow((queue_data("b1"),)), number)) for number in range(1, 200)]

    assert found == [(queue_data("b1", number),) for number in range(1, 200)]
    assert repr(next_rows) == "<NextRows [199 known]>"


def test_number_of_known_rows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known rows are dropped where nearly every topic has a row of its own."""
    monkeypatch.setattr(rows, "MOST_NEXT_ROWS", 2)
    next_rows = NextRows[int](lambda row, _: row)
    sizes = []
    for number in range(4):
        next_rows.after(None, number)
        next_rows.forget_many()
        sizes.append(repr(next_rows))

    assert sizes == [f"<NextRows [{number} known]>" for number in (1, 2, 0, 1)]
