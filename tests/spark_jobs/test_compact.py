"""`namesrv-staleness compact`: smaller files, the same report."""

import json
from pathlib import Path
from typing import Any

import pytest

from namesrv_spark_jobs.command.cli import main
from tests.support.heartbeat_lines import HeartbeatLines
from tests.support.spark_logs import (
    BAD_LINE,
    HUGE_TIME,
    SMALL_GRID,
    first_server,
    second_server,
    write_closed,
    write_plain,
)

TORN = "ns-5-00cc-1.jsonl.gz"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two closed files, one of them with lines that are none, one that is torn, and one that is being written."""
    folder, first = tmp_path / "logs", first_server().lines
    write_closed(folder, "ns-1-00aa-1.jsonl.gz", first[:6])
    write_closed(folder, "ns-1-00aa-2.jsonl.gz", [*first[6:], BAD_LINE, HUGE_TIME])
    write_closed(folder, TORN, HeartbeatLines("boot-5", "ns-5").start().beats(0, 30_000).lines, torn_by=1)
    write_plain(folder, "ns-2-00bb-1.jsonl.open", second_server().lines)
    return folder


def summary(logs: Path, out: Path, engine: str) -> dict[str, Any]:
    """What a report says of them; files by their names without endings."""
    assert 0 == main([str(logs), "--out", str(out), "--engine", engine, "--what-if", SMALL_GRID, "--quiet"])
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    for file in found["input"]["per_file"]:
        file["file"] = file["file"].partition(".")[0]
    return found


def names(logs: Path) -> set[str]:
    """All files, hidden ones included."""
    return {path.name for path in logs.rglob("*") if path.is_file()}


@pytest.mark.parametrize("flags", [["--drop-lines"], pytest.param([], marks=pytest.mark.slow)])
def test_report_says_the_same(logs: Path, tmp_path: Path, flags: list[str], engine_name: str) -> None:
    """On both engines, with the lines and without; what is still written is left alone."""
    before = summary(logs, tmp_path / "before", engine_name)
    lines = {"ns-1-00aa-1.jsonl.gz", "ns-1-00aa-2.jsonl.gz"}

    assert 0 == main(["compact", str(logs), *flags])

    made = {"ns-1-00aa-1.parquet", "ns-1-00aa-2.parquet", TORN, "ns-2-00bb-1.jsonl.open"}
    assert made | (set() if flags else lines) == names(logs)
    assert before == summary(logs, tmp_path / "after", engine_name)


def test_second_run_does_what_is_left(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is written twice; a Parquet file has the age of its lines, for retention."""
    main(["compact", str(logs)])
    first = {path: path.stat().st_mtime_ns for path in logs.rglob("*.parquet")}
    lines = [path for path in logs.rglob("*.gz") if path.name != TORN]
    ages = {path.name.split(".")[0]: path.stat().st_mtime_ns for path in lines}
    assert ages == {path.stem: modified for path, modified in first.items()}
    # as after an interruption
    next(iter(first)).unlink()
    (logs / "dt=2026-03-01" / "hour=00" / ".ns-1-00aa-1.parquet.1.tmp").touch()
    capsys.readouterr()

    assert 0 == main(["compact", str(logs), "--drop-lines"])

    assert first.keys() == set(logs.rglob("*.parquet"))
    assert [TORN] == [path.name for path in logs.rglob("*.gz")]
    said = capsys.readouterr().err
    assert "2 files: " in said
    assert f"{TORN}: it ends too early" in said


def test_what_cannot_be_compacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named."""
    assert 2 == main(["compact", str(tmp_path / "nowhere")])
    assert f"{tmp_path}/nowhere: no such file or directory" in capsys.readouterr().err
