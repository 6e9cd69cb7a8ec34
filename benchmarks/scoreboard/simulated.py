"""Rows of the simulation: hours of virtual time, and thousands of seeds."""

import multiprocessing
import os
import random
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final

from benchmarks.harness.figures import Figure, none_of
from tests.simulation.faults import AGENTS, SERVERS, Fault
from tests.simulation.simulation import Outcome, simulate
from tests.simulation.world import WALL_START

# a run with faults of its own is so long, in virtual seconds; times in it are a tenth of the defaults
_RUN_SECONDS: Final = 360.0
_FAULTS_BEGIN: Final = 5.0
_RUNS_PER_PROCESS: Final = 200
_WATCH: Final = frozenset(
    {"WatchLosesNothing", "WatchDoublesNothing", "WatchReordersNothing", "RevisionNeverBack", "EveryChangeSeen"}
)
_REMOVALS: Final = frozenset({"NoRemovalOfNewerRegistration", "NoLiveBrokerEvicted", "TablesEqualTruth"})


@lru_cache(maxsize=1)
def _seeds(count: int) -> tuple[Sequence[Outcome], float]:
    """The outcomes of so many seeds, and how many there were in a second."""
    began = time.monotonic()
    outcomes = _on_all_cores(simulate, range(count))
    return outcomes, count / (time.monotonic() - began)


def _on_all_cores(run: Callable[[int], Outcome], seeds: range) -> list[Outcome]:
    # a process keeps some memory of each run
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=_RUNS_PER_PROCESS) as pool:
        return list(pool.imap_unordered(run, seeds))


def _broken(outcomes: Sequence[Outcome], invariants: frozenset[str] | None = None) -> tuple[int, str]:
    """How many broke one of these invariants; behind it, of how many, and which."""
    failed = [each for each in outcomes if each.invariant and (invariants is None or each.invariant in invariants)]
    return len(failed), "; ".join(
        (f"of {len(outcomes):,}", *(f"seed {each.seed}: {each.invariant}" for each in failed[:5]))
    )


def all_seeds(count: int) -> list[Figure]:
    """Random faults, as `make simulate` draws them: all invariants."""
    outcomes, rate = _seeds(count)
    failed, which = _broken(outcomes)
    return [
        none_of("failed", "seeds that failed", failed, which),
        Figure("rate", "seeds a second", "per_second", (rate,)),
    ]


def watches(count: int) -> list[Figure]:
    """The invariants of watches in the same seeds."""
    failed, which = _broken(_seeds(count)[0], _WATCH)
    return [none_of("failed", "histories with a violation", failed, which)]


def removals(count: int) -> list[Figure]:
    """Brokers that come back while they are being removed, in schedules that a seed chooses."""
    outcomes = _on_all_cores(partial(_planned, _races), range(count))
    failed, which = _broken(outcomes, _REMOVALS)
    return [none_of("wrong", "schedules that went wrong", failed, which)]


def stopped_servers(runs: int) -> list[Figure]:
    """Healthy brokers, and servers that stand still for 30 s every 10 min."""
    return _evictions(_stops, runs)


def long_stops(runs: int) -> list[Figure]:
    """A server stands still for five minutes."""
    return _evictions(_long_stop, runs)


def wrong_clocks(runs: int) -> list[Figure]:
    """Wall clocks that jump by hours, days and decades, and a hundred times in a row."""
    return _evictions(_clock_jumps, runs)


def _evictions(plan: Callable[[random.Random], list[Fault]], runs: int) -> list[Figure]:
    outcomes = _on_all_cores(partial(_planned, plan), range(runs))
    evicted, which = _broken(outcomes, frozenset({"NoLiveBrokerEvicted"}))
    other, others = _broken(outcomes)
    return [
        none_of("evicted", "runs with an evicted live broker", evicted, which),
        none_of("failed", "runs with a broken invariant", other, others),
    ]


def _planned(plan: Callable[[random.Random], list[Fault]], seed: int) -> Outcome:
    return simulate(seed, plan(random.Random(f"{seed} scoreboard")))


def _stops(chosen: random.Random) -> list[Fault]:
    every, lasts = 60.0, 3.0
    ends = int(_RUN_SECONDS / every)
    return [
        Fault(every * number + chosen.uniform(_FAULTS_BEGIN, every - lasts), "freeze", (chosen.choice(SERVERS),), lasts)
        for number in range(ends)
    ]


def _long_stop(chosen: random.Random) -> list[Fault]:
    return [Fault(chosen.uniform(_FAULTS_BEGIN, 20.0), "freeze", (chosen.choice(SERVERS),), 30.0)]


def _clock_jumps(chosen: random.Random) -> list[Fault]:
    hour, day = 3_600.0, 86_400.0
    steps = [hour, -hour, -hour, hour, day, -day, -day, day, -WALL_START, WALL_START]
    jumps = [(_FAULTS_BEGIN + 4 * number, step) for number, step in enumerate(steps)]
    # there and back, ten times a second
    jumps += [(_FAULTS_BEGIN + 50 + number / 10, hour if number % 2 else -hour) for number in range(100)]
    server = chosen.choice(SERVERS)
    shift = chosen.uniform(0.0, 3.0)
    return [Fault(at + shift, "clock", (server,), value=step) for at, step in jumps]


def _races(chosen: random.Random) -> list[Fault]:
    """All that makes a broker register anew while an older registration of it is being removed."""
    faults = []
    for _ in range(chosen.randint(4, 12)):
        kind = chosen.choice(("reset", "half-open", "leave", "kill", "cut", "hog"))
        agent, server = chosen.choice(AGENTS), chosen.choice(SERVERS)
        way = (agent, server) if chosen.random() < 0.5 else (server, agent)
        where = {"leave": (agent,), "kill": (agent,), "hog": (server,)}.get(kind, way)
        faults.append(Fault(chosen.uniform(_FAULTS_BEGIN, 20.0), kind, where, chosen.uniform(0.01, 4.0)))
    return sorted(faults, key=lambda fault: fault.at)
