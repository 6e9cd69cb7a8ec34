"""From the files of heartbeat logs to everything that a report says: the one entry into the Spark part.

`analyse` is the only place that runs Spark's jobs; what it calls takes and returns DataFrames.
The session is the caller's, and is best built with `SESSION_CONF`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from namesrv_spark_jobs import pipeline
from namesrv_spark_jobs.collecting import Asked, collect
from namesrv_spark_jobs.log_files import truncated
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.report.summary import summary
from namesrv_spark_jobs.staging import Staging
from namesrv_spark_jobs.transforms.distributions import metric_rows
from namesrv_spark_jobs.transforms.extract import bad_lines
from namesrv_spark_jobs.transforms.output_rows import client_rows, interval_rows, replayed_rows

# What a session is best built with: about time, not about results. The user's own word comes after it.
SESSION_CONF: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "64",
    # lines are written into their parts as they come, and not sorted by part before
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # closed logs are compressed and cannot be split: a few of them to a task, so that no core waits for a long one
    "spark.sql.files.maxPartitionBytes": "12m",
    "spark.sql.files.openCostInBytes": "1m",
    # the beats of a broker are walked through in memory, and sorted a second time only when there are very many
    "spark.sql.windowExec.buffer.in.memory.threshold": "100000",
    # intermediate tables live for minutes
    "spark.sql.parquet.compression.codec": "lz4_raw",
    # listing files with tasks pays for thousands of them on an object store, not for hundreds
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What was found. All that has a bounded size is a plain value, the rest is a DataFrame over `staging`.

    The DataFrames live as long as the folder `staging` and the session do: write them before these go.
    """

    # the content of summary.json: plain dicts, lists, str, int, bool, None; dump it with sort_keys=True
    summary: dict[str, Any]
    # one row per evicted life, columns as `tables.INTERVAL_COLUMNS`; `date` is the UTC day of its removal, YYYY-MM-DD
    intervals: DataFrame
    # one row per (eviction, client, topic) that was exposed, columns as `tables.CLIENT_COLUMNS`
    clients: DataFrame
    # one row per replayed eviction under the logged settings, columns as `tables.REPLAYED_COLUMNS`
    replayed: DataFrame
    # the rows of metrics.csv, each with the keys of METRIC_COLUMNS, sorted
    metrics: list[dict[str, Any]]
    # what the HTML draws, see below
    charts: dict[str, Any]
    # bad lines: file, reason, line (its first 500 characters, invalid bytes replaced)
    bad: DataFrame


METRIC_COLUMNS = (
    "scope",  # all, reason, nameserver, cluster, broker, topic, client
    "key",  # "" for all
    "measure",  # registry (upper), registry_lower, client
    "count",
    "p50",
    "p90",
    "p95",
    "p99",
    "p999",
    "max",
    "mean",
    "total_ms",
)

# charts:
#   bound_ms      int
#   registry_cdf  [[ms, share 0..1], ...], at most 201 points, ascending; [] without intervals
#   client_cdf    the same of client staleness
#   timeline      {"from_ms", "to_ms", "brokers": [{"broker", "nameserver", "lives": [{"from_ms", "last_ok_ms", "to_ms",
#                 "reason" (None: open)}]}]}: at most the 60 worst, each with its last 50 lives; stale from last_ok_ms
#                 to to_ms when it has a reason; all in wall time
#   gaps          [{"from_pct", "to_pct", "count"}]: gaps between beats as percentages of the broker's expiry
#   worst         as summary["worst"]
#   what_if       as summary["what_if"]


def analyse(  # noqa: PLR0913 - the one entry takes all there is
    spark: SparkSession,
    files: Sequence[str],
    options: Options,
    staging: str,
    progress: Callable[[str], None],
    *,
    taken_in: Mapping[str, bool] | None = None,
) -> Analysis:
    """Read `files` (paths or URLs that Spark knows), keep intermediate tables below `staging`, say how far it is.

    `progress` is called with one short line at the beginning of each of a few steps.
    When `files` are tables of lines that were taken in before, `taken_in` has the files that these lines are from, and
    whether each of them is whole.

    Raises:
        FileNotFoundError: when `files` is empty.
    """
    if not files:
        raise FileNotFoundError("no file to read")
    store = Staging(spark, staging)
    # days are those of UTC, wherever it runs
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    progress("reading")
    cut = truncated(files) if taken_in is None else [file for file, is_whole in taken_in.items() if not is_whole]
    tables = pipeline.make(store, pipeline.read(store, files, options), options, progress)
    progress("summing up")
    intervals = store.stored(
        interval_rows(tables.intervals, tables.exposures, tables.pulls, redact=options.redact), "interval_rows"
    )
    rows = client_rows(tables.exposures, tables.intervals, redact=options.redact)
    shown = store.stored(rows, "client_rows")
    asked = Asked(list(taken_in or files), options, cut)
    found, charts = collect(store, tables, asked, intervals, shown)
    made = summary(found)
    return Analysis(
        summary=made,
        intervals=intervals,
        clients=shown,
        replayed=replayed_rows(tables.as_logged, tables.clocks.boots, tables.brokers, redact=options.redact),
        metrics=metric_rows(found.distributions),
        charts={**charts, "bound_ms": made["bound_ms"], "worst": made["worst"], "what_if": made["what_if"]},
        bad=bad_lines(tables.lines.bad, tables.lines.files, options),
    )
