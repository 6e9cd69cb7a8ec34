"""The lock keeps writers alone, lets everybody in, in order, and survives a cancellation at any moment."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

import namesrv.rwlock
from namesrv.rwlock import ReadWriteLock
from tests.support.fake_clock import settle

Kind = Literal["R", "W"]


@dataclass
class Visit:
    """One task's way through the lock, as seen from outside."""

    name: str
    kind: Kind
    arrived: int = -1  # the moment it asked to be let in
    entered: int = -1  # the moment it was inside
    may_leave: asyncio.Event = field(default_factory=asyncio.Event)


class House:
    """A lock with a witness: notes who asks, enters and leaves, and fails when a writer is not alone."""

    def __init__(self) -> None:
        self.lock = ReadWriteLock()
        self.inside: list[Visit] = []
        self.entered: list[str] = []
        self.visits: list[Visit] = []
        self._moments = itertools.count()

    async def visit(self, visit: Visit, stay: Callable[[], Awaitable[object]]) -> None:
        """Ask, enter, stay for as long as `stay()` takes, leave."""
        self.visits.append(visit)
        visit.arrived = next(self._moments)
        async with self.lock.read() if visit.kind == "R" else self.lock.write():
            visit.entered = next(self._moments)
            self.inside.append(visit)
            self.entered.append(visit.name)
            self.check_writers_alone()
            try:
                await stay()
            finally:
                self.check_writers_alone()
                self.inside.remove(visit)

    def check_writers_alone(self) -> None:
        """Never a reader with a writer, never two writers."""
        assert len(self.inside) == 1 or all(visit.kind == "R" for visit in self.inside), self.inside

    def check_order(self) -> None:
        """Writers enter in order of arrival, and no reader enters before a writer that came first, or the reverse."""
        entered = [visit for visit in self.visits if visit.entered >= 0]
        for first, second in itertools.combinations(entered, 2):
            if "W" in (first.kind, second.kind):
                assert first.entered < second.entered, (first, second)

    def check_empty(self) -> None:
        """Nobody inside, nobody waiting, no trace of anybody."""
        assert "<ReadWriteLock [0 readers | writer: no | waiting: 0 read, 0 write]>" == repr(self.lock)
        assert not self.lock._queue


@dataclass
class Guests:
    """Tasks by name, each inside until told to leave."""

    house: House = field(default_factory=House)
    visits: dict[str, Visit] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def arrive(self, *names: str) -> None:
        """Start a task for each name, in order; R1 reads, W1 writes."""
        for name in names:
            self.start(name)
            await settle()

    def start(self, name: str) -> None:
        """Start a task that has not run yet."""
        visit = self.visits[name] = Visit(name, "R" if name.startswith("R") else "W")
        self.tasks[name] = asyncio.create_task(self.house.visit(visit, visit.may_leave.wait))

    async def leave(self, *names: str) -> None:
        """Tell them to leave, in order."""
        for name in names:
            self.visits[name].may_leave.set()
            await settle()

    async def cancel(self, *names: str) -> None:
        """Cancel their tasks, in order."""
        for name in names:
            self.tasks[name].cancel()
            await settle()

    def inside(self) -> set[str]:
        """Who is inside."""
        return {visit.name for visit in self.house.inside}


async def test_readers_share() -> None:
    """Any number of readers are inside together."""
    guests = Guests()
    await guests.arrive("R1", "R2", "R3")

    assert {"R1", "R2", "R3"} == guests.inside()
    await guests.leave("R1", "R2", "R3")
    guests.house.check_empty()


async def test_writer_waits_for_readers_and_is_alone() -> None:
    """A writer enters when the last reader has left, and keeps readers and writers out until it leaves."""
    guests = Guests()
    await guests.arrive("R1", "R2", "W1")
    assert {"R1", "R2"} == guests.inside()

    await guests.leave("R2")
    assert {"R1"} == guests.inside()
    await guests.leave("R1")
    assert {"W1"} == guests.inside()

    await guests.arrive("R3", "W2")
    assert {"W1"} == guests.inside()
    await guests.leave("W1", "R3", "W2")
    guests.house.check_empty()


