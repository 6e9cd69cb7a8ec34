"""Cost of a broker's eviction, and of the scan for silent brokers, in small and large tables."""

import json
import os
import statistics
import subprocess
import sys
from typing import Final

from benchmarks import deaths
from benchmarks.figures import BenchError, Figure, Target, ratios, spelt_medians
from benchmarks.rounds import Bench
from benchmarks.searches import BROKERS, search
from benchmarks.servers import ROOT

# a round is a median of this many
DEATHS_A_ROUND: Final = 30
# of no callback on the loop
_LONGEST: Final = Target("<=", 20)
_PATIENCE_SECONDS: Final = 120


def measure(bench: Bench) -> list[Figure]:
    """Deaths in two tables of different sizes, in turn; searches among 10,000 brokers."""
    took = _deaths(bench)
    bench.progress(f"searches for silent ones among {BROKERS:,} brokers")
    searches = [search() for _ in range(bench.effort.rounds)]
    return [
        _death("same", "the same one again and again", took["large"], took["small"]),
        _death("any", "any one, memory cold", took["large, any"], took["small, any"]),
        _search("usual", "all day, the longest", [found.usual for found in searches]),
        _search("all_heard", "all due, all heard since", [found.all_heard for found in searches]),
        _search("all_silent", "all silent", [found.all_silent for found in searches]),
    ]


def _death(name: str, which: str, large: list[float], small: list[float]) -> Figure:
    sizes = f"{deaths.LARGE_BROKERS * deaths.TOPICS:,} / {deaths.SMALL_BROKERS * deaths.TOPICS:,}"
    return Figure(
        f"eviction.death.{name}",
        f"death of one with {deaths.TOPICS:,} topics of {sizes}: {which}",
        "times",
        ratios(large, small),
        Target("<=", 1.5),
        behind=spelt_medians("milliseconds", large, small),
    )


def _search(name: str, when: str, took: list[float]) -> Figure:
    what = f"search for silent ones among {BROKERS:,} brokers: {when}"
    return Figure(f"eviction.search.{name}", what, "milliseconds", tuple(took), _LONGEST)


def _deaths(bench: Bench) -> dict[str, list[float]]:
    """How long they took, in milliseconds, round by round."""
    count = DEATHS_A_ROUND * bench.effort.rounds
    bench.progress(f"{count} deaths in each of two tables")
    command = [sys.executable, "-m", "benchmarks.deaths", str(count)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            if bench.cores.server is not None:
                os.sched_setaffinity(process.pid, {bench.cores.server})
            printed, complaint = process.communicate(timeout=_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"deaths: not done after {_PATIENCE_SECONDS} s") from error
        finally:
            process.kill()
    if process.returncode:
        raise BenchError(f"deaths: {complaint.strip()}")
    return {which: in_rounds(took) for which, took in json.loads(printed).items()}


def in_rounds(took: list[float], each: int = DEATHS_A_ROUND) -> list[float]:
    """The median of each `each` that follow one another."""
    return [statistics.median(took[at : at + each]) for at in range(0, len(took), each)]
