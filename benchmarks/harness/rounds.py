"""Compares alternatives in turn, in several short rounds, because the machine drifts."""

import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from benchmarks.harness.figures import BenchError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time is spent on a measurement."""

    rounds: int
    # of load in each round, for each of the things compared
    seconds: int
    # the sizes of servers that are measured end to end
    profiles: tuple[str, ...] = ("S", "M", "L")

    @property
    def is_quick(self) -> bool:
        """Whether a rough idea is enough."""
        return self.rounds < FULL.rounds


# Five rounds: other work in one of them, even in two, does not move the median.
FULL: Final = Effort(rounds=5, seconds=2)
QUICK: Final = Effort(rounds=2, seconds=1, profiles=("S",))


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores of the server and of the load. Both None: there is only one, which the two share."""

    server: int | None
    load: int | None

    @classmethod
    def ours(cls) -> "Cores":
        """The first two that this process may run on."""
        allowed = sorted(os.sched_getaffinity(0))
        return cls(allowed[0], allowed[1]) if len(allowed) > 1 else cls(None, None)


@dataclass(frozen=True, slots=True)
class Bench:
    """What every measurement needs."""

    effort: Effort = QUICK
    cores: Cores = Cores(None, None)

    @classmethod
    def pinned(cls, effort: Effort) -> "Bench":
        """Bench of this process, which moves to the core of the load with all that it starts but servers."""
        raise_file_limit()
        cores = Cores.ours()
        if cores.load is not None:
            os.sched_setaffinity(0, {cores.load})
        return cls(effort, cores)

    def progress(self, text: str) -> None:
        """Print progress on standard error."""
        print(f"bench: {text}", file=sys.stderr, flush=True)

    def in_turn(self, what: str, cases: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
        """Each case once in each round; every other round backwards, so that no case always comes first."""
        found: dict[str, list[T]] = {name: [] for name in cases}
        for number in range(self.effort.rounds):
            self.progress(f"{what}, round {number + 1} of {self.effort.rounds}")
            for name in list(cases)[:: 1 if number % 2 == 0 else -1]:
                found[name].append(cases[name]())
        return found


def raise_file_limit(least: int = 0) -> None:
    """Allow as many open files as the system does, also for servers that are started.

    Raises:
        BenchError: fewer than the least are allowed.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < least:
        raise BenchError(f"{hard} open files allowed (ulimit -Hn), {least} needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def until(what: str, condition: Callable[[], object], seconds: float = 60.0, every: float = 0.01) -> float:
    """Wait until a condition is true; how long that took.

    Raises:
        BenchError: the condition is not true in that time.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise BenchError(f"{what}: not within {seconds:g} s")
        time.sleep(every)
    return time.monotonic() - began


class Repeating:
    """Work in a thread of its own until the block ends, at most so often a second; the last run is finished.

    Leaving the block raises BenchError when some work failed with it: the thread has ended then.
    """

    def __init__(self, work: Callable[[], object], *, at_most: float | None = None) -> None:
        self._work = work
        self._between = 0.0 if at_most is None else 1 / at_most
        self._stopped = threading.Event()
        self._error: BenchError | None = None
        self._thread = threading.Thread(target=self._run)
        # runs in each second, once the block has ended
        self.per_second = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def _run(self) -> None:
        began, done = time.monotonic(), 0
        try:
            while not self._stopped.wait(max(0.0, began + done * self._between - time.monotonic())):
                self._work()
                done += 1
        except BenchError as error:
            self._error = error
        self.per_second = done / (time.monotonic() - began)