async def test_reader_after_waiting_writer_waits() -> None:
    """A reader does not slip in beside other readers once a writer waits: readers cannot starve a writer."""
    guests = Guests()
    await guests.arrive("R1", "W1", "R2")

    assert {"R1"} == guests.inside()
    await guests.leave("R1")
    assert {"W1"} == guests.inside()
    await guests.leave("W1")
    assert {"R2"} == guests.inside()
    await guests.leave("R2")


async def test_queue_is_served_in_order_and_neighbouring_readers_together() -> None:
    """Behind a writer wait two readers, a writer, a reader, a writer: they enter so, the two readers at once."""
    guests = Guests()
    await guests.arrive("W0", "R1", "R2", "W3", "R4", "W5")
    seen = []
    for leaving in [("W0",), ("R1", "R2"), ("W3",), ("R4",), ("W5",)]:
        await guests.leave(*leaving)
        seen.append(guests.inside())

    assert [{"R1", "R2"}, {"W3"}, {"R4"}, {"W5"}, set()] == seen
    assert ["W0", "R1", "R2", "W3", "R4", "W5"] == guests.house.entered


async def test_cancelled_waiting_writer_lets_the_readers_behind_it_in() -> None:
    """Readers that waited only for a waiting writer enter as soon as it is cancelled."""
    guests = Guests()
    await guests.arrive("R1", "W1", "R2", "R3")
    assert {"R1"} == guests.inside()

    await guests.cancel("W1")

    assert {"R1", "R2", "R3"} == guests.inside()
    await guests.leave("R1", "R2", "R3")
    guests.house.check_empty()


async def test_writer_cancelled_in_the_moment_it_is_let_in_hands_the_lock_on() -> None:
    """The lock was already the writer's when its task was cancelled: the next in the queue gets it."""
    guests = Guests()
    await guests.arrive("W1", "W2", "R3")
    guests.visits["W1"].may_leave.set()
    await asyncio.sleep(0)
    # W1 has left, W2 has been let in and has not run yet
    assert "<ReadWriteLock [0 readers | writer: yes | waiting: 1 read, 0 write]>" == repr(guests.house.lock)

    await guests.cancel("W2")

    assert guests.tasks["W2"].cancelled()
    assert {"R3"} == guests.inside()
    await guests.leave("R3")
    guests.house.check_empty()


async def test_cancelled_waiter_that_has_not_run_yet_is_passed_over() -> None:
    """A release between a waiter's cancellation and its next step lets in the one behind it, and counts it no more."""
    guests = Guests()
    await guests.arrive("W1", "W2", "R3")

    guests.tasks["W2"].cancel()
    assert "<ReadWriteLock [0 readers | writer: yes | waiting: 1 read, 0 write]>" == repr(guests.house.lock)
    guests.tasks["W1"].cancel()
    await settle()

    assert {"R3"} == guests.inside()
    await guests.leave("R3")
    guests.house.check_empty()


async def test_section_that_raises_leaves_the_lock() -> None:
    """An exception inside comes out as it is and the lock is free again."""
    lock = ReadWriteLock()
    for section in (lock.read, lock.write):
        with pytest.raises(LookupError, match="broker-a"):
            async with section():
                raise LookupError("broker-a")

    assert "<ReadWriteLock [0 readers | writer: no | waiting: 0 read, 0 write]>" == repr(lock)


async def test_waiting_coroutine_that_is_closed_leaves_no_trace() -> None:
    """A coroutine that is thrown away while it waits, without any cancellation, does not get the lock later."""
    lock = ReadWriteLock()

    async def wants_to_write() -> None:
        async with lock.write():
            raise AssertionError("never gets in")

    async with lock.read():
        coroutine = wants_to_write()
        coroutine.send(None)
        assert "<ReadWriteLock [1 readers | writer: no | waiting: 0 read, 1 write]>" == repr(lock)
        coroutine.close()
        assert "<ReadWriteLock [1 readers | writer: no | waiting: 0 read, 0 write]>" == repr(lock)

    assert "<ReadWriteLock [0 readers | writer: no | waiting: 0 read, 0 write]>" == repr(lock)


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

    assert "<ReadWriteLock [0 readers | writer: yes | waiting: 0 read, 0 write]>" == ended.value.value


