"""`make simulate`: runs many seeds on all cores, or one seed with its timeline."""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulation.hashes import fix_hashes
from tests.simulation.shrinking import shrunk
from tests.simulation.simulation import PLANS, Outcome
from tests.support.journal import Journal

_PROGRESS_SECONDS = 10.0
_SEEDS_PER_CHUNK = 10
# Seeds per process. A run with a killed process leaks half a megabyte, so new processes limit the memory.
_CHUNKS_PER_PROCESS = 50
# Number of seeds that a journal records at once.
_SEEDS_PER_SLICE = 200


def main() -> int:
    """Simulate, and return 1 if an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed and print its timeline")
    parser.add_argument("--count", type=int, default=100_000, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    parser.add_argument("--plan", choices=PLANS, default="any", help="kind of faults")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="go on after the last seed of this file")
    parser.add_argument("--seconds", type=float, default=600.0, help="time of a run with a journal")
    options = parser.parse_args()
    fix_hashes()
    if options.seed is not None:
        return _replay(options.seed, options.plan)
    if options.journal is not None:
        return _go_on(Journal(options.journal), options)
    seeds = range(options.first, options.first + options.count)
    figures = _run_all(seeds, options.plan, options.jobs, keep_going=options.keep_going)
    return int(figures["failed"] > 0)


def _go_on(journal: Journal, options: argparse.Namespace) -> int:
    """Run slices of seeds until the time is over, and return 1 if a seed failed."""
    ends, left, failed = time.monotonic() + options.seconds, options.count, 0
    while left and time.monotonic() < ends:
        first, size = journal.total("seeds"), min(left, _SEEDS_PER_SLICE)
        figures = _run_all(range(first, first + size), options.plan, options.jobs, keep_going=True)
        journal.add(**figures)
        left -= size
        failed += figures["failed"]
    _print_summary(seeds=journal.total("seeds"), failed=journal.total("failed"))
    return int(failed > 0)


def _replay(seed: int, plan: str) -> int:
    outcome = PLANS[plan](seed, keeps_lines=True)
    _print(*outcome.lines)
    if not outcome.invariant:
        _print(f"seed {seed}: all invariants hold; checksum {outcome.checksum:08x}")
    else:
        _report(outcome, shrunk(outcome, PLANS[plan]), plan)
    _print_summary(seeds=1, failed=int(bool(outcome.invariant)), checksum=f"{outcome.checksum:08x}")
    return int(bool(outcome.invariant))


def _run_all(seeds: range, plan: str, jobs: int, *, keep_going: bool) -> dict[str, Any]:
    """Run the seeds, print the failures, and print and return the figures."""
    began = reported = time.monotonic()
    failures = done = checksum = 0
    virtual_seconds = 0.0
    for done, (outcome, smallest) in enumerate(results(seeds, PLANS[plan], jobs), start=1):
        virtual_seconds += outcome.seconds
        # XOR does not depend on the order of the seeds.
        checksum ^= outcome.checksum
        if smallest is not None:
            failures += 1
            _report(outcome, smallest, plan)
            if not keep_going:
                break
        now = time.monotonic()
        if now - reported >= _PROGRESS_SECONDS or done == len(seeds):
            reported = now
            _print(f"{done} of {len(seeds)} seeds, {failures} failed, {done / (now - began):.1f} a second")
    seconds = time.monotonic() - began
    figures: dict[str, Any] = {
        "seeds": done,
        "failed": failures,
        "checksum": f"{checksum:08x}",
        "first": seeds.start,
        "jobs": jobs,
        "seconds": round(seconds, 1),
        "seeds_per_second": round(done / seconds, 2),
        "virtual_seconds": round(virtual_seconds),
    }
    _print_summary(**figures)
    return figures


def _print_summary(**figures: Any) -> None:
    """Print the last line, which other programs read."""
    _print(json.dumps(figures))


def results(seeds: range, run: Callable[..., Outcome], jobs: int) -> Iterator[tuple[Outcome, Outcome | None]]:
    """The outcomes of the seeds, each with the smallest run that fails in the same way, or None if the seed passed.

    With several processes, a failed seed is shrunk where it ran. The simulation replaces the clock and the process id,
    which the threads of the pool in this process need.
    """
    result = partial(_result, run)
    if jobs == 1:
        yield from map(result, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=_CHUNKS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(result, seeds, chunksize=_SEEDS_PER_CHUNK)


def _result(run: Callable[..., Outcome], seed: int) -> tuple[Outcome, Outcome | None]:
    outcome = run(seed)
    return outcome, shrunk(outcome, run) if outcome.invariant else None


def _report(failed: Outcome, smallest: Outcome, plan: str) -> None:
    """Print the failure, and the smallest set of faults that leads to it."""
    _print(
        f"seed {failed.seed} failed after {len(failed.faults)} faults: {failed.message}",
        f"with the fewest faults: {smallest.message}",
        *(f"  {fault}" for fault in smallest.faults),
        f"replay: make simulate SEED={failed.seed} PLAN={plan}",
    )


def _print(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
