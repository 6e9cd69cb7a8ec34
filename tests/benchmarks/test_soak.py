"""A short run of `make soak`, and the verdicts on its samples."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.build import ROOT
from benchmarks.harness.rounds import until
from benchmarks.soak.observations import Observations, Sample

HOUR, MB = 3600.0, 1_000_000


@pytest.mark.slow
def test_soak_leaves_no_resources_and_true_routes(tmp_path: Path) -> None:
    """After two rounds of churn the tables and all clients are correct, and the server logs nothing unexpected."""
    out = tmp_path / "soak.json"
    command = [sys.executable, "-m", "benchmarks", "soak", "--short", "--minutes=0.3"]
    done = subprocess.run([*command, f"--json={out}"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    figures = {each["name"]: each for each in json.loads(out.read_text())["figures"]}
    for change in ("came", "changed", "joined", "strangers"):
        assert f" {change}" in figures["soak.untrue"]["details"]


@pytest.mark.slow
def test_terminated_soak_ends_its_processes() -> None:
    """SIGTERM also ends the server and the process of the victims."""
    command = [sys.executable, "-m", "benchmarks", "soak", "--short"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as soak:
        assert soak.stderr is not None
        assert soak.stderr.readline() == "soak: 40 agents and 40 clients have started\n"
        children = Path(f"/proc/{soak.pid}/task/{soak.pid}/children").read_text().split()
        soak.terminate()
        output = soak.stderr.read()

    assert (soak.returncode, output) == (143, "")
    assert len(children) == 2
    until("all processes have ended", lambda: not [each for each in children if Path("/proc", each).exists()])


def sample(hours: float, *, mb: float = 60.0, descriptors: int = 2020, tasks: int = 200) -> Sample:
    """A sample of an idle server."""
    return Sample(hours * HOUR, mb * MB, descriptors, tasks)


def missed(observed: Observations) -> list[str]:
    """The names of the figures that miss their bounds."""
    return [figure.name for figure in observed.figures() if figure.verdict == "missed"]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        # Growth during the warm-up does not count, and 0.9 MB/h later is below the bound.
        ([sample(0.0, mb=40), *(sample(0.1 * n, mb=60 + 0.09 * n) for n in range(1, 10))], []),
        ([sample(0.1 * n, mb=60 + 0.2 * n) for n in range(10)], ["soak.memory"]),
        # Minutes are too short for a rate per hour.
        ([sample(0.01 * n, mb=60 + n) for n in range(10)], []),
        ([sample(0.1 * n, descriptors=2020 + 3 * n) for n in range(10)], ["soak.descriptors"]),
        ([sample(0.1 * n, tasks=200 + 3 * n) for n in range(10)], ["soak.tasks"]),
    ],
)
def test_growth_after_the_warm_up_is_a_leak(samples: list[Sample], expected: list[str]) -> None:
    """Only memory that grows after the warm-up is a leak."""
    assert missed(Observations(samples, exit_code=0)) == expected


def test_unexpected_things_are_missed() -> None:
    """A line in the log, a wrong route and an exit code are missed targets."""
    observed = Observations([sample(1)], untrue=["route of a"], unexpected=["{}"], exit_code=70)

    assert missed(observed) == ["soak.untrue", "soak.unexpected", "soak.end"]
