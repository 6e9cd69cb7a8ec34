"""Watches of routes: each ends once when one of its topics changes, and leaves nothing behind."""

import asyncio
import itertools
from operator import length_hint

import pytest

from namesrv.net.steps import BatchSize
from namesrv.state.watchers import BATCH, FEW_TOPICS, STEP_TOPICS, STEP_WATCHES, RouteWatchers
from tests.support.fake_clock import settle


async def waiting(watchers: RouteWatchers, *topics: str) -> asyncio.Task[None]:
    """A task that waits for a change of these topics."""
    task = asyncio.create_task(watchers.wait(dict.fromkeys(topics).keys()))
    await asyncio.sleep(0)
    return task


async def done(*tasks: asyncio.Task[None]) -> list[bool]:
    """For each task whether it is done, once the loop is idle."""
    await settle()
    return [task.done() for task in tasks]


EMPTY = "<RouteWatchers [0 waiting for 0 topics]>"
# more topics than are entered one by one
MANY = [f"t{number}" for number in range(FEW_TOPICS + 1)]


@pytest.mark.parametrize("others", [[], MANY], ids=["few topics", "many topics"])
async def test_only_watches_of_a_changed_topic_end(others: list[str]) -> None:
    """One changed topic of several ends a watch, and a change of everything ends all."""
    watchers = RouteWatchers()
    watchers.wake({"a"})
    watchers.wake(None)
    tasks = [await waiting(watchers, *topics, *others) for topics in (("a",), ("b",), ("a", "b"), ("c",))]
    assert len(watchers) == 4

    watchers.wake({"a", "x"})
    # a watch that begins after the change
    late = await waiting(watchers, "a", *others)

    assert await done(*tasks, late) == [True, False, True, False, False]
    watchers.wake({"b", "c"})
    assert await done(*tasks, late) == [True, True, True, True, False]
    watchers.wake(None)
    assert await done(late) == [True]
    assert repr(watchers) == EMPTY


@pytest.mark.parametrize("others", [[], MANY], ids=["few topics", "many topics"])
@pytest.mark.parametrize("is_woken", [False, True])
async def test_cancelled_watch_leaves_nothing_behind(others: list[str], *, is_woken: bool) -> None:
    """A watch may be cancelled at any moment, also between its wake-up and its end; other watches go on."""
    watchers = RouteWatchers()
    patient, impatient = await waiting(watchers, "a", *others), await waiting(watchers, "a", "b", *others)
    if is_woken:
        watchers.wake({"a"})

    impatient.cancel()
    assert await done(patient, impatient) == [is_woken, True]
    watchers.wake({"a", "b"})
    assert await done(patient, impatient) == [True, True]
    assert (impatient.cancelled(), repr(watchers)) == (True, EMPTY)


async def test_watches_end_in_batches() -> None:
    """The loop runs between batches, and repeated changes wake no watch twice."""
    watchers = RouteWatchers()
    crowd = [await waiting(watchers, "a") for _ in range(5 * BATCH + 1)]
    crowd.append(await waiting(watchers, "b"))
    for _ in range(100):
        watchers.wake({"a"})
    watchers.wake({"b"})

    done_until = [0]
    while done_until[-1] < len(crowd):
        await asyncio.sleep(0)
        done_until.append(sum(task.done() for task in crowd))

    assert max(later - earlier for earlier, later in itertools.pairwise(done_until)) <= BATCH
    assert repr(watchers) == EMPTY


async def test_batch_of_ending_watches_fits_two_milliseconds() -> None:
    """The size of a batch follows the measured cost: four watches at half a millisecond each."""
    seconds, ended = 0.0, []
    watchers = RouteWatchers(BatchSize(8, now=lambda: seconds))

    async def wait() -> None:
        nonlocal seconds
        await watchers.wait({"a": None}.keys())
        seconds += 0.00049

    crowd = [asyncio.create_task(wait()) for _ in range(20)]
    await asyncio.sleep(0)
    watchers.wake({"a"})
    while not all(task.done() for task in crowd):
        before = sum(task.done() for task in crowd)
        await asyncio.sleep(0)
        ended.append(sum(task.done() for task in crowd) - before)

    assert [count for count in ended if count] == [8, 4, 4, 4]


async def test_watches_of_the_same_topics_are_processed_in_chunks() -> None:
    """Many watches, each of many topics that change at once, are processed in chunks."""
    watchers = RouteWatchers()
    topics = MANY[:100]
    crowd = [await waiting(watchers, *topics) for _ in range(5 * STEP_WATCHES // len(topics))]
    watchers.wake(dict.fromkeys(topics).keys())
    steps = 0
    while watchers._due:
        before = sum(map(length_hint, watchers._due))
        await asyncio.sleep(0)
        steps += 1
        assert before - sum(map(length_hint, watchers._due)) <= STEP_WATCHES
    assert steps >= 5

    assert [True] * len(crowd) == await done(*crowd)
    assert repr(watchers) == EMPTY


async def test_watches_of_many_topics_are_checked_in_chunks() -> None:
    """Watches of many topics are compared with a large change in chunks."""
    watchers = RouteWatchers()
    crowd = [await waiting(watchers, *(f"{number}-{topic}" for topic in MANY)) for number in range(100)]
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
    assert await done(*crowd) == [False] * 99 + [True]
    for task in crowd:
        task.cancel()
