"""Every line is counted as good or bad, and unreadable input gives an error of one line."""

import codecs
import gzip
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from namesrv_spark_jobs.analysis import analyse
from namesrv_spark_jobs.command import run
from namesrv_spark_jobs.command.arguments import read_settings
from namesrv_spark_jobs.command.cli import main
from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.errors import MissingFileError
from namesrv_spark_jobs.options import Options
from tests.support.heartbeat_lines import HeartbeatLines, broker, member
from tests.support.spark_logs import SMALL_GRID, TORN_LINE, analysed, damaged_files, write_plain


def test_bad_lines_have_a_reason(tmp_path: Path) -> None:
    """Bad lines are listed with a reason; known fields are read from newer versions and unknown events."""
    files = [str(file) for file in damaged_files(tmp_path)]
    with EmbeddedEngine(tmp_path / "staging") as engine:
        found = analyse(engine, files, Options(), lambda _step: None)
        bad = {row["line"]: row["reason"] for row in found.bad.collect()}

    names = ("file", "bad", "duplicates", "newer_version", "unknown_events", "truncated")
    a, b, c, empty = [[row[name] for name in names] for row in found.summary["input"]["per_file"]]
    assert a == ["dt=2026-03-01/hour=00 [x]/a.jsonl.open", 10, 0, 1, 1, False]
    assert b == ["dt=2026-03-01/hour=00 [x]/b.jsonl", 0, 4, 0, 0, False]
    assert empty == ["dt=2026-03-01/hour=00 [x]/empty.jsonl", 0, 0, 0, 0, False]
    assert c[-1] is True
    assert found.summary["input"]["truncated_files"] == 1
    assert found.summary["registry"]["all"]["count"] == 1
    assert bad['{"v":1,"seq":1,"event":"heartbeat"}'] == "no ts_ms"
    assert bad[TORN_LINE] == "torn, not JSON, or a field of the wrong type"
    assert {"ts_ms is not a time", "mono_ms is not a time", "count is out of range"} <= set(bad.values())


def test_line_of_another_program_is_listed_verbatim(engine: Engine, tmp_path: Path) -> None:
    """A JSON line of another program is listed with its known fields, here none; a truncated line verbatim.

    JSON has no single quotes.
    """
    good = HeartbeatLines().start().heartbeat(1).lines
    quoted = good[1].replace('"', "'")
    file = write_plain(tmp_path / "logs", "ns-1-boot-1-1.jsonl", ['{"level":"info"}', TORN_LINE, quoted, *good])

    found = analyse(engine, [str(file)], Options(), lambda _step: None)

    bad = {row["line"]: row["reason"] for row in found.bad.select("line", "reason").collect()}
    assert bad == {"{}": "no v", **dict.fromkeys((TORN_LINE, quoted), "torn, not JSON, or a field of the wrong type")}


@pytest.mark.parametrize("others", [[], [TORN_LINE]], ids=["alone", "beside a torn line"])
def test_field_that_a_line_has_twice(engine: Engine, tmp_path: Path, others: list[str]) -> None:
    """The embedded engine takes the first value, also in a file that it splits line by line, and Spark the last."""
    lines = HeartbeatLines().start(expiry_ms=60_000).heartbeat(1).lines
    twice = lines[0].replace('"broker_expiry_ms": 60000', '"broker_expiry_ms": 60000, "broker_expiry_ms": 90000')
    file = write_plain(tmp_path / "logs", "ns-1-boot-1-1.jsonl", [twice, lines[1], *others])

    found = analyse(engine, [str(file)], Options(), lambda _step: None).summary

    (boot,) = found["settings"]
    assert (boot["broker_expiry_ms"], found["input"]["bad"]) == (
        {"embedded": 60_000, "spark": 90_000}[str(engine.describe()["name"])],
        len(others),
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "empty; no line to read"),
        (['{"v":1}', "garbage"] * 600, "no line of 1,200 could be read; is this a heartbeat log?"),
    ],
    ids=["empty", "garbage"],
)
def test_input_without_readable_lines_makes_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str], message: str
) -> None:
    """Without a readable line the exit code is 2, and nothing is written."""
    file = write_plain(tmp_path / "logs", "ns-1-boot-1-1.jsonl", lines)

    assert main([str(file), "--out", str(tmp_path / "report"), "--engine", "embedded", "--quiet"]) == 2

    assert capsys.readouterr().err == f"namesrv-staleness: {file}: {message}\n"
    assert not (tmp_path / "report").exists()


