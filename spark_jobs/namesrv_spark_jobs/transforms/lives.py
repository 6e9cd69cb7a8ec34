"""Lives of brokers on each server, and the staleness at the end of each."""

from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.transforms.schema import UNANNOUNCED
from namesrv_spark_jobs.transforms.silences import is_last_beat, is_near_miss

_LIFE: Final = ("key", "boot", "life")
_BROKER: Final = ("cluster", "broker_name", "broker_id", "broker_addr")
_BEAT: Final = ("mono", "seq", "live", "agent")
# over the bound of its settings: what a scan itself may take
_TOLERANCE: Final = 1_000_000


def point_beats(points: DataFrame) -> DataFrame:
    """The points that are beats, with their number in the log (`seq`)."""
    beats = points.filter(F.col("point").isNotNull() & ~F.col("is_evict"))
    return beats.withColumnRenamed("point", "seq")


def lives(points: DataFrame, evicts: DataFrame) -> DataFrame:
    """One row for each life, open ones without `evict_seq`; `period` is how often the broker was heard at its end."""
    is_beat = F.col("point").isNotNull() & ~F.col("is_evict")
    is_first = is_beat & (F.col("earlier") == 0)
    of_life = points.groupBy(*_LIFE).agg(
        F.sum("beats").alias("beats"),
        F.min(F.when(is_first, F.col("mono"))).alias("first_ok"),
        F.min(F.when(is_first, F.col("live"))).alias("first_live"),
        F.max(F.when(is_beat & is_last_beat(), F.struct("mono", "live", "who", "expiry"))).alias("last_beat"),
        F.max(F.when(F.col("is_evict"), F.struct(F.col("point").alias("seq"), "mono", "live", "who"))).alias("end"),
    )
    ends = evicts.select(
        *("key", F.col("seq").alias("evict_seq"), "reason", "silent", "scan", F.col("expiry").alias("evict_expiry")),
        *("agent", "agent_id", *_BROKER),
    )
    known = of_life.withColumn("evict_seq", F.col("end.seq")).join(ends, on=["key", "evict_seq"], how="left")
    expiry = F.when(F.col("evict_seq").isNull(), F.col("last_beat.expiry")).otherwise(F.col("evict_expiry"))
    with_periods = known.join(_periods(points), on=["key", "life"], how="left").withColumn("expiry", expiry)
    return with_periods.select(
        *(*_LIFE, "beats", "first_ok", "first_live"),
        F.coalesce("last_beat.mono", F.col("end.mono") - F.coalesce("silent", F.lit(0))).alias("last_ok"),
        "evict_seq",
        F.col("end.mono").alias("removed"),
        F.col("end.live").alias("removed_live"),
        F.coalesce("end.who", "last_beat.who").alias("who"),
        *("reason", "scan", "expiry", "agent", "agent_id"),
        F.coalesce("period", F.floor(F.coalesce("expiry", F.lit(0)) / 4)).cast("long").alias("period"),
        *_BROKER,
    )


def _periods(points: DataFrame) -> DataFrame:
    """The median of the last ten gaps of each life, the lower one of two; no row for a life without gaps."""
    slots = points.filter(F.col("gap").isNotNull()).groupBy("key", "life", "slot")
    gaps = F.sort_array(F.collect_list("gap"))
    of_life = slots.agg(F.max_by("gap", "place").alias("gap")).groupBy("key", "life").agg(gaps.alias("gaps"))
    middle = F.get("gaps", F.floor((F.size("gaps") - 1) / 2).cast("int"))
    return of_life.select("key", "life", middle.alias("period"))


def beginnings(points: DataFrame) -> DataFrame:
    """The beats at which a broker (`who`) begins to be heard at an address: of a life, or in place of another one."""
    own = point_beats(points)
    changed = own.filter(~F.col("next_is_evict") & (F.col("next_who") != F.col("who")))
    following = changed.select("key", *(F.col(f"next_{name}").alias(name) for name in ("who", *_BEAT)))
    return own.filter(F.col("earlier") == 0).select("key", "who", *_BEAT).unionByName(following)


