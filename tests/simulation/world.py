"""Machines on one virtual clock, whose event loops are stepped one at a time in an order that a seed determines.

Each machine runs one process on an event loop of its own. A killed process is not stepped any more, a frozen one is not
stepped for a while, and each iteration of a slow one takes long.
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

# Shortest and longest duration of a loop iteration.
ITERATION_SECONDS: Final = (20e-6, 200e-6)
WALL_START: Final = 1_700_000_000.0
_NEVER: Final = float("inf")
# Limit of all iterations of a run, which only an endless loop exceeds.
_MAX_ITERATIONS: Final = 3_000_000

Kind = Literal["server", "broker", "client"]


class Violation(Exception):  # noqa: N818 - it is one
    """A broken invariant."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class World:
    """Virtual time, the machines, and the timeline."""

    def __init__(self, seed: int, directory: str = "", *, keeps_lines: bool = False) -> None:
        self.seed = seed
        # Parent directory of the machines' disks.
        self._directory = directory
        self.now = 0.0
        self.machines: dict[str, Machine] = {}
        # Machine whose process is running; None for the network or a fault.
        self.running: Machine | None = None
        # Running thread of that process, if it is not the loop's.
        self.thread: SimulatedThread | None = None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._pace = self.random("pace")
        # The timeline: a checksum of its lines, and the lines if they are kept
        self.checksum = 0
        self.lines: list[str] | None = [] if keeps_lines else None
        self.iterations = 0
        # the run has ended and is being cleaned up
        self.is_over = False
        # the first violation, raised as soon as no process runs
        self.violation: Violation | None = None
        self.network = Network(self)

    def random(self, purpose: str) -> random.Random:
        """A random source for one purpose, whose choices do not influence those for other purposes."""
        return random.Random(f"{self.seed} {purpose}")

    def note(self, source: str, what: str, *details: object) -> None:
        """Add a line to the timeline."""
        # the directory does not depend on the seed
        line = " ".join([f"{self.now:12.6f} {source:10} {what}", *map(str, details)]).replace(self._directory, "")
        self.checksum = hash_line(self.checksum, line)
        if self.lines is not None:
            self.lines.append(line)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Within the block no process is running."""
        before, self.running = self.running, None
        try:
            yield
        finally:
            self.running = before

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Schedule a function outside all processes."""
        heapq.heappush(self._events, (when, next(self._numbers), what))

    def run(self, until: float) -> None:
        """Run until a time."""
        events, machines = self._events, list(self.machines.values())
        shortest, spread, chosen = ITERATION_SECONDS[0], ITERATION_SECONDS[1] - ITERATION_SECONDS[0], self._pace.random
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
            self.iterations += 1
            assert self.iterations < _MAX_ITERATIONS, f"endless work at {self.now} s, of {machine.name}"
            self.running = machine
            machine.step(shortest + spread * chosen())
            self.running = None

    def forget(self) -> None:
        """Drop all references of the world."""
        self.machines.clear()
        self._events.clear()
        self.violation = None
        self.network = Network(self)


def hash_line(before: int, line: str) -> int:
    """A checksum that does not depend on Python's hash seed."""
    return zlib.crc32(line.encode(), before)