def test_file_that_is_closed_during_the_run_is_read(tmp_path: Path) -> None:
    """A file that is closed during the run is found under its new name. --redact removes addresses and clients."""
    lines = (
        HeartbeatLines("b").start().heartbeat(0).route(1, 1, member("broker-a")).served(2, 1, client="192.0.2.7:1#1")
    )
    lines.evict(130_000).route(130_000, 2).served(131_000, 2, client="192.0.2.7:1#1")
    file = write_plain(tmp_path / "logs", "ns-2-boot-2-1.jsonl.open", [*lines.lines, '{"client":"192.0.2.7'])
    options = ["--out", str(tmp_path / "report"), "--what-if", SMALL_GRID, "--redact"]

    def closed(step: str) -> None:
        if step == "reading" and file.exists():
            file.with_suffix(".gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()

    settings = read_settings([str(tmp_path / "logs"), *options])
    with EmbeddedEngine(tmp_path / "staging") as engine:
        sources, found = run.analysed(engine, run.Sources([str(file)]), settings, closed)
        tables = [table.collect() for table in (found.intervals, found.bad)]

    assert sources.files == [str(file.with_suffix(".gz"))]
    assert (found.summary["input"]["lines"], found.summary["client"]["seen"]) == (8, 1)
    # Addresses, agents and clients; bad lines are counted, but not listed.
    everything = f"{found.summary} {found.metrics} {found.charts} {tables}"
    assert [hidden for hidden in ("192.0.2.7", "10.0.0.1", "agent-of") if hidden in everything] == []


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("a.jsonl", codecs.BOM_UTF8, b""),
        ("a.jsonl.gz", codecs.BOM_UTF8, b""),
        ("a.jsonl.gz", b"", bytes(512)),
        ("a.jsonl.gz", b"", b"end of the copy"),
    ],
    ids=["marked", "marked and compressed", "filled up", "labelled"],
)
def test_bytes_around_the_lines_are_no_damage(
    engine: Engine, tmp_path: Path, name: str, before: bytes, after: bytes
) -> None:
    """Both engines read every line after a byte order mark, and of a gzip file with trailing bytes."""
    lines = before + "".join(f"{line}\n" for line in HeartbeatLines().start().heartbeats(0, 30_000).lines).encode()
    file = tmp_path / name
    file.write_bytes((gzip.compress(lines) if name.endswith(".gz") else lines) + after)

    read = analyse(engine, [str(file)], Options(), lambda _step: None).summary["input"]

    assert (read["lines"], read["bad"], read["truncated_files"]) == (3, 0, 0)


@pytest.mark.parametrize("name", ["a\x1fb", "\x1f", "a\x00b"])
def test_control_character_in_a_name_moves_no_field(engine: Engine, tmp_path: Path, name: str) -> None:
    """A name, which a peer chooses, must neither end the report nor change other fields of its lines."""
    odd = broker(name, broker_addr="10.0.0.1:10911")
    lines = HeartbeatLines().start().heartbeats(0, 30_000, of=odd).evict(160_000, odd)

    found = analysed(engine, tmp_path, lines)

    (row,) = found.intervals.collect()
    assert (row["cluster"], row["broker_id"], row["broker_addr"]) == ("c1", 0, "10.0.0.1:10911")
    assert row["broker_name"] == name
    (place,) = found.charts["timeline"]["brokers"]
    assert (place["nameserver"], place["broker"]) == ("ns-1", "c1/{}/0".format(name.replace("\x1f", "\u241f")))


def test_missing_file_is_an_error_of_its_own(engine: Engine, tmp_path: Path) -> None:
    """Both engines raise the error after which the run looks for the file's new name."""
    with pytest.raises(MissingFileError):
        analyse(engine, [str(tmp_path / "a.jsonl.open")], Options(), lambda _step: None)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_failure_of_spark_is_one_line(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error has one line; only --debug shows Java's stack trace."""
    words = ["har://bucket/a.jsonl", "--out", str(tmp_path / "report")]

    assert main(words) == 70
    short = capsys.readouterr().err
    assert main([*words, "--debug"]) == 70

    choice, short = short.split("\n", maxsplit=1)
    assert choice == "spark engine: an input is a URL"
    assert short.startswith("namesrv-staleness: Spark failed: ")
    assert short.endswith("; --debug shows the whole trace\n")
    assert short.count("\n") == 1
    assert "Traceback" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
