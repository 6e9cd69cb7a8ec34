"""A report, from the command line to its files, of one small log with every kind of event."""

import csv
import json
import re
from pathlib import Path

import duckdb
import pytest

from namesrv_spark_jobs.command.cli import main
from tests.support.heartbeat_lines import HeartbeatLines, broker, member
from tests.support.spark_logs import BAD_LINE, HUGE_TIME, SMALL_GRID, write_log, write_plain

HOSTILE = "</script><b onload='x'>\x1b[31m\u202e"


def odd_server() -> HeartbeatLines:
    """A log of version 2: a broker with a hostile name unregisters, and the server restarts late."""
    evil = broker(HOSTILE)
    lines = HeartbeatLines("boot-3", "ns-2").start(300_000).heartbeats(300_010, 330_010, of=evil)
    change = {"topics": ["t", "<u>"], "set": [member(HOSTILE)], "whole": True}
    lines.add("route", 300_020, v=2, revision=1, changes=[change])
    lines.add("served", 300_030, v=2, client="k#9", topics=["t", "<u>"], revisions=[1, 1])
    return lines.evict(350_000, evil, "unregistered").scan(360_000, 6)


def test_report_has_all_its_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All files are written, input errors are counted, and a failed gate gives exit code 1."""
    logs, out = write_log(tmp_path / "logs"), tmp_path / "out" / "report"
    write_plain(logs, "ns-2-boot-3-1.jsonl", [*odd_server().lines, HUGE_TIME])
    (logs / "gone.jsonl.gz").symlink_to(tmp_path / "nowhere")
    gates = ["--fail-if", "p99>2m", "--fail-if", "client.p99>10m", "--max-bad-ratio", "0.001"]

    assert main([str(logs), "--out", str(out), "--engine", "embedded", "--what-if", SMALL_GRID, *gates]) == 1

    printed = capsys.readouterr()
    assert f"skipped {logs}/gone.jsonl.gz: a link to nothing\n" in printed.err
    assert "FAILED p99>2m: registry.p99 is 124.99 s (125 s)" in printed.err
    assert "FAILED max-bad-ratio 0.001: 2 of " in printed.err
    assert "client.p99>10m" not in printed.err
    assert "lines, 2 bad, " in printed.err
    assert "at NameServers      3" in printed.out
    assert printed.out.endswith(f"{out}/report.html\n")
    assert [path.name for path in out.parent.iterdir()] == ["report"]
    names = {"report.html", "summary.json", "metrics.csv", "run.json", "intervals", "bad_records", "_SUCCESS"}
    assert names == {path.name for path in out.iterdir()}
    _check_numbers(out)
    _check_tables(out)
    _check_page((out / "report.html").read_text(), str(logs))


def _check_numbers(out: Path) -> None:
    summary = json.loads((out / "summary.json").read_text())
    # A broker that unregisters leaves no stale route, so it is not among the worst.
    assert [row["upper_ms"] for row in summary["worst"]] == [125_000, 124_500]
    run = json.loads((out / "run.json").read_text())
    assert len(run["files"]) == 4
    assert [gate["failed"] for gate in run["gates"]] == [True, False, True]


def _check_tables(out: Path) -> None:
    """Check the tables: two evictions for silence, one of them false, and an unregistration."""
    table = duckdb.read_parquet(f"{out}/intervals/**/*.parquet", hive_partitioning=True)
    intervals = table.select("nameserver", "reason", "upper_ms").fetchall()
    assert sorted(intervals) == [
        ("ns-1", "silent", 125_000.0),
        ("ns-2", "silent", 124_500.0),
        ("ns-2", "unregistered", 0.0),
    ]
    assert [path.name for path in (out / "intervals").glob("date=*")] == ["date=2026-03-01"]
    bad = [json.loads(line) for file in (out / "bad_records").glob("*.json") for line in file.read_text().splitlines()]
    reasons = {row["reason"]: row["line"] for row in bad}
    assert reasons["torn, not JSON, or a field of the wrong type"] == BAD_LINE
    assert {"seq": 1, "ts_ms": (1 << 63) - 1}.items() <= json.loads(reasons["ts_ms is not a time"]).items()
    with (out / "metrics.csv").open(newline="") as file:
        assert {row["measure"] for row in csv.DictReader(file)} == {"registry", "registry_lower", "client"}


def _check_page(page: str, logs: str) -> None:
    assert "ns-1 and ns-2, 2026-03-01 00:00:00 to 2026-03-01 00:06:00 UTC" in page
    assert "ns-2 was not running, or its log is missing, for 59.9 s" in page
    assert "(unregistered)" in page
    assert logs not in page
    assert not [found for found in ("<b onload", "\x1b", "\u202e") if found in page]
    assert "&lt;/script&gt;&lt;b onload=&#39;x&#39;&gt;\\x1b[31m\\u202e" in page


def test_names_in_tables_are_no_formulas(tmp_path: Path) -> None:
    """Names that begin like a formula are escaped, since a spreadsheet would run them, and peers choose names."""
    names, lines = ["=1+1", "+1", "-1", "@1", "c\r=1+1", "c\n=1+1"], HeartbeatLines("boot-1", "ns-1").start()
    for name in names:
        lines.heartbeats(10, 30_010, of=broker(name, cluster=name))
    for name in names:
        lines.evict(160_000, broker(name, cluster=name), "silent")
    write_plain(tmp_path / "logs", "ns-1-boot-1-1.jsonl", lines.lines)

    main([str(tmp_path / "logs"), "--out", str(tmp_path / "report"), "--engine", "embedded", "--what-if", SMALL_GRID])

    with (tmp_path / "report/metrics.csv").open(newline="") as file:
        clusters = {row["key"] for row in csv.DictReader(file) if row["scope"] == "cluster"}
    assert clusters == {"'=1+1", "'+1", "'-1", "'@1", "c\\r=1+1", "c\\n=1+1"}


def test_report_of_nothing_is_not_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report without selected heartbeats, as for a misspelt name, fails its gates and claims no good result."""
    logs, out = write_log(tmp_path / "logs"), tmp_path / "report"
    options = ["--engine", "embedded", "--what-if", SMALL_GRID, "--quiet", "--nameserver", "ns-9", "--fail-if", "p99>1"]

    assert main([str(logs), "--out", str(out), *options]) == 1

    assert "FAILED selection: no heartbeat of NameServer ns-9; the options leave out " in capsys.readouterr().err
    gates = json.loads((out / "run.json").read_text())["gates"]
    assert [(gate["gate"], gate["failed"]) for gate in gates] == [("p99>1", False), ("selection", True)]
    text = "No heartbeat of a broker was read: --since, --until and the other filters leave out 28 of 29 lines."
    warning = {"severity": "warning", "code": "no_heartbeats", "text": text}
    assert warning in json.loads((out / "summary.json").read_text())["findings"]
    page = (out / "report.html").read_text()
    assert text in page
    assert "No broker went away" not in page


