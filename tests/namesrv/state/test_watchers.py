"""Watches of routes: each ends once when one of its topics changes, and leaves nothing behind."""

import asyncio
import itertools
from collections.abc import KeysView
from operator import length_hint

import pytest

from namesrv.state.watchers import (
    BATCH,
    FEW_TOPICS,
    SLICE_SECONDS,
    STEP_TOPICS,
    STEP_WATCHES,
    RouteWatchers,
    SharedResponses,
)
from tests.support.fake_clock import settle


class Waiting:
    """A watch that notes its end, in the list of all ended watches."""

    def __init__(self, watchers: RouteWatchers, *topics: str, ended: "list[Waiting] | None" = None) -> None:
        self.topics: KeysView[str] = dict.fromkeys(topics).keys()
        self.shared: SharedResponses | None = None
        self._ended = [] if ended is None else ended
        watchers.add(self)

    def end(self, shared: SharedResponses) -> None:
        assert self.shared is None
        self.shared = shared
        self._ended.append(self)


async def ended(*watches: Waiting) -> list[bool]:
    """For each watch whether it has ended, once the loop is idle."""
    await settle()
    return [watch.shared is not None for watch in watches]


EMPTY = "<RouteWatchers [0 waiting for 0 topics]>"
# more topics than are entered one by one
MANY = [f"t{number}" for number in range(FEW_TOPICS + 1)]


@pytest.mark.parametrize("others", [[], MANY], ids=["few topics", "many topics"])
async def test_only_watches_of_a_changed_topic_end(others: list[str]) -> None:
    """One changed topic of several ends a watch, and a change of everything ends all."""
    watchers = RouteWatchers()
    watchers.wake({"a"})
    watchers.wake(None)
    watches = [Waiting(watchers, *topics, *others) for topics in (("a",), ("b",), ("a", "b"), ("c",))]
    assert len(watchers) == 4

    watchers.wake({"a", "x"})
    # a watch that begins after the change
    late = Waiting(watchers, "a", *others)

    assert await ended(*watches, late) == [True, False, True, False, False]
    watchers.wake({"b", "c"})
    assert await ended(*watches, late) == [True, True, True, True, False]
    watchers.wake(None)
    assert await ended(late) == [True]
    assert repr(watchers) == EMPTY


@pytest.mark.parametrize("others", [[], MANY], ids=["few topics", "many topics"])
@pytest.mark.parametrize("is_woken", [False, True])
async def test_removed_watch_leaves_nothing_behind(others: list[str], *, is_woken: bool) -> None:
    """A watch may be removed at any moment, also between a change and its end; other watches go on."""
    watchers = RouteWatchers()
    patient, impatient = Waiting(watchers, "a", *others), Waiting(watchers, "a", "b", *others)
    if is_woken:
        watchers.wake({"a"})

    watchers.remove(impatient)
    assert await ended(patient, impatient) == [is_woken, False]
    watchers.wake({"a", "b"})
    assert await ended(patient, impatient) == [True, False]
    assert repr(watchers) == EMPTY


async def test_watches_end_in_order_in_batches() -> None:
    """The loop runs between batches, whose watches share responses, and repeated changes end no watch twice."""
    watchers, order = RouteWatchers(now=lambda: 0.0), list[Waiting]()
    crowd = [Waiting(watchers, "a", ended=order) for _ in range(5 * BATCH + 1)]
    crowd.append(Waiting(watchers, "b", ended=order))
    for _ in range(100):
        watchers.wake({"a"})
    watchers.wake({"b"})

    ended_until = [0]
    while ended_until[-1] < len(crowd):
        await asyncio.sleep(0)
        ended_until.append(len(order))

    assert order == crowd
    assert max(later - earlier for earlier, later in itertools.pairwise(ended_until)) == BATCH
    assert len({id(watch.shared) for watch in crowd[:BATCH]}) == 1
    assert repr(watchers) == EMPTY


async def test_watch_with_an_error_delays_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """The loop reports the error, and the other watches end."""
    watchers = RouteWatchers()
    broken, other = Waiting(watchers, "a"), Waiting(watchers, "a")
    broken.shared = {}

    watchers.wake({"a"})

    assert await ended(other) == [True]
    assert "AssertionError" in caplog.text
    assert repr(watchers) == EMPTY


async def test_slice_of_ending_watches_takes_two_milliseconds() -> None:
    """Watches end until their processor time is used up, which is read after every eighth."""
    seconds, order = 0.0, list[Waiting]()
    watchers = RouteWatchers(now=lambda: seconds)

    class Slow(Waiting):
        def end(self, shared: SharedResponses) -> None:
            nonlocal seconds
            seconds += SLICE_SECONDS / 10
            super().end(shared)

    crowd = [Slow(watchers, "a", ended=order) for _ in range(40)]
    watchers.wake({"a"})
    ends = []
    while len(order) < len(crowd):
        before = len(order)
        await asyncio.sleep(0)
        ends.append(len(order) - before)

    assert [count for count in ends if count] == [16, 16, 8]


async def test_watches_of_the_same_topics_are_processed_in_chunks() -> None:
    """Many watches, each of many topics that change at once, are processed in chunks."""
    watchers = RouteWatchers()
    topics = MANY[:100]
    crowd = [Waiting(watchers, *topics) for _ in range(5 * STEP_WATCHES // len(topics))]
    watchers.wake(dict.fromkeys(topics).keys())
    steps = 0
    while watchers._due:
        before = sum(map(length_hint, watchers._due))
        await asyncio.sleep(0)
        steps += 1
        assert before - sum(map(length_hint, watchers._due)) <= STEP_WATCHES
    assert steps >= 5

    assert [True] * len(crowd) == await ended(*crowd)
    assert repr(watchers) == EMPTY


async def test_watches_of_many_topics_are_checked_in_chunks() -> None:
    """Watches of many topics are compared with a large change in chunks."""
    watchers = RouteWatchers()
    crowd = [Waiting(watchers, *(f"{number}-{topic}" for topic in MANY)) for number in range(100)]
    changed = dict.fromkeys(f"x{number}" for number in range(STEP_TOPICS))
    watchers.wake(changed.keys())
    steps = 0
    while watchers._unchecked:
        before = len(watchers._unchecked)
        await asyncio.sleep(0)
        steps += 1
        assert before - len(watchers._unchecked) <= 1 + STEP_TOPICS // len(MANY)
    assert steps >= 2

    watchers.wake({"99-t0": None}.keys())
    assert await ended(*crowd) == [False] * 99 + [True]
