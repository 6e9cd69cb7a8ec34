"""The report against a real run: what it says, and what really happened.

Two servers, brokers that are killed, frozen, paused, cut off and stopped, and clients, all real and with small time
constants. The truth is written down by whoever injects the faults and by observers; the report knows the logs only.
"""

import asyncio
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark_jobs import reference
from tests.spark_jobs.reference.lines import percentile
from tests.support.staleness_truth import AGENTS, CLIENTS, HEARTBEAT, Death, Experiment

pytestmark = pytest.mark.slow

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}
# deaths that nobody announced
UNANNOUNCED = ("crash", "freeze", "pause", "partition")


@dataclass(frozen=True)
class Run:
    """What the observers wrote down, and the files of the logs."""

    deaths: Sequence[Death]
    files: Sequence[Path]

    def registry(self) -> list[float]:
        """How long each broker was registered after its death, in seconds."""
        return [at - death.at for death in self.deaths for at in death.removed.values()]

    def client(self) -> list[float]:
        """How long each client had it, of those deaths that were not announced."""
        return [at - death.at for death in self.deaths if death.kind in UNANNOUNCED for at in death.seen.values()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run for all tests of this file."""
    root = tmp_path_factory.mktemp("truth")

    async def experiment() -> Sequence[Death]:
        async with Experiment(root) as found:
            await found.run()
        return found.deaths

    deaths = asyncio.run(experiment())
    return Run(deaths, sorted(root.glob("*/heartbeats/**/[!.]*.jsonl*")))


def check(expected: Sequence[float], found: dict[str, int | None]) -> None:
    """Every percentile within one heartbeat or 1 % of the truth."""
    assert len(expected) == found["count"]
    ordered = sorted(round(value * 1_000_000) for value in expected)
    for name, part in PERCENTILES.items():
        truth, said = percentile(ordered, part) / 1e6, (found[name] or 0) / 1e3
        assert abs(said - truth) <= max(HEARTBEAT, 0.01 * truth), f"{name} is {truth} s, and said to be {said} s"


def contents(path: Path) -> list[bytes]:
    """The lines of a file."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).split(b"\n")


def test_the_reference_knows_the_truth(run: Run) -> None:
    """By the logs alone."""
    analysis = reference.analyse({str(path): contents(path) for path in run.files})

    check(run.registry(), analysis.summary["registry"]["all"])
    check(run.client(), analysis.summary["client"]["all"])
    assert {f"pause-{number}": 2 for number in range(AGENTS)} == {
        label.split("/")[1]: count for label, count in analysis.summary["false_evictions"]["by_broker"].items()
    }
    assert analysis.as_logged["exact"]
    # of two servers: three kinds of silence, three brokers each
    assert 2 * 3 * AGENTS == analysis.as_logged["logged"]
    assert 2 * CLIENTS * len(UNANNOUNCED) * AGENTS == analysis.summary["client"]["seen"]
    assert 0 == analysis.summary["input"]["bad"] == analysis.summary["registry"]["over_bound"]


def test_reasons_are_what_was_done(run: Run) -> None:
    """A killed process closes its connections, a stopped one says goodbye, of the others nothing is heard."""
    analysis = reference.analyse({str(path): contents(path) for path in run.files})

    expected = {"crash": "disconnected", "goodbye": "unregistered"}
    deaths = {name: death.kind for death in run.deaths for name in death.names}
    found = {life.broker.broker_name: life.reason for life in analysis.intervals}
    assert {name: expected.get(kind, "silent") for name, kind in deaths.items()} == found
