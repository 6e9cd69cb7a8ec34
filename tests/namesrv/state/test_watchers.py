"""Everybody who waits for a topic hears of its change, once, and leaves nothing behind."""

import asyncio
import itertools
from operator import length_hint

import pytest

from namesrv.net.steps import BatchSize
from namesrv.state.watchers import BATCH, FEW_TOPICS, STEP_TOPICS, STEP_WATCHES, RouteWatchers
from tests.support.fake_clock import settle


async def waiting(watchers: RouteWatchers, *topics: str) -> asyncio.Task[None]:
    """Somebody who waits."""
    task = asyncio.create_task(watchers.wait(dict.fromkeys(topics).keys()))
    await asyncio.sleep(0)
    return task


async def who_is_done(*tasks: asyncio.Task[None]) -> list[bool]:
    """Who has heard, once everything that can happen has happened."""
    await settle()
    return [task.done() for task in tasks]


NOBODY = "<RouteWatchers [0 waiting for 0 topics]>"
# more than are entered one by one
MANY = [f"t{number}" for number in range(FEW_TOPICS + 1)]


@pytest.mark.parametrize("others", [[], MANY], ids=["few topics", "many topics"])
async def test_only_those_who_wait_for_the_topic_are_woken(others: list[str]) -> None:
    """One of several topics is enough; no topic stands for all."""
    watchers = RouteWatchers()
    watchers.wake({"a"})
    watchers.wake(None)
    tasks = [await waiting(watchers, *topics, *others) for topics in (("a",), ("b",), ("a", "b"), ("c",))]
    assert len(watchers) == 4

    watchers.wake({"a", "x"})
    # who comes after a change has not missed it
    late = await waiting(watchers, "a", *others)

    assert await who_is_done(*tasks, late) == [True, False, True, False, False]
    watchers.wake({"b", "c"})
    assert await who_is_done(*tasks, late) == [True, True, True, True, False]
    watchers.wake(None)
    assert await who_is_done(late) == [True]
    assert repr(watchers) == NOBODY


@pytest.mark.parametrize("others", [[], MANY], ids=["few topics", "many topics"])
@pytest.mark.parametrize("is_woken", [False, True])
async def test_who_gives_up_leaves_nothing_behind(others: list[str], *, is_woken: bool) -> None:
    """Its time was up, or its connection closed, perhaps between being woken and being told; others go on waiting."""
    watchers = RouteWatchers()
    patient, impatient = await waiting(watchers, "a", *others), await waiting(watchers, "a", "b", *others)
    if is_woken:
        watchers.wake({"a"})

    impatient.cancel()
    assert [is_woken, True] == await who_is_done(patient, impatient)
    watchers.wake({"a", "b"})
    assert await who_is_done(patient, impatient) == [True, True]
    assert (impatient.cancelled(), repr(watchers)) == (True, NOBODY)


async def test_crowd_is_told_a_batch_at_a_time() -> None:
    """The loop looks at its sockets in between; further changes add nobody twice, and others are told, too."""
    watchers = RouteWatchers()
    crowd = [await waiting(watchers, "a") for _ in range(5 * BATCH + 1)]
    crowd.append(await waiting(watchers, "b"))
    for _ in range(100):
        watchers.wake({"a"})
    watchers.wake({"b"})

    told = [0]
    while told[-1] < len(crowd):
        await asyncio.sleep(0)
        told.append(sum(task.done() for task in crowd))

    assert max(later - earlier for earlier, later in itertools.pairwise(told)) <= BATCH
    assert repr(watchers) == NOBODY


async def test_fewer_of_a_crowd_are_told_at_once_when_that_takes_long() -> None:
    """Two milliseconds are for as many as they were enough for the last time: four, at half a millisecond each."""
    seconds, told = 0.0, []
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
        told.append(sum(task.done() for task in crowd) - before)

    assert [count for count in told if count] == [8, 4, 4, 4]


async def test_crowd_that_waits_for_the_same_topics_is_looked_through_in_steps() -> None:
    """All of them change at once, and each of the crowd waits for all: that is many times the crowd."""
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

    assert [True] * len(crowd) == await who_is_done(*crowd)
    assert repr(watchers) == NOBODY


async def test_watches_of_many_topics_are_looked_through_in_steps() -> None:
    """However many there are, and however many topics have changed."""
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
    assert await who_is_done(*crowd) == [False] * 99 + [True]
    for task in crowd:
        task.cancel()
