"""Files that DuckDB reads in Spark's tasks, and those that are left to Spark."""

from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.engines.embedded.tables import Table
from namesrv_spark_jobs.engines.engine import Shape
from namesrv_spark_jobs.engines.read_by_tasks import Order, grouped, read
from namesrv_spark_jobs.log_files import log_files
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.transforms import extract
from tests.support.spark_logs import write_log


def sized(file: Path, size: int) -> str:
    """A file of that size, without content."""
    with file.open("wb") as stream:
        stream.truncate(size)
    return str(file)


def test_small_files_share_a_task(tmp_path: Path) -> None:
    """By how much JSON is in them, in their order."""
    sizes = {"a.jsonl": 60_000_000, "b.jsonl": 60_000_000, "c.jsonl.gz": 2_000_000, "d.jsonl": 1}
    a, *others = [sized(tmp_path / name, size) for name, size in sizes.items()]

    assert [[a], others] == grouped([a, *others])


def test_what_is_left_to_spark(tmp_path: Path) -> None:
    """All of it, when one file is out of reach or too large for one task."""
    small, large = sized(tmp_path / "a.jsonl", 1), sized(tmp_path / "b.jsonl", 2_000_000_001)

    assert [] == grouped([small, large])
    assert [] == grouped([small, "s3a://bucket/c.jsonl"])


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_executors_of_another_version_read_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """They would have other numbers for the same names. Nor does anybody read a file that has gone."""
    files = log_files([str(write_log(tmp_path / "logs"))])
    order = partial(
        Order,
        made=partial(extract.events, options=Options()),
        named=extract.file_names,
        shape=Shape(by="part"),
        lines=str(tmp_path / "lines"),
        names=str(tmp_path / "names"),
    )

    assert read(spark, files, order(version=duckdb.__version__))
    assert read(spark, files, order(version="0.0.1")) is None
    assert read(spark, [*files, str(tmp_path / "gone.jsonl")], order(version=duckdb.__version__)) is None


def test_spark_can_read_what_is_written_for_it(tmp_path: Path) -> None:
    """Floating point that is never the same twice is split by bytes in the newer encodings, which it cannot read."""
    with EmbeddedEngine(tmp_path / "scratch") as engine:
        table: Any = Table(engine, "SELECT CAST(range * 1.37 AS DOUBLE) AS number FROM range(1000)", ["number"])
        written = engine.write_for_others(table, tmp_path / "numbers.parquet")
        found = engine.rows_of(f"SELECT encodings FROM parquet_metadata('{written}')")  # noqa: S608 - a name of ours

    assert [{"encodings": "PLAIN"}] == [dict(row) for row in found]
