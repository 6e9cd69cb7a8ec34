"""How long did each NameServer go on handing out a broker that was gone?"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.transforms.lives import is_same_process, with_return
from namesrv_spark_jobs.transforms.schema import UNANNOUNCED

# over the bound of its settings: what a scan itself may take
_TOLERANCE: Final = 1_000_000


def intervals(lives: DataFrame, boots: DataFrame, late: DataFrame, begun: DataFrame) -> DataFrame:
    """One row for each evicted life: `upper` and `lower` staleness in microseconds, was it false, was it too long."""
    ended = lives.filter(F.col("evict_seq").isNotNull())
    known = ended.join(F.broadcast(boots), on="boot", how="inner")
    back = with_return(known.withColumnsRenamed({"removed": "mono", "evict_seq": "seq"}), begun).withColumnsRenamed(
        {"mono": "removed", "seq": "evict_seq"}
    )
    is_unannounced = F.col("reason").isin(*UNANNOUNCED)
    upper = F.when(is_unannounced, F.col("removed") - F.col("last_ok")).otherwise(0)
    is_false = is_same_process(F.col("agent"), F.col("expiry"), F.col("back"), F.col("back.mono") - F.col("removed"))
    measured = (
        back.withColumn("is_unannounced", F.coalesce(is_unannounced, F.expr("false")))
        .withColumn("upper", upper)
        .withColumn("lower", F.greatest(F.col("upper") - F.col("period"), F.lit(0)))
        .withColumn("is_false", F.col("is_unannounced") & is_false)
    )
    return measured.join(_late_times(measured, late), on=["key", "evict_seq"], how="left").withColumn(
        "is_over_bound", F.coalesce(_is_over_bound(), F.expr("false"))
    )


def _late_times(measured: DataFrame, late: DataFrame) -> DataFrame:
    """How long the server itself was late during each interval."""
    lines = F.broadcast(late.select(F.col("boot").alias("late_boot"), F.col("mono").alias("late_mono"), "late"))
    during = (F.col("boot") == F.col("late_boot")) & (F.col("late_mono") > F.col("last_ok"))
    during &= F.col("late_mono") <= F.col("removed")
    pairs = measured.select("key", "evict_seq", "boot", "last_ok", "removed").join(lines, on=during, how="inner")
    return pairs.groupBy("key", "evict_seq").agg(F.sum("late").alias("late"))


def _is_over_bound() -> Column:
    allowed = F.col("expiry") + F.col("scan_interval") + F.coalesce("late", F.lit(0)) + _TOLERANCE
    return F.col("upper") > allowed


def near_misses(points: DataFrame) -> DataFrame:
    """Silences of more than two thirds of an expiry that the broker survived: `key`, `who`, `gap`, `expiry`."""
    own = points.filter(F.col("point").isNotNull() & ~F.col("is_evict") & ~F.col("next_is_evict"))
    gap = F.col("next_live") - F.col("live")
    return own.filter(3 * gap > 2 * F.col("expiry")).select(
        "key", "who", "boot", "mono", F.col("point").alias("seq"), gap.alias("silence"), "expiry"
    )