def with_return(asked: DataFrame, begun: DataFrame) -> DataFrame:
    """Rows (`key`, `who`, `mono`, `seq`) with `back`: the first beginning of the same broker after them, if any.

    Everything is sorted backwards, so that what comes later is already known.
    """
    keys = ["key", "who", "mono", "seq"]
    backwards = W.partitionBy("key", "who").orderBy(F.desc("mono"), F.desc("seq"), "is_beginning")
    so_far = backwards.rowsBetween(W.unboundedPreceding, W.currentRow)
    questions = asked.select(*keys, F.expr("false").alias("is_beginning")).distinct()
    starts = begun.select(*keys, F.expr("true").alias("is_beginning"), F.struct(*_BEAT).alias("beat"))
    both = questions.unionByName(starts, allowMissingColumns=True)
    found = both.withColumn("back", F.last("beat", ignorenulls=True).over(so_far)).filter(~F.col("is_beginning"))
    return asked.join(found.select(*keys, "back"), on=keys, how="left")


def is_same_process(agent: Column, expiry: Column, back: Column, away: Column) -> Column:
    """Whether a beat (`back`) comes from the process of a line with `agent` and `expiry`, having been `away`."""
    theirs = back["agent"]
    alike = F.when(agent.isNull() & theirs.isNull(), away <= expiry).otherwise(agent == theirs)
    return F.coalesce(back.isNotNull() & alike, F.expr("false"))


def intervals(lives: DataFrame, boots: DataFrame, moments: DataFrame, begun: DataFrame) -> DataFrame:
    """One row for each evicted life: `upper` and `lower` staleness in microseconds, was it false, was it too long."""
    ended = lives.filter(F.col("evict_seq").isNotNull()).join(F.broadcast(boots), on="boot", how="inner")
    back = with_return(ended.withColumnsRenamed({"removed": "mono", "evict_seq": "seq"}), begun)
    away = F.col("back.mono") - F.col("removed")
    is_unannounced = F.coalesce(F.col("reason").isin(*UNANNOUNCED), F.expr("false"))
    measured = back.withColumnsRenamed({"mono": "removed", "seq": "evict_seq"}).withColumns(
        {
            "is_unannounced": is_unannounced,
            "upper": upper(),
            "lower": F.greatest(upper() - F.col("period"), F.lit(0)),
            "is_false": is_unannounced & is_same_process(F.col("agent"), F.col("expiry"), F.col("back"), away),
        }
    )
    late = moments.filter(F.col("event") == "late")
    known = measured.join(_late_times(measured, late), on=["key", "evict_seq"], how="left")
    allowed = F.col("expiry") + F.col("scan_interval") + F.coalesce("late", F.lit(0)) + _TOLERANCE
    return known.withColumn("is_over_bound", F.coalesce(F.col("upper") > allowed, F.expr("false")))


def upper() -> Column:
    """Staleness of an evicted life, at most: none when the broker said goodbye or another took its place."""
    return F.when(F.col("reason").isin(*UNANNOUNCED), F.col("removed") - F.col("last_ok")).otherwise(0)


def _late_times(measured: DataFrame, late: DataFrame) -> DataFrame:
    """How long the server itself was late during each interval."""
    lines = F.broadcast(late.select(F.col("boot").alias("late_boot"), F.col("mono").alias("late_mono"), "late"))
    during = (F.col("boot") == F.col("late_boot")) & (F.col("late_mono") > F.col("last_ok"))
    during &= F.col("late_mono") <= F.col("removed")
    pairs = measured.select("key", "evict_seq", "boot", "last_ok", "removed").join(lines, on=during, how="inner")
    return pairs.groupBy("key", "evict_seq").agg(F.sum("late").alias("late"))


def near_misses(points: DataFrame) -> DataFrame:
    """Beats with a `silence` after them of more than two thirds of their expiry, which the broker survived."""
    own = point_beats(points).filter(~F.col("next_is_evict"))
    silence = F.col("next_live") - F.col("live")
    late = own.filter(is_near_miss(silence, F.col("expiry")))
    return late.select("key", "who", "boot", "mono", "seq", silence.alias("silence"), "expiry")