async def test_repr_counts_who_is_inside_and_who_waits() -> None:
    """The repr is the lock's whole state."""
    guests = Guests()
    await guests.arrive("R1", "R2")
    assert "<ReadWriteLock [2 readers | writer: no | waiting: 0 read, 0 write]>" == repr(guests.house.lock)

    await guests.arrive("W1", "R3", "W2")
    assert "<ReadWriteLock [2 readers | writer: no | waiting: 1 read, 2 write]>" == repr(guests.house.lock)

    await guests.leave("R1", "R2")
    assert "<ReadWriteLock [0 readers | writer: yes | waiting: 1 read, 1 write]>" == repr(guests.house.lock)
    await guests.leave("W1", "R3", "W2")


def test_rule_stands_in_the_file() -> None:
    """The rule that everybody who takes the lock follows is where they look for it."""
    text = " ".join(Path(namesrv.rwlock.__file__).read_text("utf-8").split())

    assert (
        "one lock; the only await under it is the yield between chunks, never I/O; effects are performed after it is"
        " released." in text
    )


# ---- every schedule of a small house ----


@dataclass(frozen=True)
class Plan:
    """One task of a random schedule."""

    kind: Kind
    waits_passes: int  # passes of the loop before it asks
    stays_passes: int  # passes it stays inside
    cancelled_after: int | None  # passes after which it is cancelled, wherever it is then


