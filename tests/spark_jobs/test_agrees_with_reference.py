"""The embedded engine and the reference have equal results, event by event, for random logs.

The reference is the oracle; its own tests have expected values written by hand. Spark is compared with the embedded
engine.
"""

import json
import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from namesrv_spark_jobs.analysis import METRIC_COLUMNS, Analysis, analyse
from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.engines.spark import SparkEngine
from namesrv_spark_jobs.options import Options, WhatIf
from namesrv_spark_jobs.transforms.output_rows import INTERVAL_COLUMNS
from tests.spark_jobs import reference
from tests.spark_jobs.heartbeat_log_cases import Files, log
from tests.spark_jobs.reference.analysis import comparable
from tests.support.spark_logs import damaged_files

BOOTS = 24
GRID = WhatIf(
    expiry_ms=(1_000, 2_000, 5_000),
    scan_ms=(300, 1_000),
    poll_ms=(1_000, 7_000),
)
WHOLE = Options(what_if=GRID)
A_PART = Options(
    what_if=GRID,
    poll_ms=1_500,
    since_ms=1_772_323_205_000,
    until_ms=1_772_323_300_000,
    nameservers=("ns-0", "ns-1"),
    topics=("t",),
    clusters=("c1", "other"),
)
# More tasks and smaller slices of files than usual, and generated code as in production.
DIVIDED = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "7",
    "spark.sql.files.maxPartitionBytes": "16384",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


def check(ours: Analysis, theirs: reference.Analysis) -> None:
    """Compare every interval and every number of the summary."""
    found_rows = [row.asDict() for row in ours.intervals.select(*INTERVAL_COLUMNS).collect()]
    assert in_order(theirs.interval_rows()) == in_order(found_rows)
    expected, found = theirs.summary, comparable(ours.summary)
    for part, value in expected.items():
        assert (part, found[part]) == (part, value)
    # Intervals over their bound come first, then the longest ones.
    stalest = sorted((row["over_bound"], row["upper_ms"]) for row in theirs.interval_rows() if row["upper_ms"])[:-21:-1]
    worst = [(row["over_bound"], row["upper_ms"]) for row in ours.summary["worst"]]
    assert [(is_over, math.floor(ms + 0.5)) for is_over, ms in stalest] == worst
    (everything,) = (row for row in ours.metrics if (row["measure"], row["scope"]) == ("registry", "all"))
    assert tuple(everything) == METRIC_COLUMNS
    assert expected["registry"]["all"] == {name: everything[name] for name in expected["registry"]["all"]}
    curve, timeline = ours.charts["registry_cdf"], ours.charts["timeline"]
    assert sorted(curve) == curve
    assert (len(curve), len(timeline["brokers"])) <= (201, 60)


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, sorted by all columns."""
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))


def written(files: Files, folder: Path) -> list[Path]:
    """Write the files of a log."""
    folder.mkdir()
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [folder / name for name in files]


def as_table(paths: list[Path], files: Files) -> tuple[list[Path], Files]:
    """The log with every fifth file without bad lines moved to one Parquet table."""
    bad = {name for name, count in reference.Analysis(files).files.items() if count["bad"]}
    chosen = [path for path in paths[::5] if path.name not in bad]
    # The table has the last name, since tables come after text files: of equal lines the first counts.
    table = paths[0].with_name("z.parquet")
    duckdb.sql(f"COPY (FROM read_json({[str(path) for path in chosen]})) TO '{table}'")
    rest = [path for path in paths if path not in chosen]
    lines = [line for path in chosen for line in files[path.name]]
    return [table, *rest], {table.name: lines, **{path.name: files[path.name] for path in rest}}


@contextmanager
def divided(spark: SparkSession) -> Iterator[None]:
    """Spark divides its work in another way than by default."""
    usual = {name: spark.conf.get(name) for name in DIVIDED}
    for name, value in DIVIDED.items():
        spark.conf.set(name, value)
    try:
        yield
        # The engine kept the session's settings, which this test and --conf change.
        assert {name: spark.conf.get(name) for name in DIVIDED} == DIVIDED
    finally:
        for name, before in usual.items():
            spark.conf.set(name, str(before))


def made_up(tmp_path: Path) -> tuple[list[Path], Files]:
    """A random log; a failing test shows its seed."""
    seed = secrets.randbits(32)
    print(f"log({seed}, {BOOTS})")  # noqa: T201
    files = log(seed, BOOTS)
    return written(files, tmp_path / "log"), files


@pytest.mark.parametrize("seed", [793000811, 1812976885])
def test_dropped_line_may_have_the_time_of_a_delay(tmp_path: Path, seed: int) -> None:
    """Of a `dropped` and a `late` line at the same time, the part of a boot after the gap begins with `dropped`."""
    files = log(seed, BOOTS)
    paths = written(files, tmp_path / "log")
    with EmbeddedEngine(tmp_path / "embedded") as engine:
        check(analyse(engine, [str(path) for path in paths], WHOLE, print), reference.Analysis(files, WHOLE))


def test_embedded_engine_and_reference_agree(tmp_path: Path) -> None:
    """The results are equal for the whole log, and for a part of it, partly from a table."""
    paths, files = made_up(tmp_path)
    with EmbeddedEngine(tmp_path / "embedded") as engine:
        check(analyse(engine, [str(path) for path in paths], WHOLE, print), reference.Analysis(files, WHOLE))
        mixed, named = as_table(paths, files)
        check(analyse(engine, [str(path) for path in mixed], A_PART, print), reference.Analysis(named, A_PART))


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_engines_agree_to_the_digit(spark: SparkSession, tmp_path: Path) -> None:
    """Results and their order are equal for a part of the lines; the input has damaged files and a table."""
    paths, files = made_up(tmp_path)
    mixed, _ = as_table(paths, files)
    with EmbeddedEngine(tmp_path / "embedded") as embedded, divided(spark):
        on_spark = SparkEngine(spark, f"file://{tmp_path}/staging")
        check_equal(embedded, on_spark, [*mixed, *damaged_files(tmp_path / "damaged")], A_PART)


def check_equal(one: Engine, other: Engine, paths: list[Path], options: Options) -> None:
    """Check that both engines have equal results for these files."""
    expected, found = (analyse(engine, [str(path) for path in paths], options, print) for engine in (one, other))
    for part in ("summary", "metrics", "charts"):
        assert getattr(found, part) == getattr(expected, part)
    for part in ("intervals", "bad"):
        expected_rows, found_rows = getattr(expected, part), getattr(found, part)
        assert found_rows.columns == expected_rows.columns
        assert in_order([row.asDict() for row in found_rows.collect()]) == in_order(expected_rows.collect())
