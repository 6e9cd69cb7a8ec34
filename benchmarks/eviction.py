"""Does a broker's death cost what hangs on it, or what is in the tables? And the search for those who are silent?"""

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
    small, large = _deaths(bench)
    bench.progress(f"searches for silent ones among {BROKERS:,} brokers")
    searches = [search() for _ in range(bench.effort.rounds)]
    sizes = f"{deaths.LARGE_BROKERS * deaths.TOPICS:,} topics / of {deaths.SMALL_BROKERS * deaths.TOPICS:,}"
    what = f"search for silent ones among {BROKERS:,} brokers"
    return [
        Figure(
            "eviction.death",
            f"death of a broker with {deaths.TOPICS:,} topics in a table of {sizes}",
            "times",
            ratios(large, small),
            Target("<=", 1.5),
            behind=spelt_medians("milliseconds", large, small),
        ),
        Figure(
            "eviction.search.usual",
            f"{what}: all day, the longest",
            "milliseconds",
            tuple(s.usual for s in searches),
            _LONGEST,
        ),
        Figure(
            "eviction.search.all_heard",
            f"{what}: all due, all heard since",
            "milliseconds",
            tuple(s.all_heard for s in searches),
            _LONGEST,
        ),
        Figure(
            "eviction.search.all_silent",
            f"{what}: all silent",
            "milliseconds",
            tuple(s.all_silent for s in searches),
            _LONGEST,
        ),
    ]


def _deaths(bench: Bench) -> tuple[list[float], list[float]]:
    """How long one took, in milliseconds, round by round: in the small table, in the large one."""
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
    took = json.loads(printed)
    return in_rounds(took["small"]), in_rounds(took["large"])


def in_rounds(took: list[float], each: int = DEATHS_A_ROUND) -> list[float]:
    """The median of each `each` that follow one another."""
    return [statistics.median(took[at : at + each]) for at in range(0, len(took), each)]
