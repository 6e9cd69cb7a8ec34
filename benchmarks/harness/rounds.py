"""Measures alternatives in turn, in several short rounds, because the speed of a shared machine drifts."""

import asyncio
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Self, TypeVar

from benchmarks.harness.figures import BenchError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a measurement takes."""

    rounds: int
    # of load, for each alternative in each round
    seconds: int

    @property
    def is_quick(self) -> bool:
        """True for fewer rounds than in a full measurement."""
        return self.rounds < FULL.rounds


# With five rounds the median stays the same when other processes disturb two of them.
FULL: Final = Effort(rounds=5, seconds=2)
QUICK: Final = Effort(rounds=2, seconds=1)


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores of the server and of the load; both None on a machine with a single core, which they share."""

    server: int | None
    load: int | None

    @classmethod
    def ours(cls) -> "Cores":
        """The first two cores that this process may run on."""
        allowed = sorted(os.sched_getaffinity(0))
        return cls(allowed[0], allowed[1]) if len(allowed) > 1 else cls(None, None)


@dataclass(frozen=True, slots=True)
class Bench:
    """The effort and the cores of a measurement."""

    effort: Effort = QUICK
    cores: Cores = Cores(None, None)

    @classmethod
    @contextmanager
    def pinned(cls, effort: Effort) -> "Iterator[Bench]":
        """Pin this process, and with it all children but servers, to the core of the load until the block ends."""
        raise_file_limit()
        cores, allowed = Cores.ours(), os.sched_getaffinity(0)
        if cores.load is not None:
            os.sched_setaffinity(0, {cores.load})
        try:
            yield cls(effort, cores)
        finally:
            os.sched_setaffinity(0, allowed)

    @contextmanager
    def on_both_cores(self) -> Iterator[Self]:
        """Pin neither servers nor load, until the block ends; yields the bench for it."""
        pinned = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core for core in (self.cores.server, self.cores.load) if core is not None} or pinned)
        try:
            yield replace(self, cores=Cores(None, None))
        finally:
            os.sched_setaffinity(0, pinned)

    def progress(self, text: str) -> None:
        """Print progress on standard error."""
        print(f"bench: {text}", file=sys.stderr, flush=True)

    def in_turn(self, what: str, cases: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
        """Measure each case once in each round; every other round goes backwards, so that no case is always first."""
        results: dict[str, list[T]] = {name: [] for name in cases}
        for number in range(self.effort.rounds):
            self.progress(f"{what}, round {number + 1} of {self.effort.rounds}")
            for name in list(cases)[:: 1 if number % 2 == 0 else -1]:
                results[name].append(cases[name]())
        return results


def raise_file_limit(least: int = 0) -> None:
    """Raise the limit of open files to the hard limit, for this process and for servers that it starts.

    Raises:
        BenchError: the hard limit is below `least`.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < least:
        raise BenchError(f"{hard} open files allowed (ulimit -Hn), {least} needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def until(what: str, condition: Callable[[], object], seconds: float = 60.0, every: float = 0.01) -> float:
    """Wait until a condition is true, and return how many seconds that took.

    Raises:
        BenchError: the condition stayed false for `seconds`.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise BenchError(f"{what}: not within {seconds:g} s")
        time.sleep(every)
    return time.monotonic() - began


async def until_async(what: str, condition: Callable[[], object], seconds: float = 60.0, every: float = 0.01) -> float:
    """As `until`, in an event loop. Raises BenchError."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise BenchError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(every)
    return time.monotonic() - began


class Repeating:
    """Repeats some work in a thread, at most `at_most` times a second, until the block ends.

    A late run is not made up for. Leaving the block waits for the current run; it raises the BenchError or OSError of a
    run that failed, after which the thread does nothing more.
    """

    def __init__(self, work: Callable[[], object], *, at_most: float | None = None) -> None:
        self._work = work
        self._interval_seconds = 0.0 if at_most is None else 1 / at_most
        self._stopped = threading.Event()
        self._error: BenchError | OSError | None = None
        self._thread = threading.Thread(target=self._run)
        # Runs a second, known once the block has ended.
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
        began, runs = time.monotonic(), 0
        due = began
        try:
            while not self._stopped.wait(max(0.0, due - time.monotonic())):
                self._work()
                runs += 1
                due = max(due + self._interval_seconds, time.monotonic())
        except (BenchError, OSError) as error:
            self._error = error
        self.per_second = runs / (time.monotonic() - began)
