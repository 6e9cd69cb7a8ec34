"""The report against a real run: what it says, and what really happened.

Two servers, brokers that are killed, frozen, paused, cut off and stopped, and clients, all real and with small time
constants. The injector of the faults and observers write down the truth; the report knows the logs only.
"""

import asyncio
import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from namesrv_spark_jobs.analysis import analyse
from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.percentiles import PERCENTILES
from tests.spark_jobs.reference import Analysis
from tests.spark_jobs.reference.analysis import comparable
from tests.spark_jobs.reference.lines import percentile
from tests.support.staleness_truth import AGENTS, CLIENTS, HEARTBEAT, Death, Experiment

pytestmark = pytest.mark.slow

# deaths without an announcement
UNANNOUNCED = ("crash", "freeze", "pause", "partition")


async def experiment(root: Path) -> Sequence[Death]:
    """What the observers wrote down."""
    async with Experiment(root) as found:
        await found.run()
    return found.deaths


def check(expected: Sequence[float], found: dict[str, int | None]) -> None:
    """Every percentile within one heartbeat or 1 % of the truth."""
    assert len(expected) == found["count"]
    ordered = sorted(round(value * 1_000_000) for value in expected)
    for name, part in {**PERCENTILES, "max": 1.0}.items():
        truth, reported = percentile(ordered, part) / 1e6, (found[name.replace(".", "")] or 0) / 1e3
        assert abs(reported - truth) <= max(HEARTBEAT, 0.01 * truth), f"{name} is {truth} s, reported as {reported} s"


def test_the_reference_knows_the_truth(tmp_path: Path) -> None:
    """By the logs alone, and so does the report."""
    deaths = asyncio.run(experiment(tmp_path))
    files = {path: path.read_bytes() for path in tmp_path.glob("*/heartbeats/**/[!.]*.jsonl*")}
    plain = {path: gzip.decompress(data) if path.suffix == ".gz" else data for path, data in files.items()}
    analysis = Analysis({str(path): data.split(b"\n") for path, data in plain.items()})

    with EmbeddedEngine(tmp_path / "staging") as engine:
        report = comparable(analyse(engine, [str(path) for path in files], Options(), lambda _step: None).summary)
        for part in ("registry", "client", "false_evictions", "as_logged"):
            assert report[part] == analysis.summary[part]
    # how long each broker was registered after its death, and each client had it if that was not announced
    check([at - death.at for death in deaths for at in death.removed.values()], analysis.summary["registry"]["all"])
    seen = [at - death.at for death in deaths if death.kind in UNANNOUNCED for at in death.seen.values()]
    check(seen, analysis.summary["client"]["all"])
    assert {f"pause-{number}": 2 for number in range(AGENTS)} == {
        label.split("/")[1]: count for label, count in analysis.summary["false_evictions"]["by_broker"].items()
    }
    assert analysis.as_logged["exact"]
    # of two servers: three kinds of silence, three brokers each
    assert analysis.as_logged["logged"] == 2 * 3 * AGENTS
    assert 2 * CLIENTS * len(UNANNOUNCED) * AGENTS == analysis.summary["client"]["seen"]
    assert 0 == analysis.summary["input"]["bad"] == analysis.summary["registry"]["over_bound"]
    # a killed process closes its connections, a stopped one unregisters, and the others fall silent
    reasons = {"crash": "disconnected", "unregistration": "unregistered"}
    expected = {name: reasons.get(death.kind, "silent") for death in deaths for name in death.names}
    assert expected == {period.broker.broker_name: period.reason for period in analysis.intervals}
