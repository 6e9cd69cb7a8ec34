"""What is brought from the tables to the driver? Only what has a bounded size."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs import chart_data
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.pipeline import Tables
from namesrv_spark_jobs.report.summary import Found
from namesrv_spark_jobs.staging import Staging, at_once
from namesrv_spark_jobs.transforms import as_logged, clock, counts, divergence, what_if
from namesrv_spark_jobs.transforms import distributions as metrics
from namesrv_spark_jobs.transforms import intervals as staleness
from namesrv_spark_jobs.transforms.distributions import whole_ms
from namesrv_spark_jobs.transforms.output_rows import label
from namesrv_spark_jobs.transforms.schema import ANCHORS

Rows = list[dict[str, Any]]

MOST_INTERVALS: Final = 20
_NAMES: Final = ("cluster", "broker_name", "broker_id", "broker_addr")


@dataclass(frozen=True)
class Asked:
    """What the analysis was asked for, and which of its files end too early."""

    files: Sequence[str]
    options: Options
    truncated: Sequence[str]


def collect(
    store: Staging, tables: Tables, asked: Asked, intervals: DataFrame, clients: DataFrame
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
            "events": lambda: _rows(counts.by_event(tables.lines.tallied).orderBy("event")),
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
            "replay": lambda: _rows(as_logged.compared(tables.lives, tables.as_logged)),
            "what_if": lambda: _rows(what_if.judged(_evictions(tables))),
            "what_if_clients": lambda: _rows(what_if.with_polls(_evictions(tables), grid.poll_ms)),
            "worst": lambda: _worst(intervals),
            "curves": lambda: _rows(metrics.curves(values)),
            "timeline": lambda: _rows(chart_data.timeline(named, tables.clocks.boots)),
            "gaps": lambda: _rows(chart_data.gap_bins(tables.points)),
        }
    )
    charts = _charts(told.pop("curves"), told.pop("timeline"), told.pop("gaps"), tables)
    (flags,), (replay,) = told.pop("flags"), told.pop("replay")
    found = Found(
        **told,
        flags=flags,
        replay=replay,
        boots=[row.asDict() for row in tables.clocks.boot_rows],
        truncated=len(asked.truncated),
        policies=what_if.policies(grid),
        poll_ms=asked.options.poll_ms,
        polls_ms=grid.poll_ms,
    )
    return found, charts


def _rows(table: DataFrame) -> Rows:
    return [row.asDict(recursive=True) for row in table.collect()]


def _values(tables: Tables, clients: DataFrame) -> DataFrame:
    of_clients = clients.withColumn("staleness", F.rint(F.col("staleness_ms") * 1000).cast("long"))
    return metrics.registry_values(tables.intervals).unionByName(metrics.client_values(of_clients))


def _by(table: DataFrame, key: Column, number: Column, *others: Column) -> DataFrame:
    return table.groupBy(F.coalesce(key, F.lit("")).alias("key")).agg(number.alias("count"), *others)


def _named_lives(tables: Tables) -> DataFrame:
    """All lives, open ones as well, with the names of their brokers."""
    return tables.lives.drop(*_NAMES).join(tables.brokers, on=["key", "who"], how="left")


def _files(tables: Tables, asked: Asked) -> Rows:
    anchors = tables.clocks.moments.filter(F.col("event").isin(*ANCHORS))
    steps = clock.clock_steps(anchors).join(F.broadcast(tables.lines.files), on="file", how="left")
    stepped = {row["name"]: row["count"] for row in steps.groupBy("name").count().collect()}
    return counts.per_file(asked.files, _rows(counts.by_file(tables.lines.tallied)), stepped, asked.truncated)


def _flags(tables: Tables) -> DataFrame:
    over = tables.intervals.agg(F.count(F.when(F.col("is_over_bound"), 1)).alias("over_bound"))
    unknown = tables.unknown_revisions.agg(F.count(F.lit(1)).alias("unknown_revisions"))
    return over.join(unknown, how="cross")


def _distributions(values: DataFrame) -> DataFrame:
    return metrics.worst(values.groupBy("measure", "scope", "key").agg(*metrics.measures()))


def _near_misses(tables: Tables) -> DataFrame:
    near = staleness.near_misses(tables.points).join(tables.brokers, on=["key", "who"], how="left")
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
    logged = tables.as_logged.select(F.lit(what_if.LOGGED).alias("policy"), "staleness", "is_false")
    return tables.evictions.unionByName(logged)


def _worst(intervals: DataFrame) -> Rows:
    order = (F.desc("upper_ms"), "removed_ms", "nameserver", "boot_id", "cluster", "broker_addr", "evict_seq")
    rows = _rows(intervals.orderBy(*order).limit(MOST_INTERVALS))
    return [{name: _whole(value) for name, value in row.items()} for row in rows]


def _whole(value: Any) -> Any:
    """Nothing in a summary has a fraction."""
    return whole_ms(value * 1000) if isinstance(value, float) else value


def _charts(curves: Rows, timeline: Rows, gaps: Rows, tables: Tables) -> dict[str, Any]:
    points = {row["measure"]: row["points"] for row in curves}
    wall = [(row["first"], row["last"], row["offset_ms"] * 1000) for row in tables.clocks.boot_rows]
    return {
        "registry_cdf": chart_data.curve(points.get("registry")),
        "client_cdf": chart_data.curve(points.get("client")),
        "timeline": {
            "from_ms": _edge(min, (first + offset for first, _, offset in wall)),
            "to_ms": _edge(max, (last + offset for _, last, offset in wall)),
            "brokers": chart_data.timeline_rows(timeline),
        },
        "gaps": chart_data.gap_rows(gaps),
    }


def _edge(choose: Callable[..., int], moments: Iterable[int]) -> int:
    return whole_ms(choose(moments, default=0))
