"""`namesrv-staleness compact` writes smaller files that give the same report."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest

from namesrv_spark_jobs.analysis import analyse
from namesrv_spark_jobs.command.cli import main
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.options import Options
from tests.support.heartbeat_lines import HeartbeatLines
from tests.support.permissions import unprivileged
from tests.support.spark_logs import (
    BAD_LINE,
    HUGE_TIME,
    SMALL_GRID,
    first_server,
    second_server,
    write_closed,
    write_plain,
)
from tools.heartbeat_logs import Settings, generate
from tools.heartbeat_logs.settings import MINUTE

TORN = "ns-5-00cc-1.jsonl.gz"
REGULAR = "ns-6-00dd-1.jsonl.gz"
HEARTBEATS = 40


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Closed files with bad lines, with regular heartbeats, and truncated; and a file that is still written."""
    folder, first = tmp_path / "logs", first_server().lines
    write_closed(folder, "ns-1-00aa-1.jsonl.gz", first[:6])
    write_closed(folder, "ns-1-00aa-2.jsonl.gz", [*first[6:], BAD_LINE, HUGE_TIME])
    write_closed(folder, TORN, HeartbeatLines("boot-5", "ns-5").start().heartbeats(0, 30_000).lines, torn_by=1)
    regular = HeartbeatLines("boot-6", "ns-6").start()
    for number in range(HEARTBEATS):
        # Sometimes more than half a minute.
        regular.heartbeat(30_000 * number + 3 * (number % 5))
    write_closed(folder, REGULAR, regular.evict(30_000 * (HEARTBEATS + 4), scan=7).lines)
    write_plain(folder, "ns-2-00bb-1.jsonl.open", second_server().lines)
    return folder


def summary(logs: Path, out: Path) -> dict[str, Any]:
    """The summary of a report on the logs; file names lack their suffixes."""
    assert main([str(logs), "--out", str(out), "--engine", "embedded", "--quiet", "--what-if", SMALL_GRID]) == 0
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    for file in found["input"]["per_file"]:
        file["file"] = file["file"].partition(".")[0]
    return found


def test_compacted_lines_are_read_as_they_were(logs: Path, tmp_path: Path, engine: Engine) -> None:
    """Both engines read the same values from a compacted file as from its lines."""
    assert main(["compact", str(logs), "--quiet"]) == 0
    file = next(logs.rglob("ns-6-*.jsonl.gz"))

    assert read(engine, file.with_name("ns-6-00dd-1.parquet"), tmp_path / "rows") == read(engine, file, tmp_path / "of")


def read(engine: Engine, file: Path, folder: Path) -> list[str]:
    """The rows that an engine reads from a file, in order."""
    folder.mkdir()
    engine.write_lines([str(file)], folder)
    query = "SELECT * EXCLUDE (file) FROM read_parquet(?) ORDER BY seq"
    with duckdb.connect() as database:
        return [str(row) for row in database.execute(query, [f"{folder}/*.parquet"]).fetchall()]


def test_compacted_files_may_have_numbers_of_different_types(tmp_path: Path, engine: Engine) -> None:
    """A number that is too large for a time changes the column types of its file, which is read like other files."""
    usual, unusual = HeartbeatLines("boot-1").start().heartbeat(5.125), HeartbeatLines("boot-2").start().scan(1e300, 1)
    for boot in (usual, unusual):
        write_closed(tmp_path / "logs", f"{boot.boot}.jsonl.gz", boot.lines)
    main(["compact", str(tmp_path / "logs"), "--drop-lines", "--quiet"])
    files = [str(file) for file in sorted(tmp_path.rglob("*.parquet"))]

    read = analyse(engine, files, Options(), lambda _step: None).summary["input"]

    assert [(file["file"].rpartition("/")[2], file["lines"], file["bad"]) for file in read["per_file"]] == [
        ("boot-1.parquet", 2, 0),
        ("boot-2.parquet", 2, 1),
    ]


@pytest.mark.parametrize("size", [0, 1000, -1])
def test_truncated_table_is_reported(tmp_path: Path, size: int, engine: Engine) -> None:
    """A truncated compacted file has no readable line; the report counts it and continues."""
    whole, cut = HeartbeatLines("boot-1").start().heartbeat(5), HeartbeatLines("boot-2").start().heartbeat(5)
    for boot in (whole, cut):
        write_closed(tmp_path / "logs", f"{boot.boot}.jsonl.gz", boot.lines)
    main(["compact", str(tmp_path / "logs"), "--drop-lines", "--quiet"])
    files = sorted(tmp_path.rglob("*.parquet"))
    files[1].write_bytes(files[1].read_bytes()[:size])

    read = analyse(engine, [str(file) for file in files], Options(), lambda _step: None).summary["input"]

    assert [(file["lines"], file["truncated"]) for file in read["per_file"]] == [(2, False), (0, True)]


def test_a_row_is_a_line(logs: Path) -> None:
    """A compacted file is sorted by broker and time, compressed with zstd, and has types that Spark can read."""
    main(["compact", str(logs)])
    file = next(logs.rglob("ns-6-*.parquet"))

    with duckdb.connect() as database:
        events = [row for (row,) in database.execute("SELECT event FROM read_parquet(?)", [str(file)]).fetchall()]
        of_columns = database.execute("SELECT DISTINCT compression, type FROM parquet_metadata(?)", [str(file)])
        codecs, types = (set(values) for values in zip(*of_columns.fetchall(), strict=True))

    assert events == ["start", *HEARTBEATS * ["heartbeat"], "evict"]
    assert codecs == {"ZSTD"}
    # DuckDB may encode floating point in a way that Spark cannot read; Spark would skip such a file as damaged.
    assert "DOUBLE" not in types