class Machine(LoopClock):
    """A machine with clocks of its own and at most one process."""

    def __init__(self, world: World, name: str, kind: Kind, address: str) -> None:
        self.world = world
        self.name = name
        self.kind = kind
        self.address = address
        self.loop: SimulatedLoop | None = None
        # threads of its process besides the loop's
        self.threads: list[SimulatedThread] = []
        self.wake_delays = world.random(f"turns of {name}")
        # number of lives of its process so far
        self.lives = 0
        # number of iterations of its loops so far
        self.iterations = 0
        self.is_on = True
        self.frozen_until = 0.0
        # additional seconds of each iteration
        self.iteration_seconds = 0.0
        # end of the last time in which each iteration took longer
        self.was_busy_until = 0.0
        self._free_at = 0.0
        # time of its next iteration
        self.next_at = _NEVER
        # times in which the process was frozen: (from, to)
        self.freezes: list[tuple[float, float]] = []
        # times of long computations
        self.hogs: list[tuple[float, float]] = []
        chosen = world.random(f"clock of {name}")
        # clocks drift by about 50 in a million, bad ones by a thousand
        self._rate = 1 + chosen.choice([0.0, 1e-5, -1e-5, 1e-3, -1e-3])
        self._monotonic = chosen.uniform(10.0, 1e6)
        self._wall = WALL_START + chosen.uniform(-60.0, 60.0)
        self._busy = 0.0
        self.disk: Disk | None = None
        # loops of ended processes, kept so that no finalizer runs in them
        self.dead_loops: list[SimulatedLoop] = []
        # errors in its process without a caller
        self.problems: list[str] = []
        # receives what an ended process has left behind
        self.on_end: Callable[[list[str]], None] = lambda _: None

    def __repr__(self) -> str:
        return f"<Machine [{self.name} | life {self.lives} | {'runs' if self.loop else 'stands'}]>"

    # -- clocks --------------------------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        return self._monotonic + self.world.now * self._rate

    def wall(self) -> float:
        return self._wall + self.world.now * self._rate

    def busy(self) -> float:
        return self._busy

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock."""
        self._wall += seconds

    # -- process -------------------------------------------------------------------------------------------------------

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a process."""
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
        # not within a callback of the loop
        self.world.at(self.world.now, lambda: self._gone(loop))

    def _gone(self, loop: SimulatedLoop) -> None:
        if loop is not self.loop:
            return
        left = [repr(task) for task in loop.tasks]
        left += [repr(timer) for timer in loop.timers]
        if self.disk is not None and not self.disk.is_impaired(self.world.now):
            # a thread that waits for a failing disk may still be running
            left += [repr(thread) for thread in self.threads if not thread.has_ended]
        left += [repr(end) for end in self.world.network.ends_of(self) if not end.is_closing()]
        self._discard_process()
        self.world.network.process_died(self)
        self.on_end(left)

    def freeze(self, seconds: float) -> None:
        """Stop the process for a time, as SIGSTOP does."""
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)
        self.freezes.append((self.world.now, self.frozen_until))
        self.next_at = max(self.next_at, self.frozen_until)

    def hog(self, seconds: float) -> None:
        """Let the process compute for a time without an iteration of its loop."""
        self.hogs.append((self.world.now, self.world.now + seconds))
        self._free_at = max(self._free_at, self.world.now + seconds)
        self._busy += seconds
        self.next_at = max(self.next_at, self._free_at)

    def kill(self) -> None:
        """End the process, as SIGKILL does; the kernel closes its connections."""
        self.world.note(self.name, "killed")
        self._discard_process()
        self.world.network.process_died(self)

    def lose_power(self) -> None:
        """Cut the power: process and kernel end silently."""
        self.world.note(self.name, "lost power")
        self._discard_process()
        if self.disk is not None:
            with self.world.outside():
                self.disk.lose_power()
        self.is_on = False
        self.world.network.power_lost(self)

    def _discard_process(self) -> None:
        if self.loop is not None:
            self.dead_loops.append(self.loop)
            # the process may have ended within an iteration
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
        """Within the block this machine's process is running."""
        before, self.world.running = self.world.running, self
        try:
            yield
        finally:
            self.world.running = before

    def wake(self) -> None:
        """Run an iteration as soon as possible."""
        if self.next_at > self.world.now:
            self._wake_at(self.world.now)

    def wake_at(self, when: float) -> None:
        """Run an iteration at this time of the loop."""
        self._wake_at((when - self._monotonic) / self._rate)

    def _wake_at(self, due: float) -> None:
        self.next_at = min(self.next_at, max(due, self._free_at, self.frozen_until))

    def step(self, seconds: float) -> None:
        """Run one iteration of the loop, which takes this time."""
        loop = self.loop
        assert loop is not None
        self.iterations += 1
        loop.step()
        self._free_at = self.world.now + seconds + self.iteration_seconds
        self._busy += seconds + self.iteration_seconds
        self.next_at = _NEVER
        if self.loop is loop:
            if loop.has_work:
                self._wake_at(self.world.now)
            elif (due := loop.next_due()) is not None:
                self.wake_at(due)
