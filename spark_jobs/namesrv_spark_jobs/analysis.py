"""Entry point of the analysis: from the files of heartbeat logs to all numbers and rows of a report.

Only this module and `pipeline` call an engine; all other functions take DataFrames and return DataFrames. The caller
opens and closes the engine.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from namesrv_spark_jobs.engines.engine import Engine, Rows
from namesrv_spark_jobs.frames import Column, DataFrame, F, written_in
from namesrv_spark_jobs.log_files import truncated
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.percentiles import PERCENTILE_FIELDS
from namesrv_spark_jobs.pipeline import Tables, tables_of
from namesrv_spark_jobs.report.summary import charts, summary
from namesrv_spark_jobs.transforms import clients, divergence, extract, output_rows, replay, silences
from namesrv_spark_jobs.transforms.output_rows import label
from namesrv_spark_jobs.transforms.registration_periods import BROKER

MOST_INTERVALS: Final = 20


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The results. Those of bounded size are plain values, the others are DataFrames of the engine.

    The DataFrames are valid as long as the engine is open: write them before it is closed.
    """

    # the content of summary.json: plain dicts, lists, str, int, bool, None; dump it with sort_keys=True
    summary: dict[str, Any]
    # one row per registration period with an eviction, columns as `output_rows.INTERVAL_COLUMNS`; `date` is the UTC day
    # of the removal
    intervals: DataFrame
    # the rows of metrics.csv, each with the keys of METRIC_COLUMNS, sorted
    metrics: list[dict[str, Any]]
    # the data of the charts, see below
    charts: dict[str, Any]
    # bad lines: file, reason, line (its first 500 characters, invalid bytes replaced; None with `redact`)
    bad: DataFrame


METRIC_COLUMNS = (
    "scope",  # all, reason, nameserver, cluster, broker, topic, client
    "key",  # "" for all
    "measure",  # registry (upper), registry_lower, client
    *("count", *PERCENTILE_FIELDS, "max", "mean", "total_ms"),
)

# charts:
#   registry_cdf  [[ms, share 0..1], ...], at most 201 points, ascending; [] without intervals
#   client_cdf    the same of client staleness
#   timeline      {"from_ms", "to_ms", "brokers": [{"broker", "nameserver", "periods": [{"from_ms", "last_ok_ms",
#                 "to_ms", "reason", "stale_ms" (both None: open)}]}], "down": {nameserver: [[from_ms, to_ms], ...]}}:
#                 at most the 60 worst brokers, each with its last 50 registration periods, stale for the last stale_ms;
#                 all in wall time
#   heartbeat_intervals  [{"from_pct", "to_pct" (None: open), "count"}]: intervals in liveness time, in percent of the
#                 broker's expiry


def analyse(
    engine: Engine,
    files: Sequence[str],
    options: Options,
    progress: Callable[[str], None],
    *,
    taken_in: Mapping[str, bool] | None = None,
) -> Analysis:
    """Analyse `files` (paths, or URLs that the engine can open).

    `progress` is called with one short line at the beginning of each stage.
    When `files` are tables of lines from earlier runs (--follow), `taken_in` has the original files, and for each
    whether it was whole.

    Raises:
        FileNotFoundError: `files` is empty.
        MissingFileError: a file has been removed or renamed.
        NothingToReadError: no line could be read.
    """
    if not files:
        raise FileNotFoundError("no file to read")
    progress("reading")
    cut = truncated(files) if taken_in is None else [file for file, is_whole in taken_in.items() if not is_whole]
    with written_in(engine):
        tables = tables_of(engine, files, options, progress)
        report_tables = _of_report(engine, tables, options, progress)
        progress("summing up")
        return _summed_up(engine, report_tables, options, list(taken_in or files), cut)


@dataclass(frozen=True, kw_only=True)
class ReportTables(Tables):
    """With the tables that only the report needs; the transforms of the same names describe their rows."""

    exposures: DataFrame
    pulls: DataFrame
    unknown_revisions: DataFrame
    evictions: DataFrame
    as_logged: DataFrame


def _of_report(engine: Engine, tables: Tables, options: Options, progress: Callable[[str], None]) -> ReportTables:
    progress("clients")
    routes, intervals, rest = tables.routes, tables.intervals, tables.rest
    members = engine.stored(clients.members(routes, intervals), "members")
    given = clients.given(rest, "served", options.topics)
    progress("what if")
    stored = engine.all_stored(
        exposures=clients.exposures(intervals, members, clients.served(given, routes), rest),
        pulls=clients.exposed_pulls(intervals, members, clients.given(rest, "pulls", options.topics)),
        evictions=replay.replayed(tables.silences, options.what_if),
        as_logged=replay.replayed_as_logged(tables.silences, tables.moments),
    )
    return ReportTables(
        **vars(tables),
        exposures=stored["exposures"],
        pulls=stored["pulls"],
        unknown_revisions=clients.unknown_revisions(given, routes),
        evictions=stored["evictions"],
        as_logged=stored["as_logged"],
    )


