"""Registration periods of brokers on each server, and the staleness at the end of each.

A registration period lasts from the first heartbeat (or registration) of a broker address on a boot to its eviction.
"""

from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.transforms.schema import UNANNOUNCED
from namesrv_spark_jobs.transforms.silences import is_last_heartbeat, is_near_miss

_PERIOD: Final = ("key", "boot", "period")
BROKER: Final = ("cluster", "broker_name", "broker_id", "broker_addr")
_HEARTBEAT: Final = ("mono", "seq", "live", "agent")
# one second: an interval is over its bound only beyond this, since a scan itself takes time
_TOLERANCE: Final = 1_000_000


def point_heartbeats(points: DataFrame) -> DataFrame:
    """The points that are heartbeats, with their number in the log as `seq`."""
    heartbeats = points.filter(F.col("point").isNotNull() & ~F.col("is_evict"))
    return heartbeats.withColumnRenamed("point", "seq")


def periods(points: DataFrame, rest: DataFrame, moments: DataFrame) -> DataFrame:
    """One row for each registration period; a period that is still open has no `evict_seq`.

    `was_registered` is true if the server knew the broker before `first_ok`: the period began before the log.
    `usual_interval` is the interval between heartbeats at the end of the period: a median, or a quarter of the expiry
    when the period has no interval. For a period without heartbeats in the log, `last_ok` is computed from the `silent`
    of its eviction, and from the delays of the server, which `silent` excludes.
    """
    evicts = rest.filter(F.col("event") == "evict")
    is_heartbeat = F.col("point").isNotNull() & ~F.col("is_evict")
    is_first = is_heartbeat & (F.col("earlier") == 0)
    of_period = points.groupBy(*_PERIOD).agg(
        F.sum("heartbeats").alias("heartbeats"),
        F.min(F.when(is_first, F.col("mono"))).alias("first_ok"),
        F.min(F.when(is_first, F.col("live"))).alias("first_live"),
        F.max(F.when(is_first, F.col("was_registered"))).alias("was_registered"),
        F.max(F.when(is_heartbeat & is_last_heartbeat(), F.struct("mono", "who", "expiry"))).alias("last_heartbeat"),
        F.max(F.when(F.col("is_evict"), F.struct(F.col("point").alias("seq"), "mono", "live", "who"))).alias("end"),
    )
    ends = evicts.select(
        *("key", F.col("seq").alias("evict_seq"), "reason", "silent", "scan", F.col("expiry").alias("evict_expiry")),
        *("agent", "agent_id", *BROKER),
    )
    known = of_period.withColumn("evict_seq", F.col("end.seq")).join(ends, on=["key", "evict_seq"], how="left")
    expiry = F.when(F.col("evict_seq").isNull(), F.col("last_heartbeat.expiry")).otherwise(F.col("evict_expiry"))
    with_usual_intervals = known.join(_usual_intervals(points), on=["key", "period"], how="left").withColumn(
        "expiry", expiry
    )
    seen = F.col("end.live") - F.coalesce("silent", F.lit(0))
    without_heartbeats = known.filter(F.col("last_heartbeat").isNull()).select(
        "key", "period", "boot", F.col("end.mono").alias("removed"), seen.alias("seen")
    )
    delays = _delays(without_heartbeats, moments, F.col("late_live") > F.col("seen"))
    with_delays = with_usual_intervals.join(delays, on=["key", "period"], how="left")
    unseen = F.col("end.mono") - F.coalesce("silent", F.lit(0)) - F.coalesce("delays", F.lit(0))
    return with_delays.select(
        *(*_PERIOD, "heartbeats", "first_ok", "first_live", "was_registered"),
        F.coalesce("last_heartbeat.mono", unseen).alias("last_ok"),
        "evict_seq",
        F.col("end.mono").alias("removed"),
        F.col("end.live").alias("removed_live"),
        F.coalesce("end.who", "last_heartbeat.who").alias("who"),
        *("reason", "scan", "expiry", "agent", "agent_id"),
        F.coalesce("usual_interval", F.floor(F.coalesce("expiry", F.lit(0)) / 4)).cast("long").alias("usual_interval"),
        *BROKER,
    )


def _usual_intervals(points: DataFrame) -> DataFrame:
    """The median (the lower of two) of the last ten intervals of each period; a period without intervals has no row."""
    slots = points.filter(F.col("interval").isNotNull()).groupBy("key", "period", "slot")
    recent_intervals = F.sort_array(F.collect_list("interval"))
    of_period = (
        slots.agg(F.max_by("interval", "place").alias("interval"))
        .groupBy("key", "period")
        .agg(recent_intervals.alias("recent_intervals"))
    )
    middle = F.get("recent_intervals", F.floor((F.size("recent_intervals") - 1) / 2).cast("int"))
    return of_period.select("key", "period", middle.alias("usual_interval"))


