"""A short run of `make soak`, and the verdicts on its samples."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.build import ROOT
from benchmarks.soak.verdict import Found, Sample

HOUR, MIB = 3600.0, 1024 * 1024


@pytest.mark.slow
def test_soak_leaves_no_resources_and_true_routes(tmp_path: Path) -> None:
    """After two rounds of churn the tables and all clients are correct, and the server logs nothing unexpected."""
    out = tmp_path / "soak.json"
    command = [sys.executable, "-m", "benchmarks", "soak", "--short", "--minutes=0.3", "--agents=40", "--clients=40"]
    done = subprocess.run([*command, f"--json={out}"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert figures["samples"] >= 2
    assert figures["done"]["joined"] + figures["done"]["came"] + figures["done"]["changed"] > 50


@pytest.mark.slow
def test_terminated_soak_ends_its_processes() -> None:
    """SIGTERM also ends the server and the processes of brokers and clients."""
    command = [sys.executable, "-m", "benchmarks", "soak", "--short", "--agents=2", "--clients=2"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as soak:
        assert soak.stderr is not None
        assert soak.stderr.readline() == "soak: 2 agents and 2 clients are there\n"
        children = Path(f"/proc/{soak.pid}/task/{soak.pid}/children").read_text().split()
        soak.terminate()
        output = soak.stderr.read()

    assert (soak.returncode, output) == (143, "")
    assert len(children) == 4
    assert [process for process in children if Path("/proc", process).exists()] == []


def sample(hours: float, *, mib: float = 60.0, descriptors: int = 2020, tasks: int = 200) -> Sample:
    """A sample of an idle server."""
    return Sample(hours * HOUR, mib * MIB, 300_000, descriptors, tasks)


@pytest.mark.parametrize(
    ("samples", "missed"),
    [
        # Growth during the warm-up does not count, and 0.9 MiB/h later is below the bound.
        ([sample(0.0, mib=40), *(sample(0.1 * n, mib=60 + 0.09 * n) for n in range(1, 10))], []),
        ([sample(0.1 * n, mib=60 + 0.2 * n) for n in range(10)], ["memory grows by more than 1 MiB/h"]),
        # Minutes are too short for a rate per hour.
        ([sample(0.01 * n, mib=60 + n) for n in range(10)], []),
        ([sample(0.1 * n, descriptors=2020 + 3 * n) for n in range(10)], ["more than 8 descriptors left"]),
        ([sample(0.1 * n, tasks=200 + 3 * n) for n in range(10)], ["more than 8 tasks left"]),
        ([], ["no sample"]),
    ],
)
def test_growth_after_the_warm_up_is_a_leak(samples: list[Sample], missed: list[str]) -> None:
    """Only memory that grows after the warm-up is a leak."""
    assert Found(samples, exit_code=0).missed() == missed


def test_unexpected_things_are_missed() -> None:
    """A line in the log, a wrong route and an exit code are missed targets."""
    found = Found([sample(1)], untrue=["route of a"], unexpected=["{}"], exit_code=70)

    assert found.missed() == ["unexpected log lines", "the tables are not the truth", "exit code 70"]
