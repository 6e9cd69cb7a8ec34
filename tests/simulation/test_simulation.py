"""The whole system in simulation: invariants hold under any faults, and a seed determines its run."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.__main__ import results
from tests.simulation.faults import Fault, slow_reader
from tests.simulation.patches import simulated_surroundings
from tests.simulation.simulation import Outcome, collect_worlds, simulate, simulate_removals
from tests.simulation.sizes import LARGE
from tests.simulation.world import World
from tests.support.journal import Journal

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_world_left() -> Iterator[None]:
    """Collect the worlds of a test: warnings about their tasks would fail a later test."""
    # A killed agent's coroutine creates a task when it is closed. The loop of an earlier test must not get this task.
    asyncio.set_event_loop(None)
    yield
    collect_worlds()


def simulated(*arguments: str, hash_seed: str = "random") -> dict[str, Any]:
    """The summary of `make simulate`."""
    command = [sys.executable, "-m", "tests.simulation", "--jobs", "1", *arguments]
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environ, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def test_invariants_hold() -> None:
    """Servers, agents and clients keep all invariants under the faults of three seeds."""
    assert simulated("--count", "3")["seeds"] == 3


def test_run_with_a_journal_goes_on_after_its_last_seed(tmp_path: Path) -> None:
    """The second session begins after the seeds that the first one recorded."""
    journal = tmp_path / "journal.jsonl"
    for _ in range(2):
        simulated("--journal", str(journal), "--count", "2")

    assert [(entry["first"], entry["seeds"]) for entry in Journal(journal).entries()] == [(0, 2), (2, 2)]


def failing(seed: int, faults: Sequence[Fault] | None = None) -> Outcome:
    """A run that fails, with the number of its faults and its process id as the message."""
    faults = (Fault(1.0, "kill", ("ns-1",)), Fault(2.0, "kill", ("ns-1",))) if faults is None else faults
    return Outcome(seed, tuple(faults), 0, 0.0, "NothingCrashes", f"{len(faults)} {os.getpid()}")


def print_smallest() -> None:
    """Print this process id, and the message of the smallest run that fails."""
    for _, smallest in results(range(1), failing, jobs=2):
        sys.stdout.write(f"{os.getpid()} {smallest and smallest.message}")


def test_failed_seed_is_shrunk_in_the_process_that_ran_it() -> None:
    """The simulation replaces clocks and the process id, which the threads of the pool in the first process need."""
    # In a separate process, since pytest has threads, and a process with threads should not fork.
    command = [sys.executable, "-c", f"from {__name__} import print_smallest; print_smallest()"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    first, faults, ran_in = printed.split()
    assert faults == "1"
    assert ran_in != first


def test_unfinished_line_of_a_journal_is_ignored(tmp_path: Path) -> None:
    """An unfinished line of a killed process does not count, and is gone after the next line."""
    path = tmp_path / "journal.jsonl"
    path.write_text('{"seeds": 3}\n{"seeds": 4')
    Journal(path).add(seeds=5)

    assert Journal(path).total("seeds") == 8


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_invariants_hold_for_a_thousand_seeds(first: int) -> None:
    """All invariants hold for a thousand seeds."""
    assert simulated("--first", str(first), "--count", "100")["seeds"] == 100


def test_slow_reader_has_a_deadline() -> None:
    """A server pauses writing to slow readers: one reads enough in time, and the other is disconnected."""
    readers = [slow_reader(5.0, "ns-1", 6.0, 1_000.0), slow_reader(6.0, "ns-2", 6.0, 40_000.0)]
    outcome = simulate(3, readers, LARGE, keeps_lines=True)

    assert outcome.message == ""
    happened = [line.split(maxsplit=1)[1] for line in outcome.lines]
    for server, what in (("ns-1", "gives up operator"), ("ns-2", "writes again to operator")):
        begins = happened.index(f"{server:10} writes no more to operator")
        assert f"{server:10} {what}" in happened[begins:]


def test_delayed_heartbeat_over_a_replaced_connection_does_not_count() -> None:
    """A broker registers over a new connection, its older heartbeat arrives later, and then a cut makes it silent."""
    faults = [
        Fault(1.755741, "slow flow", ("broker-d-0", "ns-1"), 7.563, 2.214),
        Fault(4.093068, "cut", ("broker-d-0", "ns-1"), 4.878),
    ]
    outcome = simulate(23904, faults, keeps_lines=True)

    assert outcome.message == ""
    assert any("evicted 10.0.1.3:10911 silent" in line for line in outcome.lines)


def test_registration_of_a_killed_process_that_was_not_read_does_not_count() -> None:
    """A broker registers again and is killed before the busy server reads its registration together with the end."""
    faults = [
        Fault(50.565, "leave", ("broker-a-1",), 0.984),
        Fault(67.456, "cut", ("broker-a-1", "ns-1"), 1.555),
        Fault(68.981, "hog", ("ns-1",), 0.270),
        Fault(69.179, "kill", ("broker-a-1",), 0.567),
        Fault(69.574, "hog", ("ns-1",), 1.573),
    ]
    outcome = simulate_removals(27271, faults, keeps_lines=True)

    assert outcome.message == ""
    assert any("evicted 10.0.1.2:10911 silent" in line for line in outcome.lines)


@pytest.mark.slow
def test_seed_determines_its_run() -> None:
    """A seed gives the same timeline in another process with other hashes."""
    one, other = (simulated("--first", "10", "--count", "12", hash_seed=seed) for seed in ("1", "2"))
    assert one["checksum"] == other["checksum"]


def test_foreign_threads_sleep_in_real_time() -> None:
    """Threads that an earlier test has left, such as Spark's, sleep in real time during a simulation."""
    with simulated_surroundings(World(1)), ThreadPoolExecutor() as pool:
        pool.submit(time.sleep, 0).result()
