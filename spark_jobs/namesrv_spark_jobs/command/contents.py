"""What is in a report's directory?"""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame

from namesrv_spark_jobs.analysis import METRIC_COLUMNS, Analysis
from namesrv_spark_jobs.command.output import write_json
from namesrv_spark_jobs.report.html.document import document

INTERVALS: Final = "intervals"
BAD_RECORDS: Final = "bad_records"
# every reader of Parquet knows it
_CODEC: Final = "snappy"


def write_tables(aside: Path, analysis: Analysis) -> None:
    """What Spark writes: one row per interval, one per bad line."""
    _write_parquet(analysis.intervals, aside / INTERVALS, by="date")
    analysis.bad.coalesce(1).write.json(_url(aside / BAD_RECORDS))


def write_numbers(aside: Path, analysis: Analysis) -> None:
    """What people and gates read."""
    write_json(aside / "summary.json", analysis.summary)
    _write_csv(aside / "metrics.csv", METRIC_COLUMNS, analysis.metrics)
    page = document(analysis.summary, analysis.charts)
    (aside / "report.html").write_text(page, encoding="utf-8")


def _write_parquet(frame: DataFrame, folder: Path, *, by: str) -> None:
    frame.repartition(by).sortWithinPartitions(*frame.columns).write.option("compression", _CODEC).partitionBy(
        by
    ).parquet(_url(folder))
    if not any(folder.rglob("*.parquet")):
        # no row makes no file at all, and a folder without a file has no columns: who reads it would get an error
        frame.limit(0).coalesce(1).write.option("compression", _CODEC).mode("overwrite").parquet(_url(folder))


def _url(path: Path) -> str:
    """Without a scheme a cluster would take its own file system; Spark wants no percent escapes."""
    return f"file://{path}"


def _write_csv(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _safe(value) for key, value in row.items()} for row in rows)


def _safe(value: object) -> object:
    """A spreadsheet would run a name that begins like a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
