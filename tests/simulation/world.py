"""A world of machines on one virtual clock: it steps their event loops one at a time, in an order that a seed fixes.

Each machine runs one process on an event loop of its own, so that a process can be killed (its loop is never stepped
again), frozen (not for a while) or slowed down (every pass takes long) without a word to anybody.
"""

import asyncio
import heapq
import itertools
import random
import zlib
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from namesrv_runtime.clock import LoopClock
from tests.simulation.disk import Disk
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.threads import SimulatedThread

# what one pass of an event loop takes, at least and at most
PASS_SECONDS: Final = (20e-6, 200e-6)
WALL_START: Final = 1_700_000_000.0
_NEVER: Final = float("inf")
# passes of all loops at one moment, and of a run: whoever needs more spins
_MOST_PASSES: Final = 3_000_000

Kind = Literal["server", "broker", "client"]


class Violation(Exception):  # noqa: N818 - it is one
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class World:
    """Virtual time, the machines, and what happened."""

    def __init__(self, seed: int, directory: str = "", *, keeps_lines: bool = False) -> None:
        self.seed = seed
        # below which the machines have their disks
        self._directory = directory
        self.now = 0.0
        self.machines: dict[str, Machine] = {}
        # the machine whose process runs just now; None: the network, or a fault
        self.running: Machine | None = None
        # and which of its threads, if it is not its loop's
        self.thread: SimulatedThread | None = None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._pace = self.random("pace")
        # the time line: each line's checksum, and the lines themselves if somebody wants to read them
        self.checksum = 0
        self.lines: list[str] | None = [] if keeps_lines else None
        self.passes = 0
        # the run has ended, and what is left is being cleared away
        self.is_over = False
        # the first that was found, raised as soon as no process runs
        self.violation: Violation | None = None
        self.network = Network(self)

    def random(self, purpose: str) -> random.Random:
        """A source of choices of its own: what is chosen for one purpose does not move the choices for another."""
        return random.Random(f"{self.seed} {purpose}")

    def note(self, who: str, what: str, *details: object) -> None:
        """Put a line into the time line."""
        # where its files are is not the seed's doing
        line = " ".join([f"{self.now:12.6f} {who:10} {what}", *map(str, details)]).replace(self._directory, "")
        self.checksum = hash_line(self.checksum, line)
        if self.lines is not None:
            self.lines.append(line)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """What is done in the block is done by no process."""
        before, self.running = self.running, None
        try:
            yield
        finally:
            self.running = before

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Have something happen outside all processes."""
        heapq.heappush(self._events, (when, next(self._numbers), what))

    def run(self, until: float) -> None:
        """Let time pass."""
        events, machines = self._events, list(self.machines.values())
        shortest, spread, chosen = PASS_SECONDS[0], PASS_SECONDS[1] - PASS_SECONDS[0], self._pace.random
        while True:
            if self.violation is not None:
                raise self.violation
            due, machine = events[0][0] if events else _NEVER, None
            for each in machines:
                if each.next_at < due:
                    due, machine = each.next_at, each
            if due > until:
                self.now = until
                return
            self.now = max(self.now, due)
            if machine is None:
                heapq.heappop(events)[2]()
                continue
            self.passes += 1
            assert self.passes < _MOST_PASSES, f"endless work at {self.now} s, of {machine.name}"
            self.running = machine
            machine.step(shortest + spread * chosen())
            self.running = None

    def forget(self) -> None:
        """Let go of all that there was."""
        self.machines.clear()
        self._events.clear()
        self.violation = None
        self.network = Network(self)


def hash_line(before: int, line: str) -> int:
    """A checksum that Python's own seed of hashes does not touch."""
    return zlib.crc32(line.encode(), before)


