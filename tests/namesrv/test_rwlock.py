"""The read-write lock: writers are alone, tasks enter in order, and a cancellation at any moment is safe."""

import asyncio
import itertools
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from namesrv.rwlock import ReadWriteLock
from tests.support.fake_clock import settle

FREE = "<ReadWriteLock [0 readers | writer: no | waiting: 0 read, 0 write]>"


class WitnessedLock:
    """A lock that fails the test when a writer is not alone; tasks whose names begin with R read."""

    def __init__(self) -> None:
        self.lock = ReadWriteLock()
        self.inside: set[str] = set()
        # names in the order of arrival and of entry
        self.arrived: list[str] = []
        self.entered: list[str] = []

    async def hold(self, name: str, stay: Coroutine[Any, Any, object]) -> None:
        """Acquire the lock, stay, release it."""
        self.arrived.append(name)
        try:
            async with self.lock.read() if name.startswith("R") else self.lock.write():
                self.inside.add(name)
                self.entered.append(name)
                self.check_writers_alone()
                try:
                    await stay
                finally:
                    self.check_writers_alone()
                    self.inside.remove(name)
        finally:
            stay.close()

    def check_writers_alone(self) -> None:
        """Assert that a writer is the only task inside."""
        assert len(self.inside) == 1 or all(name.startswith("R") for name in self.inside), self.inside

    def check_end(self) -> None:
        """Assert that the lock is free, and that only readers have overtaken each other."""
        assert repr(self.lock) == FREE
        arrived = [name for name in self.arrived if name in self.entered]
        for first, second in itertools.combinations(arrived, 2):
            if first.startswith("W") or second.startswith("W"):
                assert self.entered.index(first) < self.entered.index(second), (first, second)


class Tasks:
    """Tasks by name, each inside until the test releases it."""

    def __init__(self) -> None:
        self.witnessed = WitnessedLock()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._released: dict[str, asyncio.Event] = {}

    async def arrive(self, *names: str) -> None:
        """Start a task for each name, in order."""
        for name in names:
            self._released[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self.witnessed.hold(name, self._released[name].wait()))
            await settle()

    async def release(self, *names: str) -> set[str]:
        """Release the tasks in order, and return the names of those inside."""
        for name in names:
            self._released[name].set()
        await settle()
        return set(self.witnessed.inside)

    async def cancel(self, name: str) -> set[str]:
        """Cancel the task, and return the names of those inside."""
        self.tasks[name].cancel()
        await settle()
        return set(self.witnessed.inside)


async def test_queue_is_served_in_order_and_neighbouring_readers_together() -> None:
    """A reader waits behind a waiting writer, and adjacent readers enter together."""
    tasks = Tasks()
    await tasks.arrive("R1", "R2", "W3", "R4", "R5", "W6", "R7")
    assert repr(tasks.witnessed.lock) == "<ReadWriteLock [2 readers | writer: no | waiting: 3 read, 2 write]>"

    assert await tasks.release("R2") == {"R1"}
    assert await tasks.release("R1") == {"W3"}
    assert repr(tasks.witnessed.lock) == "<ReadWriteLock [0 readers | writer: yes | waiting: 3 read, 1 write]>"
    assert await tasks.release("W3") == {"R4", "R5"}
    # readers on both sides of a cancelled writer are inside together
    assert await tasks.cancel("W6") == {"R4", "R5", "R7"}
    assert await tasks.release("R4", "R5", "R7") == set()
    tasks.witnessed.check_end()


async def test_closed_waiting_coroutine_leaves_the_queue() -> None:
    """A waiting coroutine that is closed without a cancellation does not get the lock later."""
    lock = ReadWriteLock()

    async def write() -> None:
        async with lock.write():
            raise AssertionError("never enters")

    async with lock.read():
        coroutine = write()
        coroutine.send(None)
        assert repr(lock) == "<ReadWriteLock [1 readers | writer: no | waiting: 0 read, 1 write]>"
        coroutine.close()
    assert repr(lock) == FREE


def test_uncontended_sections_need_no_loop() -> None:
    """Without contention a section awaits nothing: the coroutine ends with its first step."""
    lock = ReadWriteLock()

    async def reads_and_writes() -> str:
        async with lock.read(), lock.read():
            pass
        async with lock.write():
            return repr(lock)

    with pytest.raises(StopIteration) as ended:
        reads_and_writes().send(None)

    assert ended.value.value == "<ReadWriteLock [0 readers | writer: yes | waiting: 0 read, 0 write]>"


async def test_waits_are_measured() -> None:
    """Only tasks that waited and then entered are measured."""
    tasks = Tasks()
    await tasks.arrive("R1", "R2", "W3", "W4", "W5", "R6")
    await tasks.cancel("W4")
    waits = tasks.witnessed.lock.waits
    assert [waits[to_write].count for to_write in (False, True)] == [0, 0]

    await tasks.release("R1", "R2", "W3", "W5", "R6")

    assert [waits[to_write].count for to_write in (False, True)] == [1, 2]
    assert all(waits[to_write].sum > 0 for to_write in (False, True))


# ---- schedules of a few tasks ----


@dataclass(frozen=True)
class Plan:
    """One task of a schedule, in iterations of the loop."""

    kind: str
    # iterations before it asks for the lock
    waits: int
    # iterations inside
    stays: int
    # iteration in which it is cancelled, at any point
    cancelled_after: int | None


async def follow(plans: list[Plan]) -> None:
    """Run the plans together and check the lock on the way and at the end."""
    witnessed = WitnessedLock()

    async def iterations(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def task_of(number: int, plan: Plan) -> None:
        await iterations(plan.waits)
        await witnessed.hold(f"{plan.kind}{number}", iterations(plan.stays))

    tasks = [asyncio.create_task(task_of(number, plan)) for number, plan in enumerate(plans)]
    # three times as long as all tasks need one after the other
    for moment in range(3 * (sum(plan.waits + plan.stays + 2 for plan in plans) + 5)):
        for task, plan in zip(tasks, plans, strict=True):
            if plan.cancelled_after == moment:
                task.cancel()
        await asyncio.sleep(0)
        if all(task.done() for task in tasks):
            break
    else:
        raise AssertionError(f"lost wake-up: {witnessed.lock}")
    for task, plan in zip(tasks, plans, strict=True):
        # no task may fail, and only planned tasks may be cancelled
        assert plan.cancelled_after is not None or not task.cancelled()
        assert task.cancelled() or task.exception() is None
    witnessed.check_end()


def on_a_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run on asyncio's own loop, which orders steps the same way every time."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(work)


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param("".join(kinds), marks=[pytest.mark.slow] * (kinds[0] == kinds[2]))
        for kinds in itertools.product("RW", repeat=4)
    ],
)
def test_cancellation_at_every_await_of_every_pair(kinds: str) -> None:
    """Any two of four tasks are cancelled at any two moments."""

    async def all_of_them() -> None:
        for first, second in itertools.combinations(range(4), 2):
            for moments in itertools.product(range(10), repeat=2):
                cancelled = dict(zip((first, second), moments, strict=True))
                await follow([Plan(kind, 0, 1, cancelled.get(number)) for number, kind in enumerate(kinds)])

    on_a_loop(all_of_them())
