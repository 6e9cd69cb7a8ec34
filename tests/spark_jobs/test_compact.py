"""`namesrv-staleness compact`: smaller files, the same report."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from namesrv_spark_jobs.command.cli import main
from namesrv_spark_jobs.transforms.schema import RUN
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
from tools.heartbeat_logs.cli import main as generate

TORN = "ns-5-00cc-1.jsonl.gz"
REGULAR = "ns-6-00dd-1.jsonl.gz"
BEATS = 40


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Closed files, one of lines that are none, one of regular beats, one torn, and one that is being written."""
    folder, first = tmp_path / "logs", first_server().lines
    write_closed(folder, "ns-1-00aa-1.jsonl.gz", first[:6])
    write_closed(folder, "ns-1-00aa-2.jsonl.gz", [*first[6:], BAD_LINE, HUGE_TIME])
    write_closed(folder, TORN, HeartbeatLines("boot-5", "ns-5").start().beats(0, 30_000).lines, torn_by=1)
    regular = HeartbeatLines("boot-6", "ns-6").start()
    for number in range(BEATS):
        # now and then more than the half of a minute
        regular.beat(30_000 * number + 3 * (number % 5))
    write_closed(folder, REGULAR, regular.evict(30_000 * (BEATS + 4), scan=7).lines)
    write_plain(folder, "ns-2-00bb-1.jsonl.open", second_server().lines)
    return folder


def summary(logs: Path, out: Path, engine: str, *options: str) -> dict[str, Any]:
    """What a report says of them; files by their names without endings."""
    chosen = options or ("--what-if", SMALL_GRID)
    assert 0 == main([str(logs), "--out", str(out), "--engine", engine, "--quiet", *chosen])
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
    lines = {"ns-1-00aa-1.jsonl.gz", "ns-1-00aa-2.jsonl.gz", REGULAR}

    assert 0 == main(["compact", str(logs), *flags])

    made = {"ns-1-00aa-1.parquet", "ns-1-00aa-2.parquet", "ns-6-00dd-1.parquet", TORN, "ns-2-00bb-1.jsonl.open"}
    assert made | (set() if flags else lines) == names(logs)
    assert before == summary(logs, tmp_path / "after", engine_name)


def test_regular_beats_are_one_row(logs: Path) -> None:
    """All but the first and the last, which are beside a beginning and an end."""
    main(["compact", str(logs)])
    file = next(logs.rglob("ns-6-*.parquet"))

    with duckdb.connect() as database:
        found = database.execute(
            f"SELECT count(*), sum({RUN}.lines), sum(len({RUN}.beats)) FROM '{file}'"  # noqa: S608 - a name of ours
        ).fetchall()
        types = database.execute("SELECT DISTINCT type FROM parquet_metadata(?)", [str(file)]).fetchall()

    assert [(2 + 2 + 1, BEATS - 2, BEATS - 2)] == found
    # those may be encoded in a way that Spark cannot read, and it skips the file as if it were damaged
    assert ("DOUBLE",) not in types


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--since", "2026-03-01T00:05:10Z", "--until", "2026-03-01T00:15:00Z"),
        # the next scan comes soon enough after some of the gaps
        ("--what-if", "expiry=30 scan=0.007 poll=5"),
        ("--what-if", "expiry=60 scan=5 poll=5"),
    ],
)
def test_what_divides_regular_beats(logs: Path, tmp_path: Path, options: tuple[str, ...], engine_name: str) -> None:
    """A limit of time between them, and settings that take what is between them for a death."""
    before = summary(logs, tmp_path / "before", engine_name, *options)

    main(["compact", str(logs)])

    assert before == summary(logs, tmp_path / "after", engine_name, *options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        "--lates 4 --clock-steps 2 --restarts 1",
        "--duplicates 0.002 --told-late 0.01 --restarts 1 --torn",
        "--jitter 0.05 --missed 0.01 --deaths 20",
    ],
)
def test_irregular_logs_say_the_same(tmp_path: Path, flags: str) -> None:
    """Servers that stand still, lines that are there twice or late, brokers that die often; a third stays lines."""
    logs = tmp_path / "logs"
    generate(["--lines", "20000", "--brokers", "20", "--out", str(logs), *flags.split()])
    before = summary(logs, tmp_path / "before", "embedded")
    main(["compact", str(logs)])
    for compacted in sorted(logs.rglob("*.parquet"))[::3]:
        compacted.unlink()

    assert before == summary(logs, tmp_path / "after", "embedded")


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
    assert "3 files: " in said
    assert f"{TORN}: it ends too early" in said


def test_what_cannot_be_compacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named."""
    assert 2 == main(["compact", str(tmp_path / "nowhere")])
    assert f"{tmp_path}/nowhere: no such file or directory" in capsys.readouterr().err