class Machine(LoopClock):
    """A machine with clocks of its own, and at most one process."""

    def __init__(self, world: World, name: str, kind: Kind, address: str) -> None:
        self.world = world
        self.name = name
        self.kind = kind
        self.address = address
        self.loop: SimulatedLoop | None = None
        # those of its process besides the loop's
        self.threads: list[SimulatedThread] = []
        self.turns = world.random(f"turns of {name}")
        # the lives of its process so far
        self.lives = 0
        # of its loops, begun so far
        self.passes = 0
        self.is_on = True
        self.frozen_until = 0.0
        # what every pass of its loop takes besides
        self.pass_seconds = 0.0
        self._free_at = 0.0
        # when its loop has something to do next
        self.next_at = _NEVER
        # when the process was frozen and for how long: (from, to)
        self.freezes: list[tuple[float, float]] = []
        # the same for work that took long
        self.hogs: list[tuple[float, float]] = []
        chosen = world.random(f"clock of {name}")
        # quartz drifts by some 50 in a million; a bad one by a thousand
        self._rate = 1 + chosen.choice([0.0, 1e-5, -1e-5, 1e-3, -1e-3])
        self._monotonic = chosen.uniform(10.0, 1e6)
        self._wall = WALL_START + chosen.uniform(-60.0, 60.0)
        self._busy = 0.0
        self.disk: Disk | None = None
        # loops of dead processes, so that nothing in them runs when it would be collected
        self.graves: list[SimulatedLoop] = []
        # what went wrong in its process that no caller was told of
        self.problems: list[str] = []
        # told what a process that has ended left behind
        self.on_end: Callable[[list[str]], None] = lambda _: None

    def __repr__(self) -> str:
        return f"<Machine [{self.name} | life {self.lives} | {'runs' if self.loop else 'stands'}]>"

    # -- its clocks: a Clock ------------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        return self._monotonic + self.world.now * self._rate

    def wall(self) -> float:
        return self._wall + self.world.now * self._rate

    def world_time(self, monotonic: float) -> float:
        """When its monotonic clock showed that."""
        return (monotonic - self._monotonic) / self._rate

    def busy(self) -> float:
        return self._busy

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self._wall += seconds

    # -- its process --------------------------------------------------------------------------------------------------

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a process."""
        assert self.loop is None, f"{self!r} runs already"
        self.is_on = True
        self.lives += 1
        if self.frozen_until > self.world.now:
            self.freezes[-1] = (self.freezes[-1][0], self.world.now)
        self.frozen_until = self._free_at = 0.0
        self.loop = loop = SimulatedLoop(self, self.world.network)
        self.world.note(self.name, "started", self.lives)
        loop.main = loop.create_task(main())
        loop.main.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        loop = task.get_loop()
        if loop is not self.loop:
            return
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.problems.append(f"process ended with {error!r}")
        self.world.note(self.name, "ended", *([] if error is None else [repr(error)]))
        # not from within one of its callbacks
        self.world.at(self.world.now, lambda: self._gone(loop))

    def _gone(self, loop: SimulatedLoop) -> None:
        if loop is not self.loop:
            return
        left = [repr(task) for task in loop.tasks]
        left += [repr(timer) for timer in loop.timers]
        if self.disk is not None and not self.disk.is_impaired:
            # who waits for a disk does not keep a process from ending
            left += [repr(thread) for thread in self.threads if not thread.has_ended]
        left += [repr(end) for end in self.world.network.ends_of(self) if not end.is_closing()]
        self._bury()
        self.world.network.process_died(self)
        self.on_end(left)

    def freeze(self, seconds: float) -> None:
        """Stop the process, as SIGSTOP does."""
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)
        self.freezes.append((self.world.now, self.frozen_until))
        self.next_at = max(self.next_at, self.frozen_until)

    def hog(self, seconds: float) -> None:
        """Have the process compute for so long, and do nothing else."""
        self.hogs.append((self.world.now, self.world.now + seconds))
        self._free_at = max(self._free_at, self.world.now + seconds)
        self._busy += seconds
        self.next_at = max(self.next_at, self._free_at)

    def kill(self) -> None:
        """End the process, as SIGKILL does: the kernel closes its connections."""
        self.world.note(self.name, "killed")
        self._bury()
        self.world.network.process_died(self)

    def lose_power(self) -> None:
        """Nothing of this machine is heard any more."""
        self.world.note(self.name, "lost power")
        self._bury()
        if self.disk is not None:
            with self.world.outside():
                self.disk.lose_power()
        self.is_on = False
        self.world.network.power_lost(self)

    def _bury(self) -> None:
        if self.loop is not None:
            self.graves.append(self.loop)
            # it may have died in the middle of a pass
            self.loop.forget_ready()
            self.loop = None
            for thread in self.threads:
                thread.die()
            self.threads.clear()
            if self.disk is not None:
                with self.world.outside():
                    self.disk.close_all()
            self.next_at = _NEVER

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What is done in the block is done by this machine's process."""
        before, self.world.running = self.world.running, self
        try:
            yield
        finally:
            self.world.running = before

    def wake(self) -> None:
        """The process has something to do now."""
        if self.next_at > self.world.now:
            self._wake_at(self.world.now)

    def wake_at(self, when: float) -> None:
        """The process has something to do at that time of its loop."""
        self._wake_at((when - self._monotonic) / self._rate)

    def _wake_at(self, due: float) -> None:
        self.next_at = min(self.next_at, max(due, self._free_at, self.frozen_until))

    def step(self, seconds: float) -> None:
        """Let the process's loop make a pass, which takes so long."""
        loop = self.loop
        assert loop is not None
        self.passes += 1
        loop.step()
        self._free_at = self.world.now + seconds + self.pass_seconds
        self._busy += seconds + self.pass_seconds
        self.next_at = _NEVER
        if self.loop is loop:
            if loop.has_work:
                self._wake_at(self.world.now)
            elif (due := loop.next_due()) is not None:
                self.wake_at(due)
