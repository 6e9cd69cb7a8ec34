"""Is a report made whole, with all its files, and does the exit code say what was found?"""

import csv
import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from namesrv_spark_jobs.command.cli import main
from tests.support.spark_logs import BAD_LINE, SMALL_GRID, write_log, write_plain

pytestmark = [
    pytest.mark.xdist_group("spark"),
    # pyspark leaves the sockets of collected rows to the garbage collector
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]


def test_report_has_all_its_parts(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gate that fails ends with 1, and everything is written all the same; nothing is left beside it."""
    logs, out = write_log(tmp_path / "logs"), tmp_path / "out" / "report"
    gates = ["--fail-if", "p99>2m", "--fail-if", "client.p99>10m", "--max-bad-ratio", "0.001"]

    assert 1 == main([str(logs), "--out", str(out), "--what-if", SMALL_GRID, *gates])

    said = capsys.readouterr()
    assert "FAILED p99>2m: registry.p99 is 124.995 s (125 s)" in said.err
    assert "FAILED max-bad-ratio 0.001: 1 of " in said.err
    assert "client.p99>10m" not in said.err
    assert "lines, 1 bad, " in said.err
    assert "at NameServers      2" in said.out
    assert said.out.endswith(f"{out}/report.html\n")
    assert ["report"] == [path.name for path in out.parent.iterdir()]
    names = {path.name for path in out.iterdir()}
    assert {
        *("report.html", "summary.json", "metrics.csv", "run.json", "intervals", "bad_records", "_SUCCESS"),
    } == names
    _check_contents(spark, out, logs)


def _check_contents(spark: SparkSession, out: Path, logs: Path) -> None:
    """What is in the files: two evictions, one of them false."""
    summary = json.loads((out / "summary.json").read_text())
    assert [2, 1, 1] == [
        *(summary["registry"]["all"]["count"], summary["false_evictions"]["count"], summary["input"]["bad"]),
    ]
    intervals = spark.read.parquet(f"file://{out}/intervals").select("nameserver", "date").collect()
    assert [("ns-1", "2026-03-01"), ("ns-2", "2026-03-01")] == sorted((row[0], str(row[1])) for row in intervals)
    assert ["date=2026-03-01"] == [path.name for path in (out / "intervals").glob("date=*")]
    bad = [json.loads(line) for file in (out / "bad_records").glob("*.json") for line in file.read_text().splitlines()]
    assert [BAD_LINE] == [row["line"] for row in bad]
    with (out / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {"registry", "registry_lower", "client"} == {row["measure"] for row in rows}
    run = json.loads((out / "run.json").read_text())
    assert 3 == len(run["files"])
    assert [True, False, True] == [gate["failed"] for gate in run["gates"]]
    page = (out / "report.html").read_text()
    assert "ns-1 and ns-2, 2026-03-01 00:00:00 to 2026-03-01 00:04:00 UTC" in page
    assert str(logs) not in page


@pytest.mark.slow
def test_same_input_gives_the_same_bytes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever it lies, and whatever else was in the directory; the numbers go to standard output, too."""
    logs, out = write_log(tmp_path / "logs"), tmp_path / "report"
    assert 0 == main([str(logs), "--out", str(out), "--what-if", SMALL_GRID, "--quiet"])
    assert ("", "") == tuple(capsys.readouterr())
    before = (out / "summary.json").read_bytes(), (out / "report.html").read_bytes()
    moved = shutil.copytree(logs, tmp_path / "elsewhere" / "logs")

    assert 0 == main([f"{moved}/dt=*/**/*.jsonl*", "--out", str(out), "--what-if", SMALL_GRID, "-o", "json"])

    assert before == ((out / "summary.json").read_bytes(), (out / "report.html").read_bytes())
    assert before[0].decode() == capsys.readouterr().out


@pytest.mark.slow
def test_empty_log_is_no_input(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was read: that is not a report without findings."""
    file = write_plain(tmp_path / "logs", "ns-1-boot-1-1.jsonl", [])

    assert 2 == main([str(file), "--out", str(tmp_path / "report"), "--what-if", SMALL_GRID])

    assert f"namesrv-staleness: {file}: empty; there is no line to report on\n" == capsys.readouterr().err
    assert not (tmp_path / "report").exists()