def _summed_up(
    engine: Engine, tables: ReportTables, options: Options, files: Sequence[str], cut: Collection[str]
) -> Analysis:
    rows = output_rows.interval_rows(tables.intervals, tables.exposures, tables.pulls, redact=options.redact)
    intervals = engine.stored(rows, "interval_rows")
    collected = _collected(engine, tables, options, intervals)
    collected["files"] = extract.per_file(files, collected["files"] + collected["clock_steps"], cut)
    summed = summary(collected, options)
    return Analysis(
        summary=summed,
        intervals=intervals,
        metrics=output_rows.metric_rows(collected["distributions"]),
        charts=charts(collected, summed),
        bad=extract.bad_lines(tables.bad, tables.files, options),
    )


def _collected(engine: Engine, tables: ReportTables, options: Options, intervals: DataFrame) -> dict[str, Rows]:
    """The rows for summary and charts, by name; their number is bounded."""
    stored = engine.all_stored(
        values=output_rows.distributed_values(tables.intervals, tables.exposures, redact=options.redact),
        named_periods=tables.named_periods,
        near_misses=tables.near_misses.withColumn("broker", label()),
    )
    values, named, near = stored["values"], stored["named_periods"], stored["near_misses"]
    count = F.count(F.lit(1))
    steps = tables.clock_steps.join(F.broadcast(tables.files), on="file", how="left").drop("file")
    evicted = tables.intervals.select("key", "evict_seq", *BROKER)
    pulls = tables.pulls.join(evicted, on=["key", "evict_seq"], how="inner")
    logged = tables.as_logged.select(F.lit(replay.LOGGED).alias("policy"), "staleness", "is_false")
    evictions = tables.evictions.unionByName(logged)
    worst_first = (
        F.desc("over_bound"),
        F.desc("upper_ms"),
        "removed_ms",
        "nameserver",
        "boot_id",
        "cluster",
        "broker_addr",
        "evict_seq",
    )
    over_bound = F.count(F.when(F.col("is_over_bound"), 1)).alias("over_bound")
    tables_by_name = {
        "files": extract.by_file(tables.tallied),
        "clock_steps": steps.groupBy(F.col("name").alias("file")).agg(count.alias("clock_steps")),
        "events": extract.by_event(tables.tallied).orderBy("event"),
        "distributions": output_rows.distributions(values),
        "over_bound": tables.intervals.agg(over_bound),
        "unknown_revisions": tables.unknown_revisions.agg(count.alias("unknown_revisions")),
        "exposed": tables.exposures.groupBy("outcome").agg(count.alias("count")),
        "false_evictions": _by(tables.intervals.filter("is_false"), label(), count),
        "pulls_by_broker": _by(pulls, label(), F.sum("pulls")),
        "pulls_by_topic": _by(tables.pulls, F.col("topic"), F.sum("pulls")),
        "near_misses": _by(near, F.col("broker"), count, F.max("silence").alias("longest")),
        "worst_near_miss": _worst_near_miss(near, tables.boots),
        "replay": replay.compared(tables.periods, tables.as_logged),
        "what_if": replay.judged(evictions),
        "what_if_clients": replay.with_polls(evictions, options.what_if.poll_ms),
        # a broker that unregistered has left no stale route
        "worst": intervals.filter(F.col("upper_ms") > 0).orderBy(*worst_first).limit(MOST_INTERVALS),
        "curves": output_rows.curves(values),
        "timeline": output_rows.timeline(named, tables.boots),
        "heartbeat_intervals": silences.interval_bins(tables.points),
    }
    # a single server cannot disagree with another; two servers may have one name
    if len({row["boot_id"] for row in tables.boot_rows}) > 1:
        tables_by_name["episodes"] = divergence.by_broker(divergence.episodes(named, tables.boots))
    return {"episodes": [], "boots": tables.boot_rows, **engine.collected(tables_by_name)}


def _by(table: DataFrame, key: Column, number: Column, *others: Column) -> DataFrame:
    return table.groupBy(F.coalesce(key, F.lit("")).alias("key")).agg(number.alias("count"), *others)


def _worst_near_miss(near: DataFrame, boots: DataFrame) -> DataFrame:
    """The near miss with the largest share of the expiry, if any."""
    # a broker may have registered with an expiry of 0
    share = F.col("silence") / F.nullif("expiry", F.lit(0))
    order = (F.desc(share), F.desc("silence"), "broker", "boot_id", "mono", "seq")
    named = near.join(F.broadcast(boots.select("boot", "boot_id", "nameserver", "offset_ms")), on="boot", how="inner")
    return named.orderBy(*order).limit(1)