def test_results_of_other_settings_are_unknown_without_the_logged_ones(tmp_path: Path) -> None:
    """Without the log's first line, which has the settings, results of other settings are unknown."""
    lines = HeartbeatLines().start().heartbeats(0, 50_000, 100_000).scan(105_000, 21).lines[1:]
    write_plain(tmp_path / "logs", "ns-1-boot-1-1.jsonl", lines)

    assert main([str(tmp_path / "logs"), "--out", str(tmp_path / "out"), "--engine", "embedded", "--quiet"]) == 0

    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    evictions = {(row["policy"], row["evictions"], row["false"]) for row in summary["what_if"]}
    assert evictions == {("logged", 0, 0), ("fixed", None, None)}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "nothing can be replayed under other ones" in page
    assert "No broker was silent for too long under any of these settings" not in page


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("nosuch", 'Spark cannot read this URL: .*No FileSystem for scheme "nosuch"'),
        (
            "s3a",
            r"Spark lacks org\.apache\.hadoop\.fs\.s3a\.S3AFileSystem: add its jars with --conf spark\.jars\.packages=",
        ),
    ],
)
def test_url_that_spark_cannot_read_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str, message: str
) -> None:
    """The error has one line with the scheme, or the missing connector and the remedy; nothing is written."""
    assert main([f"{scheme}://bucket/heartbeats", "--out", str(tmp_path / "report")]) == 2

    printed = capsys.readouterr().err
    assert re.search(f"^namesrv-staleness: {message}", printed, re.MULTILINE)
    assert "\tat " not in printed
    assert list(tmp_path.iterdir()) == []
