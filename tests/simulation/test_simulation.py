"""The whole system in simulation: what must hold under any faults holds, and a seed is one run for ever."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.faults import slow_reader
from tests.simulation.patches import simulated_surroundings
from tests.simulation.simulation import simulate
from tests.simulation.world import World

ROOT = Path(__file__).parents[2]


def simulated(*arguments: str, hash_seed: str = "random") -> dict[str, Any]:
    """What `make simulate` sums up."""
    command = [sys.executable, "-m", "tests.simulation", "--jobs", "1", *arguments]
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environ, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def test_invariants_hold() -> None:
    """Servers, agents and clients under faults keep every promise."""
    assert simulated("--count", "5")["seeds"] == 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_invariants_hold_for_a_thousand_seeds(first: int) -> None:
    """The same a thousand times."""
    assert simulated("--first", str(first), "--count", "100")["seeds"] == 100


@pytest.mark.slow
def test_a_scan_that_is_logged_late_is_no_missing_line() -> None:
    """The log of this run has one between lines with lower numbers and later times."""
    assert simulated("--first", "1323", "--count", "1")["seeds"] == 1


def test_a_slow_reader_is_waited_for_and_given_up() -> None:
    """Servers stop writing to a peer that reads slowly; one reads enough in time, the other does not."""
    readers = [slow_reader(5.0, "ns-1", 6.0, 1_000.0), slow_reader(6.0, "ns-2", 6.0, 40_000.0)]
    outcome = simulate(3, readers, keeps_lines=True)

    assert outcome.message == ""
    happened = [line.split(maxsplit=1)[1] for line in outcome.lines]
    for server, what in (("ns-1", "gives up operator"), ("ns-2", "writes again to operator")):
        begins = happened.index(f"{server:10} writes no more to operator")
        assert f"{server:10} {what}" in happened[begins:]


@pytest.mark.slow
def test_a_seed_is_one_run() -> None:
    """Seeds replay byte by byte, in another process with other hashes, too."""
    one, other = (simulated("--first", "10", "--count", "12", hash_seed=seed) for seed in ("1", "2"))
    assert one["checksum"] == other["checksum"]


def test_threads_of_others_sleep_for_real() -> None:
    """Spark's, that an earlier test has left, go on while the machine's time stands still."""
    with simulated_surroundings(World(1)), ThreadPoolExecutor() as pool:
        pool.submit(time.sleep, 0).result()
