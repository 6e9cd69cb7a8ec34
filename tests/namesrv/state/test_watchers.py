"""Everybody who waits for a topic hears of its change, once, and leaves nothing behind."""

import asyncio
import itertools

import pytest

from namesrv.state.watchers import BATCH, RouteWatchers
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


async def test_only_those_who_wait_for_the_topic_are_woken() -> None:
    """One of several topics is enough."""
    watchers = RouteWatchers()
    tasks = [await waiting(watchers, *topics) for topics in (("a",), ("b",), ("a", "b"), ("c",))]
    assert "<RouteWatchers [4 waiting for 3 topics]>" == repr(watchers)

    watchers.wake({"a", "x"})

    assert [True, False, True, False] == await who_is_done(*tasks)
    assert "<RouteWatchers [2 waiting for 2 topics]>" == repr(watchers)
    watchers.wake({"b", "c"})
    assert [True] * 4 == await who_is_done(*tasks)
    assert "<RouteWatchers [0 waiting for 0 topics]>" == repr(watchers)


async def test_none_wakes_everybody() -> None:
    """Anything may have changed, or the server leaves."""
    watchers = RouteWatchers()
    tasks = [await waiting(watchers, topic) for topic in "abc"]

    watchers.wake(None)

    assert [True] * 3 == await who_is_done(*tasks)
    assert 0 == len(watchers)


def test_waking_nobody() -> None:
    """Most changes interest nobody; no loop is needed to find that out."""
    watchers = RouteWatchers()

    watchers.wake({"a"})
    watchers.wake(None)

    assert 0 == len(watchers)


async def test_change_before_the_wait_does_not_count() -> None:
    """Who waits has looked before, in the same step of the loop."""
    watchers = RouteWatchers()
    first = await waiting(watchers, "a")
    watchers.wake({"a"})
    second = await waiting(watchers, "a")

    assert [True, False] == await who_is_done(first, second)
    watchers.wake({"a"})
    assert [True, True] == await who_is_done(first, second)


async def test_who_gives_up_leaves_nothing_behind() -> None:
    """Its time was up, or its connection closed; the others go on waiting."""
    watchers = RouteWatchers()
    patient, impatient = await waiting(watchers, "a"), await waiting(watchers, "a", "b")

    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient

    assert "<RouteWatchers [1 waiting for 1 topics]>" == repr(watchers)
    watchers.wake({"a", "b"})
    assert [True] == await who_is_done(patient)


async def test_who_gives_up_when_woken_does_not_hurt_the_others() -> None:
    """Between being woken and being told."""
    watchers = RouteWatchers()
    patient, impatient = await waiting(watchers, "a"), await waiting(watchers, "a")

    watchers.wake({"a"})
    impatient.cancel()

    assert [True, True] == await who_is_done(patient, impatient)
    assert (True, 0) == (impatient.cancelled(), len(watchers))


async def test_crowd_is_told_a_batch_at_a_time() -> None:
    """Each has a question to be answered: the loop looks at its sockets in between."""
    watchers = RouteWatchers()
    crowd = [await waiting(watchers, "a") for _ in range(5 * BATCH + 1)]
    watchers.wake({"a"})

    told = [0]
    while told[-1] < len(crowd):
        await asyncio.sleep(0)
        told.append(sum(task.done() for task in crowd))

    assert max(later - earlier for earlier, later in itertools.pairwise(told)) <= BATCH
    assert 0 == len(watchers)


async def test_topic_that_flaps_wakes_everybody_once() -> None:
    """While a crowd is being told, further changes add nobody to the queue twice."""
    watchers = RouteWatchers()
    crowd = [await waiting(watchers, "a") for _ in range(3 * BATCH)]

    for _ in range(100):
        watchers.wake({"a"})
    assert 3 * BATCH == len(watchers._woken)

    for _ in range(4):
        await asyncio.sleep(0)
        watchers.wake(None)
    assert all(await who_is_done(*crowd))
    assert "<RouteWatchers [0 waiting for 0 topics]>" == repr(watchers)


async def test_latecomer_in_a_crowd_is_told_too() -> None:
    """A change that comes while others are still being told."""
    watchers = RouteWatchers()
    crowd = [await waiting(watchers, "a") for _ in range(3 * BATCH)]
    watchers.wake({"a"})
    latecomer = await waiting(watchers, "b")

    watchers.wake({"b"})

    assert all(await who_is_done(*crowd, latecomer))
