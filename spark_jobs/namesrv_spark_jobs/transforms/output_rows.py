"""Rows of the report: names and milliseconds in place of hashes and microseconds, and distributions of values."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.percentiles import PERCENTILE_FIELDS, PERCENTILES
from namesrv_spark_jobs.transforms.registration_periods import upper

_NAMES: Final = ("nameserver", "boot_id", "cluster", "broker_name", "broker_id", "broker_addr")
# One row for each registration period with an eviction. `..._ok_ms` and `removed_ms` are wall times, `interval_ms` is
# the usual interval between heartbeats, and the durations have three decimals.
INTERVAL_COLUMNS: Final = (
    "date",
    *_NAMES,
    *("agent_id", "reason", "first_ok_ms", "last_ok_ms", "removed_ms", "heartbeats", "interval_ms", "expiry_ms"),
    *("upper_ms", "lower_ms", "over_bound", "false_eviction", "scan", "evict_seq"),
    *("clients_exposed", "clients_seen", "exposed_pulls"),
)

_DIGEST_LENGTH: Final = 12
# limits of the timeline: brokers on a server, and registration periods of each
MOST_ROWS: Final = 60
MOST_PERIODS: Final = 50

# keys of one scope that are kept: those with the longest total time
MOST_KEYS: Final = 1000
# steps between the points of a distribution's curve
CURVE_STEPS: Final = 200

Stats = Mapping[str, int | None]
NO_STATS: Final[Stats] = {"count": 0, **dict.fromkeys((*PERCENTILE_FIELDS, "max", "mean")), "total_ms": 0}


def interval_rows(intervals: DataFrame, clients: DataFrame, pulls: DataFrame, *, redact: bool) -> DataFrame:
    """The rows of `INTERVAL_COLUMNS`: `intervals` with the numbers of clients and responses exposed to each."""
    exposed = clients.groupBy("key", "evict_seq").agg(
        F.count(F.lit(1)).alias("clients_exposed"), F.count(F.when(F.col("outcome") == "seen", 1)).alias("clients_seen")
    )
    pull_counts = pulls.groupBy("key", "evict_seq").agg(F.sum("pulls").alias("exposed_pulls"))
    eviction = ["key", "evict_seq"]
    known = intervals.join(exposed, on=eviction, how="left").join(pull_counts, on=eviction, how="left")
    shown = {
        **{name: F.coalesce(name, F.lit(0)) for name in ("clients_exposed", "clients_seen", "exposed_pulls")},
        **{f"{name}_ms": _wall(name) for name in ("first_ok", "last_ok", "removed")},
        **{f"{name}_ms": F.col(name) / 1000 for name in ("expiry", "upper", "lower")},
        "interval_ms": F.col("usual_interval") / 1000,
        "over_bound": F.col("is_over_bound"),
        "false_eviction": F.col("is_false"),
        "date": F.date_format(F.timestamp_millis(_wall("removed")), "yyyy-MM-dd"),
        **_hidden("broker_addr", "agent_id", redact=redact),
    }
    return known.withColumns(shown).select(*INTERVAL_COLUMNS)


def _wall(name: str) -> Column:
    """A moment of the monotonic clock as wall time in whole milliseconds, halves rounded up."""
    return F.floor((F.col(name) + F.col("offset_ms") * 1000) / 1000 + F.lit(0.5)).cast("long")


def _hidden(*names: str, redact: bool) -> dict[str, Column]:
    if not redact:
        # the unchanged columns, since withColumns of Spark Connect needs at least one column
        return {name: F.col(name) for name in names}
    return {name: F.substring(F.sha2(F.col(name), 256), 1, _DIGEST_LENGTH) for name in names}


def label() -> Column:
    """A broker as cluster/name/id."""
    return F.concat_ws("/", "cluster", "broker_name", "broker_id")


def timeline(periods: DataFrame, boots: DataFrame) -> DataFrame:
    """The last registration periods of the brokers whose routes were stale longest, in microseconds of wall time.

    `periods` has the names of the brokers.
    """
    known = periods.join(F.broadcast(boots), on="boot", how="inner")
    clock = F.col("offset_ms") * 1000
    named = known.select(
        label().alias("broker"),
        "nameserver",
        (F.coalesce("first_ok", "last_ok") + clock).alias("began"),
        (F.col("last_ok") + clock).alias("last_ok"),
        (F.coalesce("removed", F.col("last")) + clock).alias("ended"),
        "reason",
        F.when(F.col("evict_seq").isNotNull(), upper()).alias("stale"),
    )
    row = ["broker", "nameserver"]
    stalest = (
        named.groupBy(*row)
        .agg(F.coalesce(F.sum("stale"), F.lit(0)).alias("in_all"))
        .orderBy(F.desc("in_all"), *row)
        .limit(MOST_ROWS)
    )
    order = W.partitionBy(*row).orderBy(F.desc("began"), F.desc("ended"), "last_ok", "reason")
    latest = named.withColumn("rank", F.row_number().over(order)).filter(F.col("rank") <= MOST_PERIODS)
    return latest.join(F.broadcast(stalest), on=row, how="inner")


def distributed_values(intervals: DataFrame, exposures: DataFrame, *, redact: bool) -> DataFrame:
    """One row (`measure`, `scope`, `key`, `value`) for each value and each scope that it belongs to; microseconds.

    Registry staleness comes from `intervals`. Client staleness comes from the `exposures` with the outcome `seen`;
    censored ones are counted elsewhere.
    """
    both = {"registry": F.col("upper"), "registry_lower": F.col("lower")}
    measures = F.array(*(F.struct(F.lit(name).alias("measure"), value.alias("value")) for name, value in both.items()))
    of_registry = _scoped(
        intervals.withColumn("measured", F.explode(measures)),
        {name: F.col(name) for name in ("reason", "nameserver", "cluster")} | {"broker": label()},
    )
    measured = F.struct(F.lit("client").alias("measure"), F.col("staleness").alias("value"))
    seen = exposures.filter(F.col("outcome") == "seen").withColumns(
        {"measured": measured, **_hidden("client", redact=redact)}
    )
    reasons = intervals.select("key", "evict_seq", "reason")
    seen = seen.join(reasons, on=["key", "evict_seq"], how="inner")
    return of_registry.unionByName(_scoped(seen, {name: F.col(name) for name in ("reason", "topic", "client")}))


def _scoped(values: DataFrame, scopes: Mapping[str, Column]) -> DataFrame:
    pairs = [
        F.struct(F.lit(scope).alias("scope"), F.coalesce(key, F.lit("")).alias("key"))
        for scope, key in {"all": F.lit(""), **scopes}.items()
    ]
    return values.withColumn("of", F.explode(F.array(*pairs))).select(
        "measured.measure", "of.scope", "of.key", "measured.value"
    )


def measures() -> list[Column]:
    """The aggregates of a group of values: exact, and independent of how the rows are distributed over tasks."""
    shares = F.array(*(F.lit(share) for share in PERCENTILES.values()))
    return [
        F.count("value").alias("count"),
        F.percentile("value", shares).alias("percentiles"),
        F.max("value").alias("max"),
        F.sum("value").alias("total"),
    ]


def distributions(values: DataFrame) -> DataFrame:
    """One row for each measure, scope and key; `rank` orders the keys of a scope by total time, longest first."""
    order = W.partitionBy("measure", "scope").orderBy(F.desc("total"), "key")
    ranked = values.groupBy("measure", "scope", "key").agg(*measures()).withColumn("rank", F.row_number().over(order))
    return ranked.filter(F.col("rank") <= MOST_KEYS)


def curves(values: DataFrame) -> DataFrame:
    """The curve of each measure: the percentiles at all points of a chart."""
    shares = F.array(*(F.lit(step / CURVE_STEPS) for step in range(CURVE_STEPS + 1)))
    return values.filter(F.col("scope") == "all").groupBy("measure").agg(F.percentile("value", shares).alias("points"))


def stats(row: Mapping[str, Any] | None) -> Stats:
    """The aggregates of `measures`, from a collected row, in whole milliseconds."""
    if row is None or not row["count"]:
        return NO_STATS
    values = {name: whole_ms(value) for name, value in zip(PERCENTILE_FIELDS, row["percentiles"], strict=True)}
    count, total = row["count"], row["total"]
    mean = (2 * total + 1000 * count) // (2000 * count)
    return {"count": count, **values, "max": whole_ms(row["max"]), "mean": mean, "total_ms": whole_ms(total)}


def whole_ms(value: float) -> int:
    """Microseconds as whole milliseconds, halves rounded up."""
    return int((value + 500) // 1000)


def metric_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of metrics.csv, sorted by measure, scope and key."""
    metrics = [{"scope": row["scope"], "key": row["key"], "measure": row["measure"], **stats(row)} for row in rows]
    return sorted(metrics, key=lambda row: (row["measure"], row["scope"], row["key"]))