def _delays(ends: DataFrame, moments: DataFrame, is_after: Column) -> DataFrame:
    """The sum `delays` of the server's own delays before each end (`key`, `period`, `boot`, `removed`).

    `is_after` compares the time of a delay, `late_mono` or `late_live`, with the time from which delays count.
    """
    late = moments.filter(F.col("event") == "late")
    delays = late.select("boot", F.col("mono").alias("late_mono"), F.col("live").alias("late_live"), "late")
    pairs = ends.join(F.broadcast(delays), on="boot", how="inner")
    during = pairs.filter((F.col("late_mono") <= F.col("removed")) & is_after)
    return during.groupBy("key", "period").agg(F.sum("late").alias("delays"))


def beginnings(points: DataFrame) -> DataFrame:
    """The heartbeats with which a broker (`who`) appears at an address.

    Each is the first heartbeat of a registration period, or the first one after a heartbeat of another broker.
    """
    own = point_heartbeats(points)
    changed = own.filter(~F.col("next_is_evict") & (F.col("next_who") != F.col("who")))
    following = changed.select("key", *(F.col(f"next_{name}").alias(name) for name in ("who", *_HEARTBEAT)))
    return own.filter(F.col("earlier") == 0).select("key", "who", *_HEARTBEAT).unionByName(following)


def with_return(periods: DataFrame, begun: DataFrame) -> DataFrame:
    """Rows (`key`, `who`, `mono`, `seq`) with `back`: the next heartbeat in `begun` of the same broker, or null.

    Both tables are sorted backwards in time together, so that the next heartbeat stands before the row that needs it.
    """
    keys = ["key", "who", "mono", "seq"]
    backwards = W.partitionBy("key", "who").orderBy(F.desc("mono"), F.desc("seq"), "is_beginning")
    so_far = backwards.rowsBetween(W.unboundedPreceding, W.currentRow)
    rows = periods.select(*keys, F.expr("false").alias("is_beginning")).distinct()
    starts = begun.select(*keys, F.expr("true").alias("is_beginning"), F.struct(*_HEARTBEAT).alias("heartbeat"))
    both = rows.unionByName(starts, allowMissingColumns=True)
    returns = both.withColumn("back", F.last("heartbeat", ignorenulls=True).over(so_far)).filter(~F.col("is_beginning"))
    return periods.join(returns.select(*keys, "back"), on=keys, how="left")


def is_same_process(agent: Column, expiry: Column, back: Column, away: Column) -> Column:
    """True if the heartbeat `back` comes from the same broker process as a line with `agent` and `expiry`.

    The agent ids decide. Without any, a broker that is back within its expiry (`away` is at most that) is the same.
    """
    theirs = back["agent"]
    is_same_process = F.when(agent.isNull() & theirs.isNull(), away <= expiry).otherwise(agent == theirs)
    return F.coalesce(back.isNotNull() & is_same_process, F.expr("false"))


def intervals(periods: DataFrame, boots: DataFrame, moments: DataFrame, begun: DataFrame) -> DataFrame:
    """One row for each registration period with an eviction, with `upper` and `lower` staleness in microseconds.

    `is_false` marks false evictions, `is_over_bound` a staleness that settings and delays of the server do not explain.
    """
    ended = periods.filter(F.col("evict_seq").isNotNull()).join(F.broadcast(boots), on="boot", how="inner")
    back = with_return(ended.withColumnsRenamed({"removed": "mono", "evict_seq": "seq"}), begun)
    away = F.col("back.mono") - F.col("removed")
    is_unannounced = F.coalesce(F.col("reason").isin(*UNANNOUNCED), F.expr("false"))
    measured = back.withColumnsRenamed({"mono": "removed", "seq": "evict_seq"}).withColumns(
        {
            "is_unannounced": is_unannounced,
            "upper": upper(),
            "lower": F.greatest(upper() - F.col("usual_interval"), F.lit(0)),
            "is_false": is_unannounced & is_same_process(F.col("agent"), F.col("expiry"), F.col("back"), away),
        }
    )
    ends = measured.select("key", "period", "boot", "last_ok", "removed")
    delays = _delays(ends, moments, F.col("late_mono") > F.col("last_ok"))
    known = measured.join(delays, on=["key", "period"], how="left")
    allowed = F.col("expiry") + F.col("scan_interval") + F.coalesce("delays", F.lit(0)) + _TOLERANCE
    return known.withColumn("is_over_bound", F.coalesce(F.col("upper") > allowed, F.expr("false")))


def upper() -> Column:
    """The upper bound of the staleness; 0 when the broker unregistered or another one took its place."""
    return F.when(F.col("reason").isin(*UNANNOUNCED), F.col("removed") - F.col("last_ok")).otherwise(0)


def near_misses(points: DataFrame) -> DataFrame:
    """Heartbeats followed by a `silence` of more than two thirds of their expiry, and then by another heartbeat."""
    own = point_heartbeats(points).filter(~F.col("next_is_evict"))
    silence = F.col("next_live") - F.col("live")
    late = own.filter(is_near_miss(silence, F.col("expiry")))
    return late.select("key", "who", "boot", "mono", "seq", silence.alias("silence"), "expiry")
