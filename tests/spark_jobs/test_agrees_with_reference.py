"""Does Spark find event for event what the reference finds, on logs that hypothesis makes up?"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from namesrv_spark_jobs.analysis import Analysis, analyse
from namesrv_spark_jobs.options import Options, WhatIf
from namesrv_spark_jobs.transforms.output_rows import CLIENT_COLUMNS, INTERVAL_COLUMNS, REPLAYED_COLUMNS
from tests.spark_jobs import reference
from tests.support.heartbeat_log_cases import Files, log

pytestmark = pytest.mark.xdist_group("spark")

# one run of Spark takes as long for sixty boots as for one
BOOTS = 60
GRID = WhatIf(expiry_ms=(1_000, 2_000, 5_000), scan_ms=(300, 1_000), poll_ms=(1_000, 7_000), phi=(0.2, 1.0, 8.0))


def analysed(spark: SparkSession, files: Files, folder: Path, options: Options) -> Analysis:
    """What Spark says of these files."""
    folder.mkdir()
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    staging = folder.with_name(f"{folder.name}-staging")
    return analyse(spark, [str(folder / name) for name in files], options, str(staging), lambda _line: None)


def rows(table: DataFrame, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """All rows in an order that both sides share."""
    return in_order([row.asDict() for row in table.select(*columns).collect()])


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorted by all they have."""
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))


@pytest.fixture
def folders(tmp_path: Path) -> Callable[[], Path]:
    """A new folder for each example."""
    numbers = iter(range(1_000))
    return lambda: tmp_path / f"log-{next(numbers)}"


@pytest.mark.parametrize(
    "options",
    [
        Options(what_if=GRID),
        Options(
            what_if=GRID,
            poll_ms=1_500,
            since_ms=1_772_323_205_000,
            until_ms=1_772_323_300_000,
            nameservers=("ns-0", "ns-1"),
            topics=("t",),
            clusters=("c1", "other"),
        ),
    ],
    ids=["everything", "a part"],
)
@pytest.mark.slow
def test_spark_and_reference_agree(spark: SparkSession, folders: Callable[[], Path], options: Options) -> None:
    """Every interval, client, replayed eviction and number of the summary."""

    @settings(max_examples=1, phases=[Phase.generate], deadline=None, database=None)
    @given(seed=st.integers(0, 2**32))
    def agree(seed: int) -> None:
        files = log(seed, BOOTS)
        ours = analysed(spark, files, folders(), options)
        theirs = reference.analyse(files, options)
        assert in_order(theirs.interval_rows()) == rows(ours.intervals, INTERVAL_COLUMNS)
        assert in_order(theirs.client_rows()) == rows(ours.clients, CLIENT_COLUMNS)
        assert in_order(theirs.replayed_rows()) == rows(ours.replayed, REPLAYED_COLUMNS)
        expected, found = theirs.summary, comparable(ours.summary)
        for part, value in expected.items():
            assert (part, value) == (part, found[part])

    agree()


def comparable(summary: dict[str, Any]) -> dict[str, Any]:
    """Without what the reference does not say: which files end too early, and which near miss was the worst."""
    files = [{name: row[name] for name in row if name != "truncated"} for row in summary["input"]["per_file"]]
    known = {name: value for name, value in summary["input"].items() if name != "truncated_files"}
    near = {name: value for name, value in summary["near_misses"].items() if name != "worst"}
    return {**summary, "input": {**known, "per_file": files}, "near_misses": near}
