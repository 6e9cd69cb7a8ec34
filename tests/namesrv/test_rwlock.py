"""The lock keeps writers alone, lets everybody in, in order, and survives a cancellation at any moment."""

import asyncio
import itertools
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.rwlock import ReadWriteLock
from tests.support.fake_clock import settle

FREE = "<ReadWriteLock [0 readers | writer: no | waiting: 0 read, 0 write]>"


class House:
    """A lock with a witness, which fails when a writer is not alone; a name that begins with R reads."""

    def __init__(self) -> None:
        self.lock = ReadWriteLock()
        self.inside: set[str] = set()
        # in this order
        self.arrived: list[str] = []
        self.entered: list[str] = []

    async def visit(self, name: str, stay: Coroutine[Any, Any, object]) -> None:
        """Ask, enter, stay, leave."""
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
        """Never a reader with a writer, never two writers."""
        assert len(self.inside) == 1 or all(name.startswith("R") for name in self.inside), self.inside

    def check_end(self) -> None:
        """Nobody is left, and nobody but readers among each other has overtaken anybody."""
        assert repr(self.lock) == FREE
        arrived = [name for name in self.arrived if name in self.entered]
        for first, second in itertools.combinations(arrived, 2):
            if first.startswith("W") or second.startswith("W"):
                assert self.entered.index(first) < self.entered.index(second), (first, second)


class Guests:
    """Tasks by name, each inside until told to leave."""

    def __init__(self) -> None:
        self.house = House()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[str, asyncio.Event] = {}

    async def arrive(self, *names: str) -> None:
        """Start a task for each name, in order."""
        for name in names:
            self._leaving[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self.house.visit(name, self._leaving[name].wait()))
            await settle()

    async def leave(self, *names: str) -> set[str]:
        """Tell them to leave, in order; who is inside then."""
        for name in names:
            self._leaving[name].set()
        await settle()
        return set(self.house.inside)

    async def cancel(self, name: str) -> set[str]:
        """Cancel its task; who is inside then."""
        self.tasks[name].cancel()
        await settle()
        return set(self.house.inside)


async def test_queue_is_served_in_order_and_neighbouring_readers_together() -> None:
    """A reader does not slip in beside others once a writer waits; it enters with those next to it."""
    guests = Guests()
    await guests.arrive("R1", "R2", "W3", "R4", "R5", "W6", "R7")
    assert repr(guests.house.lock) == "<ReadWriteLock [2 readers | writer: no | waiting: 3 read, 2 write]>"

    assert {"R1"} == await guests.leave("R2")
    assert {"W3"} == await guests.leave("R1")
    assert repr(guests.house.lock) == "<ReadWriteLock [0 readers | writer: yes | waiting: 3 read, 1 write]>"
    assert {"R4", "R5"} == await guests.leave("W3")
    # nobody is left but readers once the writer between them has given up
    assert {"R4", "R5", "R7"} == await guests.cancel("W6")
    assert set() == await guests.leave("R4", "R5", "R7")
    guests.house.check_end()


async def test_section_that_raises_leaves_the_lock() -> None:
    """An exception inside comes out as it is and the lock is free again."""
    lock = ReadWriteLock()
    for section in (lock.read, lock.write):
        with pytest.raises(LookupError, match="broker-a"):
            async with section():
                raise LookupError("broker-a")

    assert repr(lock) == FREE


async def test_waiting_coroutine_that_is_closed_leaves_no_trace() -> None:
    """A coroutine that is thrown away while it waits, without any cancellation, does not get the lock later."""
    lock = ReadWriteLock()

    async def wants_to_write() -> None:
        async with lock.write():
            raise AssertionError("never gets in")

    async with lock.read():
        coroutine = wants_to_write()
        coroutine.send(None)
        assert repr(lock) == "<ReadWriteLock [1 readers | writer: no | waiting: 0 read, 1 write]>"
        coroutine.close()
    assert repr(lock) == FREE


def test_uncontended_sections_need_no_loop() -> None:
    """Without contention nothing is awaited and no future is made: the coroutine ends at its first step."""
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
    """Of those who had to wait and were let in; not of who entered at once, nor of who gave up."""
    guests = Guests()
    await guests.arrive("R1", "R2", "W3", "W4", "W5", "R6")
    await guests.cancel("W4")
    waits = guests.house.lock.waits
    assert [waits[to_write].count for to_write in (False, True)] == [0, 0]

    await guests.leave("R1", "R2", "W3", "W5", "R6")

    assert [waits[to_write].count for to_write in (False, True)] == [1, 2]
    assert all(waits[to_write].sum > 0 for to_write in (False, True))


# ---- every schedule of a small house ----


@dataclass(frozen=True)
class Plan:
    """One task of a schedule, in passes of the loop."""

    kind: str
    # before it asks
    waits: int
    # inside
    stays: int
    # after which it is cancelled, wherever it is then
    cancelled_after: int | None


async def follow(plans: list[Plan]) -> None:
    """Run the plans together, and check all that must hold on the way and at the end."""
    house = House()

    async def passes(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def guest(number: int, plan: Plan) -> None:
        await passes(plan.waits)
        await house.visit(f"{plan.kind}{number}", passes(plan.stays))

    tasks = [asyncio.create_task(guest(number, plan)) for number, plan in enumerate(plans)]
    # at most three times as long as all of them need one after the other
    for moment in range(3 * (sum(plan.waits + plan.stays + 2 for plan in plans) + 5)):
        for task, plan in zip(tasks, plans, strict=True):
            if plan.cancelled_after == moment:
                task.cancel()
        await asyncio.sleep(0)
        if all(task.done() for task in tasks):
            break
    else:
        raise AssertionError(f"lost wake-up: {house.lock}")
    for task, plan in zip(tasks, plans, strict=True):
        # none may fail, and only who was told to may be cancelled
        assert plan.cancelled_after is not None or not task.cancelled()
        assert task.cancelled() or task.exception() is None
    house.check_end()


def on_a_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run on asyncio's own loop, whose order of steps is the same every time."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(work)


@pytest.mark.parametrize("kinds", ["".join(kinds) for kinds in itertools.product("RW", repeat=4)])
def test_cancellation_at_every_await_of_every_pair(kinds: str) -> None:
    """Four tasks, any two of them cancelled at any two moments: all that must hold holds."""

    async def all_of_them() -> None:
        for first, second in itertools.combinations(range(4), 2):
            for moments in itertools.product(range(10), repeat=2):
                cancelled = dict(zip((first, second), moments, strict=True))
                await follow([Plan(kind, 0, 1, cancelled.get(number)) for number, kind in enumerate(kinds)])

    on_a_loop(all_of_them())


plans = st.builds(Plan, st.sampled_from("RW"), st.integers(0, 6), st.integers(0, 4), st.none() | st.integers(0, 30))


@given(st.lists(plans, max_size=12))
def test_random_schedules(schedule: list[Plan]) -> None:
    """Up to a dozen tasks that come, stay and are cancelled at random."""
    on_a_loop(follow(schedule))
