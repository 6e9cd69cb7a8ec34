"""`make simulate`: runs many seeds on all cores, or one seed with its time line."""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.simulation.hashes import fix_hashes
from tests.simulation.shrinking import shrunk
from tests.simulation.simulation import Outcome, simulate

_PROGRESS_SECONDS = 10.0
_SEEDS_PER_CHUNK = 4
# then another goes on: of a run in which a process was killed half a megabyte is never collected
_CHUNKS_PER_PROCESS = 50


def main() -> int:
    """Simulate; 1 if an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one, and print its time line")
    parser.add_argument("--count", type=int, default=100_000, help="run so many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    fix_hashes()
    if options.seed is not None:
        return _replay(options.seed)
    seeds = range(options.first, options.first + options.count)
    return _run_all(seeds, options.jobs, keep_going=options.keep_going)


def _replay(seed: int) -> int:
    outcome = simulate(seed, keeps_lines=True)
    _say(*outcome.lines)
    if not outcome.invariant:
        _say(f"seed {seed}: all invariants hold; checksum {outcome.checksum:08x}")
    else:
        _tell(outcome)
    _sum_up(seeds=1, failed=int(bool(outcome.invariant)), checksum=f"{outcome.checksum:08x}")
    return int(bool(outcome.invariant))


def _run_all(seeds: range, jobs: int, *, keep_going: bool) -> int:
    began = told = time.monotonic()
    failures = done = checksum = 0
    virtual_seconds = 0.0
    for done, outcome in enumerate(_outcomes(seeds, jobs), start=1):
        virtual_seconds += outcome.seconds
        # whatever the order in which they ended
        checksum ^= outcome.checksum
        if outcome.invariant:
            failures += 1
            _tell(outcome)
            if not keep_going:
                break
        now = time.monotonic()
        if now - told >= _PROGRESS_SECONDS or done == len(seeds):
            told = now
            _say(f"{done} of {len(seeds)} seeds, {failures} failed, {done / (now - began):.1f} a second")
    seconds = time.monotonic() - began
    _sum_up(
        seeds=done,
        failed=failures,
        checksum=f"{checksum:08x}",
        first=seeds.start,
        jobs=jobs,
        seconds=round(seconds, 1),
        seeds_per_second=round(done / seconds, 2),
        virtual_seconds=round(virtual_seconds),
    )
    return min(failures, 1)


def _sum_up(**figures: Any) -> None:
    """The last line, for programs."""
    _say(json.dumps(figures))


def _outcomes(seeds: range, jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(simulate, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=_CHUNKS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(simulate, seeds, chunksize=_SEEDS_PER_CHUNK)


def _tell(failed: Outcome) -> None:
    """The failure, and the fewest faults that lead to it."""
    small = shrunk(failed)
    _say(
        f"seed {failed.seed} failed after {len(failed.faults)} faults: {failed.message}",
        f"with the fewest faults: {small.message}",
        *(f"  {fault}" for fault in small.faults),
        f"replay: make simulate SEED={failed.seed}",
    )


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
