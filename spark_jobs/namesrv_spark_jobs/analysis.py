"""From the files of heartbeat logs to everything that a report says: the one entry into the Spark part.

`analyse` is the only place that runs Spark's jobs; what it calls takes and returns DataFrames.
The session is the caller's, and is best built with `SESSION_CONF`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.errors import NothingToReadError
from namesrv_spark_jobs.log_files import truncated
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.pipeline import Lines, Staging, Tables, at_once, make, read
from namesrv_spark_jobs.report.summary import Found, curve, downtimes, gap_rows, summary, timeline_rows
from namesrv_spark_jobs.transforms import (
    boots,
    distributions,
    divergence,
    line_counts,
    lives,
    output_rows,
    replay,
    silences,
)
from namesrv_spark_jobs.transforms.distributions import metric_rows, whole_ms
from namesrv_spark_jobs.transforms.extract import BAD_PART, bad_lines
from namesrv_spark_jobs.transforms.output_rows import client_rows, interval_rows, label, replayed_rows
from namesrv_spark_jobs.transforms.schema import ANCHORS

Rows = list[dict[str, Any]]

MOST_INTERVALS: Final = 20
_NAMES: Final = ("cluster", "broker_name", "broker_id", "broker_addr")

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
#                 "reason", "stale_ms" (both None: open)}]}], "down": {nameserver: [[from_ms, to_ms], ...]}}: at most
#                 the 60 worst brokers, each with its last 50 lives, stale for the last stale_ms; all in wall time
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
        NothingToReadError: no line of them could be read.
    """
    if not files:
        raise FileNotFoundError("no file to read")
    store = Staging(spark, staging)
    # days are those of UTC, wherever it runs
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    progress("reading")
    cut = truncated(files) if taken_in is None else [file for file, is_whole in taken_in.items() if not is_whole]
    lines = read(store, files, options)
    _require_events(lines)
    tables = make(store, lines, options, progress)
    progress("summing up")
    intervals = store.stored(
        interval_rows(tables.intervals, tables.exposures, tables.pulls, redact=options.redact), "interval_rows"
    )
    rows = client_rows(tables.exposures, tables.intervals, redact=options.redact)
    shown = store.stored(rows, "client_rows")
    asked = _Asked(list(taken_in or files), options, cut)
    found, charts = _collect(store, tables, asked, intervals, shown)
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


def _require_events(lines: Lines) -> None:
    counted = lines.tallied.groupBy((F.col("part") == BAD_PART).alias("is_bad")).agg(F.sum("lines").alias("lines"))
    numbers = {row["is_bad"]: row["lines"] for row in counted.collect()}
    if False not in numbers:
        raise NothingToReadError(numbers.get(True, 0))


@dataclass(frozen=True)
class _Asked:
    """What the analysis was asked for, and which of its files end too early."""

    files: Sequence[str]
    options: Options
    truncated: Sequence[str]


def _collect(
    store: Staging, tables: Tables, asked: _Asked, intervals: DataFrame, clients: DataFrame
) -> tuple[Found, dict[str, Any]]:
    """What the summary is made of, and what the charts draw."""
    grid = asked.options.what_if
    stored = at_once(
        {
            "values": lambda: store.stored(_values(tables, clients), "values"),
            "lives": lambda: store.stored(_named_lives(tables), "named_lives"),
            "near": lambda: store.stored(_near_misses(tables), "near_misses"),
        }
    )
    values, named, near = stored["values"], stored["lives"], stored["near"]
    told = at_once(
        {
            "files": lambda: _files(tables, asked),
            "events": lambda: _rows(line_counts.by_event(tables.lines.tallied).orderBy("event")),
            "distributions": lambda: _rows(_distributions(values)),
            "flags": lambda: _rows(_flags(tables)),
            "exposed": lambda: _rows(tables.exposures.groupBy("outcome").agg(F.count(F.lit(1)).alias("count"))),
            "false_evictions": lambda: _rows(_by(tables.intervals.filter("is_false"), label(), F.count(F.lit(1)))),
            "pulls_by_broker": lambda: _rows(_by(_pulls(tables), label(), F.sum("pulls"))),
            "pulls_by_topic": lambda: _rows(_by(tables.pulls, F.col("topic"), F.sum("pulls"))),
            "near_misses": lambda: _rows(
                _by(near, F.col("broker"), F.count(F.lit(1)), F.max("silence").alias("longest"))
            ),
            "worst_near_miss": lambda: _worst_near_miss(near, tables),
            "episodes": lambda: _episodes(named, tables),
            "replay": lambda: _rows(replay.compared(tables.lives, tables.as_logged)),
            "what_if": lambda: _rows(replay.judged(_evictions(tables))),
            "what_if_clients": lambda: _rows(replay.with_polls(_evictions(tables), grid.poll_ms)),
            "worst": lambda: _worst(intervals),
            "curves": lambda: _rows(distributions.curves(values)),
            "timeline": lambda: _rows(output_rows.timeline(named, tables.clocks.boots)),
            "gaps": lambda: _rows(silences.gap_bins(tables.points)),
        }
    )
    charts = _charts(told.pop("curves"), told.pop("timeline"), told.pop("gaps"), tables)
    (flags,), (replayed,) = told.pop("flags"), told.pop("replay")
    found = Found(
        **told,
        flags=flags,
        replay=replayed,
        boots=[row.asDict() for row in tables.clocks.boot_rows],
        truncated=len(asked.truncated),
        policies=replay.policies(grid),
        poll_ms=asked.options.poll_ms,
        polls_ms=grid.poll_ms,
    )
    return found, charts