async def follow(plans: list[Plan]) -> None:
    """Run the plans together and check all that must hold on the way and at the end."""
    house = House()

    async def passes(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def guest(name: str, plan: Plan) -> None:
        await passes(plan.waits_passes)
        await house.visit(Visit(name, plan.kind), lambda: passes(plan.stays_passes))

    tasks = [asyncio.create_task(guest(str(number), plan)) for number, plan in enumerate(plans)]
    # at most three times as long as all of them need one after the other
    for moment in range(3 * (sum(plan.waits_passes + plan.stays_passes + 2 for plan in plans) + 5)):
        for task, plan in zip(tasks, plans, strict=True):
            if plan.cancelled_after == moment:
                task.cancel()
        await asyncio.sleep(0)
        if all(task.done() for task in tasks):
            break

    assert all(task.done() for task in tasks), f"lost wake-up: {house.lock}"
    for task, plan in zip(tasks, plans, strict=True):
        # none may fail, and only who was told to may be cancelled
        if task.cancelled():
            assert plan.cancelled_after is not None
        else:
            task.result()
    house.check_order()
    house.check_empty()


def on_a_loop(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run on asyncio's own loop, whose order of steps is the same every time."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(coroutine)


@pytest.mark.parametrize("kinds", ["".join(kinds) for kinds in itertools.product("RW", repeat=4)])
def test_cancellation_at_every_await_of_every_pair(kinds: str) -> None:
    """Four tasks, any two of them cancelled at any two moments: all that must hold holds."""

    async def all_of_them() -> None:
        for first, second in itertools.combinations(range(4), 2):
            for moments in itertools.product(range(10), repeat=2):
                cancelled = dict(zip((first, second), moments, strict=True))
                await follow(
                    [Plan("R" if kind == "R" else "W", 0, 1, cancelled.get(n)) for n, kind in enumerate(kinds)]
                )

    on_a_loop(all_of_them())


plans = st.builds(
    Plan,
    kind=st.sampled_from(["R", "W"]),
    waits_passes=st.integers(0, 6),
    stays_passes=st.integers(0, 4),
    cancelled_after=st.none() | st.integers(0, 30),
)


@given(st.lists(plans, max_size=12))
def test_random_schedules(schedule: list[Plan]) -> None:
    """Up to a dozen tasks that come, stay and are cancelled at random."""
    on_a_loop(follow(schedule))


def test_crowd() -> None:
    """Three hundred tasks, a third of them writers, a third of them cancelled somewhere on their way."""
    dice = random.Random(9876)
    on_a_loop(
        follow(
            [
                Plan(
                    kind=dice.choice(["R", "R", "W"]),
                    waits_passes=dice.randrange(50),
                    stays_passes=dice.randrange(3),
                    cancelled_after=dice.choice([None, None, dice.randrange(250)]),
                )
                for _ in range(300)
            ]
        )
    )


# ---- against a model ----


class LockMachine(RuleBasedStateMachine):
    """The lock beside a list of who waits and a set of who is inside."""

    guests = Bundle("guests")

    @initialize()
    def open_the_house(self) -> None:
        """An empty house on a loop of its own."""
        self.runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
        self.actual = Guests()
        # the model: who waits, in order of arrival, and who is inside
        self.waiting: list[str] = []
        self.inside: set[str] = set()
        self.count = 0

    @rule(target=guests, kinds=st.lists(st.sampled_from("RW"), min_size=1, max_size=3))
    def arrive(self, kinds: list[str]) -> Any:
        """Some come, in this order."""
        names = [f"{kind}{self.count + number}" for number, kind in enumerate(kinds)]
        self.count += len(names)
        self.runner.run(self.actual.arrive(*names))
        self.waiting += names
        self.let_in()
        return multiple(*names)

    @rule(name=guests)
    def leave(self, name: str) -> None:
        """Somebody leaves; who waits will leave as soon as it is inside."""
        self.runner.run(self.actual.leave(name))
        self.leaving(name)
        self.let_in()

    @rule(name=guests)
    def cancel(self, name: str) -> None:
        """Somebody is cancelled, inside or waiting."""
        self.runner.run(self.actual.cancel(name))
        self.gone(name)
        self.let_in()

    @rule(leaver=guests, cancelled=guests)
    def leave_and_cancel_in_one_pass(self, leaver: str, cancelled: str) -> None:
        """One leaves, and another is cancelled in the very pass in which it may be let in."""

        async def both() -> None:
            self.actual.visits[leaver].may_leave.set()
            await asyncio.sleep(0)
            self.actual.tasks[cancelled].cancel()
            await settle()

        self.runner.run(both())
        self.leaving(leaver)
        # whether it got in before it was cancelled or not, it is gone now, and nobody else is worse off
        self.gone(cancelled)
        self.let_in()

    def leaving(self, name: str) -> None:
        """The model of being told to leave: at once when inside, else when let in."""
        self.inside.discard(name)

    def gone(self, name: str) -> None:
        """The model of being cancelled."""
        self.inside.discard(name)
        if name in self.waiting:
            self.waiting.remove(name)

    def let_in(self) -> None:
        """The model of the queue: its head enters as soon as it may, and leaves at once when it was told to."""
        while self.waiting:
            head = self.waiting[0]
            if self.inside if head.startswith("W") else any(name.startswith("W") for name in self.inside):
                return
            self.waiting.pop(0)
            if not self.actual.visits[head].may_leave.is_set():
                self.inside.add(head)

    @invariant()
    def agrees_with_the_model(self) -> None:
        """The same ones are inside, the same ones wait, in the same order."""
        assert self.inside == self.actual.inside()
        assert [name.startswith("W") for name in self.waiting] == list(self.actual.house.lock._queue.values())

    def teardown(self) -> None:
        """In the end all leave, and nothing is left behind."""
        self.runner.run(self.actual.leave(*self.actual.visits))
        self.actual.house.check_empty()
        self.actual.house.check_order()
        self.runner.close()


async def test_waits_are_measured() -> None:
    """Of those who had to wait and were let in; not of who entered at once, nor of who gave up."""
    lock = ReadWriteLock()

    async def visit(section: Any) -> None:
        async with section:
            pass

    async with lock.read():
        await visit(lock.read())
        writers = [asyncio.ensure_future(visit(lock.write())) for _ in range(3)]
        reader = asyncio.ensure_future(visit(lock.read()))
        await settle()
        writers[1].cancel()
        await settle()
        assert [0, 0] == [lock.waits[to_write].count for to_write in (False, True)]
    await asyncio.wait([*writers, reader])

    assert [1, 2] == [lock.waits[to_write].count for to_write in (False, True)]
    assert all(lock.waits[to_write].sum > 0 for to_write in (False, True))


@pytest.mark.hypothesis
def test_lock_agrees_with_a_model() -> None:
    """Arrivals, departures and cancellations in any order leave the same ones inside as a list and a set say."""
    run_state_machine_as_test(LockMachine)