@pytest.mark.slow
def test_irregular_logs_say_the_same(tmp_path: Path) -> None:
    """Servers stall, lines are repeated or late, brokers die often, and a third of the files stays text."""
    logs = tmp_path / "logs"
    stalls = Settings(duration=220 * MINUTE, brokers=20, lates=4, clock_steps=2, restarts=1, torn=True)
    generate(replace(stalls, duplicates=0.002, out_of_order=0.01, jitter=0.05, missed=0.01, deaths=20.0), logs)
    before = summary(logs, tmp_path / "before")
    main(["compact", str(logs)])
    for compacted in sorted(logs.rglob("*.parquet"))[::3]:
        compacted.unlink()

    assert summary(logs, tmp_path / "after") == before


def test_second_run_does_what_is_left(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files are converted once; a Parquet file has the time of its source, for retention.

    The directory may be relative, as in the manual's example, and links in it are followed.
    """
    monkeypatch.chdir(logs.parent)
    Path("gathered").mkdir()
    Path("gathered", "ns").symlink_to(logs)
    assert main(["compact", "gathered"]) == 0
    first = {path: path.stat().st_mtime_ns for path in logs.rglob("*.parquet")}
    lines = [path for path in logs.rglob("*.gz") if path.name != TORN]
    ages = {path.name.split(".")[0]: path.stat().st_mtime_ns for path in lines}
    assert ages == {path.stem: modified for path, modified in first.items()}
    assert ages.keys() == {"ns-1-00aa-1", "ns-1-00aa-2", "ns-6-00dd-1"}
    # As after an interrupted run.
    next(iter(first)).unlink()
    (logs / "dt=2026-03-01" / "hour=00" / ".ns-1-00aa-1.parquet.1.tmp").touch()
    capsys.readouterr()

    assert main(["compact", str(logs), "--drop-lines"]) == 0

    assert set(logs.rglob("*.parquet")) == first.keys()
    # A damaged file, and a file that is still written.
    assert {path.name for path in logs.rglob("*.jsonl*")} == {TORN, "ns-2-00bb-1.jsonl.open"}
    printed = capsys.readouterr().err
    assert "3 files: " in printed
    assert f"{TORN}: truncated or damaged" in printed


def test_audit_trail_stays(logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only heartbeat logs are converted, since the Parquet schema lacks the fields of an audit trail.

    A daemon's trail stands beside its heartbeat log; any other file without a line of a heartbeat log stays, too.
    """
    logs.rename(tmp_path / "heartbeats")
    lines = ['{"v":1,"seq":1,"event":"change","account":"olga"}']
    beside, elsewhere = (
        write_closed(tmp_path / folder, "ns-1-00aa-1.jsonl.gz", lines) for folder in ("audit", "heartbeats/trail")
    )
    # Opening a named pipe would block for ever.
    os.mkfifo(tmp_path / "heartbeats" / "pipe.jsonl.gz")
    for named in (tmp_path, tmp_path / "audit"):
        assert main(["compact", str(named), "--drop-lines", "--quiet"]) == 0

    assert [path.name for trail in (beside, elsewhere) for path in trail.parent.iterdir()] == [beside.name] * 2
    left = {path.name for path in tmp_path.rglob("*.jsonl.gz")}
    assert left == {TORN, beside.name, "pipe.jsonl.gz"}
    assert f"skipped {elsewhere}: no line of a heartbeat log\n" in capsys.readouterr().err


def test_two_runs_at_once(tmp_path: Path) -> None:
    """A file that another run has converted, or that retention has removed, is no error."""
    logs = tmp_path / "logs"
    for number in range(24):
        write_closed(logs, f"ns-1-{number}-1.jsonl.gz", HeartbeatLines(f"boot-{number}").start().heartbeat(1).lines)
    command = [sys.executable, "-m", "namesrv_spark_jobs", "compact", str(logs), "--drop-lines", "--quiet"]

    runs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]

    assert [(run.communicate()[1], run.returncode) for run in runs] == [("", 0), ("", 0)]
    assert [path.suffix for path in logs.rglob("*") if path.is_file()] == [".parquet"] * 24


@pytest.mark.parametrize(("closed", "mode"), [("file", 0), ("folder", 0o555)])
def test_missing_permission_is_named(closed: str, mode: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names a file without read permission, or a folder without write permission."""
    # Only the user of the tests can enter the directories of pytest.
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        file = write_closed(Path(name), "ns-1-00aa-1.jsonl.gz", first_server().lines)
        place = file if closed == "file" else file.parent
        place.chmod(mode)

        with unprivileged():
            assert main(["compact", name]) == 2

        place.chmod(0o755)
    assert capsys.readouterr().err == f"namesrv-staleness: {file}: permission denied\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{tmp}/nowhere", "{tmp}/nowhere: no such file or directory"),
        # DuckDB cannot open a file whose name is not UTF-8.
        ("{tmp}", "the name is not UTF-8; rename it"),
        # A compacted file is written beside its source.
        ("s3a://bucket/logs", "s3a://bucket/logs: only local files are compacted"),
    ],
)
def test_unusable_input_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, message: str) -> None:
    """The exit code is 2, and the error names the input."""
    write_closed(tmp_path, os.fsdecode(b"ns-\xff.jsonl.gz"), first_server().lines)

    assert main(["compact", given.format(tmp=tmp_path)]) == 2

    assert message.format(tmp=tmp_path) in capsys.readouterr().err
