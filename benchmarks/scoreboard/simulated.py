"""Rows measured in the simulation (tests/simulation): hours of virtual time, and thousands of seeds."""

import math
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from benchmarks.harness.figures import Figure
from benchmarks.scoreboard.programs import Measure
from benchmarks.scoreboard.slices import JOURNALS, count_of, described, failed, finished
from tests.simulation.faults import Fault
from tests.simulation.simulation import Outcome, simulate
from tests.simulation.sizes import LARGE
from tests.simulation.world import WALL_START

# virtual seconds of a run: an hour, since times are a tenth of the defaults
_RUN_SECONDS: Final = 360.0
_FAULTS_BEGIN: Final = 5.0
# Each slice has processes of its own, because each run leaves some memory behind.
_SEEDS_PER_SLICE: Final = 200
REMOVALS: Final = frozenset({"NoRemovalOfNewerRegistration", "NoLiveBrokerEvicted", "TablesEqualTruth"})

# Chooses the faults of a run.
Plan = Callable[[random.Random], list[Fault]]


def _on_all_cores(run: Callable[[int], Outcome], seeds: range) -> list[Outcome]:
    # The handler of the suite would end a simulated task, not the process.
    ends_at_once = (signal.SIGTERM, signal.SIG_DFL)
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), signal.signal, ends_at_once) as pool:
        return list(pool.imap_unordered(run, seeds))


def _descriptions(outcomes: Sequence[Outcome], invariants: frozenset[str] | None = None) -> list[str]:
    """The runs that broke one of these invariants, or any."""
    broken = (each for each in outcomes if each.invariant and (invariants is None or each.invariant in invariants))
    return [f"seed {each.seed}: {each.invariant}" for each in broken]


def seeds(
    name: str,
    files: Sequence[str],
    run: Callable[[int], Outcome],
    *,
    schedules: int = 1,
    invariants: frozenset[str] | None = None,
) -> Measure:
    """A measure that runs the seeds from 0 on, in slices, and checks these invariants (all, if None).

    If a seed has several schedules, it counts these.
    """
    what = "seeds" if schedules == 1 else "schedules"

    def run_slice(first: int, left: int) -> dict[str, Any]:
        seed, runs = first // schedules, min(math.ceil(left / schedules), _SEEDS_PER_SLICE)
        began = time.monotonic()
        outcomes = _on_all_cores(run, range(seed, seed + runs))
        seconds = time.monotonic() - began
        return {"count": runs * schedules, "seconds": seconds, "failed": _descriptions(outcomes, invariants)}

    def measured(total: int) -> list[Figure]:
        slices = finished(JOURNALS / f"{name}.jsonl", files, total, run_slice)
        rate = count_of(slices) / sum(each["seconds"] for each in slices)
        return [
            failed("failed", f"{what} that failed", slices),
            Figure("rate", f"{what} a second", "per_second", (rate,)),
        ]

    return measured


def evictions(plan: Plan) -> Callable[[int], list[Figure]]:
    """A measure of evictions of healthy brokers under the faults of a plan."""

    def measured(runs: int) -> list[Figure]:
        outcomes, evicted = _outcomes(plan, runs), frozenset({"NoLiveBrokerEvicted"})
        return [
            described("evicted", "runs with an evicted live broker", _descriptions(outcomes, evicted), runs),
            described("failed", "runs with a broken invariant", _descriptions(outcomes), runs),
        ]

    return measured


def _outcomes(plan: Plan, count: int) -> list[Outcome]:
    return _on_all_cores(partial(_planned, plan), range(count))


def _planned(plan: Plan, seed: int) -> Outcome:
    return simulate(seed, plan(random.Random(f"{seed} scoreboard")), LARGE)


def stops(chosen: random.Random) -> list[Fault]:
    """A server stops for 30 s every 10 min."""
    every, lasts = 60.0, 3.0
    ends = int(_RUN_SECONDS / every)
    return [
        Fault(
            every * number + chosen.uniform(_FAULTS_BEGIN, every - lasts),
            "freeze",
            (chosen.choice(LARGE.servers),),
            lasts,
        )
        for number in range(ends)
    ]


def long_stop(chosen: random.Random) -> list[Fault]:
    """A server stops for five minutes."""
    return [Fault(chosen.uniform(_FAULTS_BEGIN, 20.0), "freeze", (chosen.choice(LARGE.servers),), 30.0)]


def clock_jumps(chosen: random.Random) -> list[Fault]:
    """A wall clock jumps by hours, days and decades, and a hundred times in a row."""
    hour, day = 3_600.0, 86_400.0
    steps = [hour, -hour, -hour, hour, day, -day, -day, day, -WALL_START, WALL_START]
    jumps = [(_FAULTS_BEGIN + 4 * number, step) for number, step in enumerate(steps)]
    # forwards and backwards, ten times a second
    jumps += [(_FAULTS_BEGIN + 50 + number / 10, hour if number % 2 else -hour) for number in range(100)]
    server = chosen.choice(LARGE.servers)
    shift = chosen.uniform(0.0, 3.0)
    return [Fault(at + shift, "clock", (server,), value=step) for at, step in jumps]