def _rows(table: DataFrame) -> Rows:
    return [row.asDict(recursive=True) for row in table.collect()]


def _values(tables: Tables, clients: DataFrame) -> DataFrame:
    of_clients = clients.withColumn("staleness", F.rint(F.col("staleness_ms") * 1000).cast("long"))
    return distributions.registry_values(tables.intervals).unionByName(distributions.client_values(of_clients))


def _by(table: DataFrame, key: Column, number: Column, *others: Column) -> DataFrame:
    return table.groupBy(F.coalesce(key, F.lit("")).alias("key")).agg(number.alias("count"), *others)


def _named_lives(tables: Tables) -> DataFrame:
    """All lives, open ones as well, with the names of their brokers."""
    return tables.lives.drop(*_NAMES).join(tables.brokers, on=["key", "who"], how="left")


def _files(tables: Tables, asked: _Asked) -> Rows:
    anchors = tables.clocks.moments.filter(F.col("event").isin(*ANCHORS))
    steps = boots.clock_steps(anchors).join(F.broadcast(tables.lines.files), on="file", how="left")
    stepped = {row["name"]: row["count"] for row in steps.groupBy("name").count().collect()}
    return line_counts.per_file(asked.files, _rows(line_counts.by_file(tables.lines.tallied)), stepped, asked.truncated)


def _flags(tables: Tables) -> DataFrame:
    over = tables.intervals.agg(F.count(F.when(F.col("is_over_bound"), 1)).alias("over_bound"))
    unknown = tables.unknown_revisions.agg(F.count(F.lit(1)).alias("unknown_revisions"))
    return over.join(unknown, how="cross")


def _distributions(values: DataFrame) -> DataFrame:
    return distributions.worst(values.groupBy("measure", "scope", "key").agg(*distributions.measures()))


def _near_misses(tables: Tables) -> DataFrame:
    near = lives.near_misses(tables.points).join(tables.brokers, on=["key", "who"], how="left")
    return near.withColumn("broker", label())


def _pulls(tables: Tables) -> DataFrame:
    named = tables.intervals.select("key", "evict_seq", *_NAMES)
    return tables.pulls.join(named, on=["key", "evict_seq"], how="inner")


def _worst_near_miss(near: DataFrame, tables: Tables) -> Rows:
    """The one that came closest to an eviction, if any."""
    boots = F.broadcast(tables.clocks.boots.select("boot", "boot_id", "nameserver"))
    order = (F.desc(F.col("silence") / F.col("expiry")), F.desc("silence"), "broker", "boot_id", "mono", "seq")
    return _rows(near.join(boots, on="boot", how="inner").orderBy(*order).limit(1))


def _episodes(named: DataFrame, tables: Tables) -> Rows:
    """Disagreement takes two."""
    if len({row["nameserver"] for row in tables.clocks.boot_rows}) < 2:  # noqa: PLR2004 - see above
        return []
    lengths = divergence.episodes(named, tables.clocks.boots).withColumn("length", F.col("ended") - F.col("began"))
    of_broker = lengths.groupBy(label().alias("key")).agg(
        F.count(F.lit(1)).alias("count"), F.sum("length").alias("total"), F.max("length").alias("longest")
    )
    return _rows(of_broker)


def _evictions(tables: Tables) -> DataFrame:
    """Those of all policies, with those of the logged settings."""
    logged = tables.as_logged.select(F.lit(replay.LOGGED).alias("policy"), "staleness", "is_false")
    return tables.evictions.unionByName(logged)


def _worst(intervals: DataFrame) -> Rows:
    order = (F.desc("upper_ms"), "removed_ms", "nameserver", "boot_id", "cluster", "broker_addr", "evict_seq")
    # who said goodbye left no stale route
    stale = intervals.filter(F.col("upper_ms") > 0)
    rows = _rows(stale.orderBy(*order).limit(MOST_INTERVALS))
    return [{name: _whole(value) for name, value in row.items()} for row in rows]


def _whole(value: Any) -> Any:
    """Nothing in a summary has a fraction."""
    return whole_ms(value * 1000) if isinstance(value, float) else value


def _charts(curves: Rows, timeline: Rows, gaps: Rows, tables: Tables) -> dict[str, Any]:
    points = {row["measure"]: row["points"] for row in curves}
    wall = [(row["first"], row["last"], row["offset_ms"] * 1000) for row in tables.clocks.boot_rows]
    return {
        "registry_cdf": curve(points.get("registry")),
        "client_cdf": curve(points.get("client")),
        "timeline": {
            "from_ms": _edge(min, (first + offset for first, _, offset in wall)),
            "to_ms": _edge(max, (last + offset for _, last, offset in wall)),
            "brokers": timeline_rows(timeline),
            "down": downtimes(row.asDict() for row in tables.clocks.boot_rows),
        },
        "gaps": gap_rows(gaps),
    }


def _edge(choose: Callable[..., int], moments: Iterable[int]) -> int:
    return whole_ms(choose(moments, default=0))
