"""Is every line counted, whatever is wrong with it, and is the result the same however it is read?"""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from namesrv_spark_jobs.analysis import Analysis, analyse
from namesrv_spark_jobs.options import Options
from tests.support.heartbeat_lines import HeartbeatLines
from tests.support.heartbeat_log_cases import log

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]


def run(spark: SparkSession, files: Iterable[Path], staging: Path, options: Options | None = None) -> Analysis:
    """The analysis of these files."""
    return analyse(spark, [str(file) for file in files], options or Options(), str(staging), lambda _line: None)


def text(lines: HeartbeatLines) -> bytes:
    """The lines as they are in a file."""
    return "".join(f"{line}\n" for line in lines.lines).encode()


def counted(analysis: Analysis, *names: str) -> dict[str, tuple[Any, ...]]:
    """Numbers of each file."""
    return {row["file"]: tuple(row[name] for name in names) for row in analysis.summary["input"]["per_file"]}


def test_everything_that_may_be_wrong_with_a_line(spark: SparkSession, tmp_path: Path) -> None:
    """Bad lines are shown with a reason; what is of a newer version, or unknown, is read as far as it is known."""
    folder = tmp_path / "dt=2026-03-01" / "hour=00 [x]"
    folder.mkdir(parents=True)
    good = HeartbeatLines("b").start().beats(0, 30_000).evict(160_000)
    torn = good.lines[1][:40].encode()
    invalid = good.lines[1].replace("broker-a", "broker-\udcff").encode(errors="surrogateescape")
    newer = json.dumps({**json.loads(HeartbeatLines("c").beat(5).lines[0]), "v": 3, "colour": "red"}).encode()
    unknown = HeartbeatLines("d").add("teleported", 5).lines[0].encode()
    missing = b'{"v":1,"seq":1,"event":"heartbeat"}'
    content = text(good) + b"\n".join([b"", invalid, newer, unknown, missing, b"x[]", torn])
    (folder / "a.jsonl.open").write_bytes(content)
    (folder / "b.jsonl").write_bytes(text(good))
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(text(HeartbeatLines("e").start().beat(1)) * 500)[:-30])
    (folder / "empty.jsonl").write_bytes(b"")

    found = run(spark, sorted(folder.iterdir()), tmp_path / "staging")

    prefix = "dt=2026-03-01/hour=00 [x]"
    numbers = counted(found, "bad", "duplicates", "newer_version", "unknown_events", "truncated")
    assert (4, 0, 1, 1, False) == numbers[f"{prefix}/a.jsonl.open"]
    assert (0, 4, 0, 0, False) == numbers[f"{prefix}/b.jsonl"]
    assert numbers[f"{prefix}/c.jsonl.gz"][-1] is True
    assert (0, 0, 0, 0, False) == numbers[f"{prefix}/empty.jsonl"]
    assert 1 == found.summary["input"]["truncated_files"]
    assert 1 == found.summary["registry"]["all"]["count"]
    bad = {row["line"]: row["reason"] for row in found.bad.collect()}
    assert "no ts_ms" == bad['{"v":1,"seq":1,"event":"heartbeat"}']
    assert "torn, no JSON, or a field of another type" == bad[torn.decode()]


def test_the_same_summary_however_the_work_is_divided(spark: SparkSession, tmp_path: Path) -> None:
    """From text on two partitions, from text on seven in slices of 4 KiB, and from a table."""
    files = []
    for name, lines in log(5, 12).items():
        files.append(tmp_path / name)
        files[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    usual = run(spark, files, tmp_path / "s1")
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4096")
    try:
        divided = run(spark, reversed(files), tmp_path / "s2")
        # what the session was told is still so: else neither this test nor --conf would change anything
        assert "4096" == spark.conf.get("spark.sql.files.maxPartitionBytes")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        spark.conf.unset("spark.sql.files.maxPartitionBytes")

    assert json.dumps(usual.summary, sort_keys=True) == json.dumps(divided.summary, sort_keys=True)
    assert usual.metrics == divided.metrics
    assert usual.charts == divided.charts


def test_a_table_says_what_the_text_says(spark: SparkSession, tmp_path: Path) -> None:
    """Parquet of the same columns, `brokers` as a list of records."""
    lines = HeartbeatLines("b").start().beats(0, 30_000).route(1, 1, {"name": "broker-a", "master": True, "ids": [0]})
    lines.served(2, 1).evict(160_000).route(160_000, 2).served(165_000, 2)
    (tmp_path / "a.jsonl").write_bytes(text(lines))
    spark.read.json(str(tmp_path / "a.jsonl")).coalesce(1).write.parquet(str(tmp_path / "a.parquet"))

    of_text = run(spark, [tmp_path / "a.jsonl"], tmp_path / "s1").summary
    of_table = run(spark, [tmp_path / "a.parquet"], tmp_path / "s2").summary

    assert 1 == of_text["client"]["seen"]
    assert {**of_text, "input": None} == {**of_table, "input": None}


def test_what_was_asked_to_be_hidden_is_nowhere(spark: SparkSession, tmp_path: Path) -> None:
    """Addresses, agents and clients; bad lines are counted, and not shown."""
    lines = HeartbeatLines("b").start().beat(0).route(1, 1, {"name": "broker-a", "master": True, "ids": [0]})
    lines.served(2, 1, client="192.0.2.7:1#1").evict(130_000).route(130_000, 2).served(
        131_000, 2, client="192.0.2.7:1#1"
    )
    (tmp_path / "a.jsonl").write_bytes(text(lines) + b'{"client":"192.0.2.7')

    found = run(spark, [tmp_path / "a.jsonl"], tmp_path / "s", Options(redact=True))

    tables = [
        row.asDict() for table in (found.intervals, found.clients, found.replayed, found.bad) for row in table.collect()
    ]
    everything = json.dumps([found.summary, found.metrics, found.charts, tables])
    assert 1 == found.summary["client"]["seen"]
    assert [] == [hidden for hidden in ("192.0.2.7", "10.0.0.1", "agent-of") if hidden in everything]
