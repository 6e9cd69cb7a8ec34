"""Does a replay under the logged settings give the logged evictions?"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 - as everyone calls it
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.transforms.lives import is_same_process


def replayed_as_logged(gaps: DataFrame, moments: DataFrame) -> DataFrame:
    """One row for each eviction that the logged scans had to make: its `life`, `scan`, and `at` in liveness time."""
    scans = _scans(moments)
    asked = gaps.filter(F.col("expiry").isNotNull()).withColumn("deadline", F.col("live") + F.col("expiry"))
    asked = asked.filter(F.col("next_live").isNull() | (F.col("deadline") < F.col("next_live")))
    due = _first_scan(asked, scans).join(F.broadcast(_fenced(moments, scans)), on="key", how="left")
    chosen = due.withColumn("turn", F.when(F.col("fenced").isNull(), F.col("turn")).otherwise(_not_fenced()))
    found = chosen.join(scans.select("boot", "turn", "scan", "at"), on=["boot", "turn"], how="inner")
    before_beat = F.col("next_live").isNull() | (F.col("at") < F.col("next_live"))
    before_closing = F.col("closed").isNull() | (F.col("at") < F.col("closed"))
    is_false = is_same_process(F.col("agent"), F.col("expiry"), F.col("back"), F.col("back.live") - F.col("at"))
    known = found.filter(before_beat & before_closing).withColumn("is_false", is_false)
    staleness = F.col("at") - F.col("live")
    return known.select("boot", "key", "who", "life", "seq", "scan", "at", staleness.alias("staleness"), "is_false")


def _scans(moments: DataFrame) -> DataFrame:
    """The scans of each boot, in order: `turn` counts them."""
    order = W.partitionBy("boot").orderBy("live", "mono", "seq")
    scans = moments.filter(F.col("event") == "scan")
    return scans.select("boot", "scan", F.col("live").alias("at"), F.row_number().over(order).alias("turn"))


def _first_scan(asked: DataFrame, scans: DataFrame) -> DataFrame:
    """Each row with the `turn` of the first scan strictly after its deadline.

    Sorted backwards, the scans that are later are known before; at one time the question comes before the scan.
    """
    backwards = W.partitionBy("boot").orderBy(F.desc("moment"), "is_scan", F.desc("turn"), "key", "seq")
    so_far = backwards.rowsBetween(W.unboundedPreceding, W.currentRow)
    questions = asked.select(
        "boot",
        F.col("deadline").alias("moment"),
        F.expr("false").alias("is_scan"),
        F.lit(None).cast("int").alias("turn"),
        "key",
        "seq",
    )
    answers = scans.select(
        "boot",
        F.col("at").alias("moment"),
        F.expr("true").alias("is_scan"),
        "turn",
        F.lit(None).cast("long").alias("key"),
        F.lit(None).cast("long").alias("seq"),
    )
    known = questions.unionByName(answers).withColumn("turn", F.last("turn", ignorenulls=True).over(so_far))
    return asked.join(known.filter(~F.col("is_scan")).select("key", "seq", "turn"), on=["key", "seq"], how="inner")


def _fenced(moments: DataFrame, scans: DataFrame) -> DataFrame:
    """The turns of the scans whose finding about a broker was given up."""
    lines = moments.filter((F.col("event") == "fenced") & (F.col("reason") == "silent")).select("boot", "key", "scan")
    placed = lines.join(scans.select("boot", "scan", "turn"), on=["boot", "scan"], how="inner")
    return placed.groupBy("key").agg(F.collect_set("turn").alias("fenced"))


def _not_fenced() -> Column:
    """The first turn from `turn` on that is not fenced: at most as many are skipped as there are fenced ones."""
    turns = F.sequence("turn", F.col("turn") + F.size("fenced"))
    return F.filter(turns, lambda turn: ~F.array_contains("fenced", turn))[0]


def compared(lives: DataFrame, replayed: DataFrame) -> DataFrame:
    """One row: how many evictions are logged and replayed, and how many of them differ in which way."""
    place = ["key", "life", "found_by"]
    found_by = F.coalesce("scan", F.lit(-1)).alias("found_by")
    logged = lives.filter(F.col("reason") == "silent").select("key", "life", found_by, F.lit(1).alias("logged"))
    evicted = replayed.select("key", "life", found_by, F.lit(1).alias("replayed"))
    pairs = logged.join(evicted, on=place, how="full_outer").na.fill(0, ["logged", "replayed"])
    # within one life, one of each that do not meet are one eviction at another scan
    alone_logged = F.sum(F.when(F.col("replayed") == 0, 1).otherwise(0))
    alone_replayed = F.sum(F.when(F.col("logged") == 0, 1).otherwise(0))
    of_life = pairs.groupBy("key", "life").agg(
        F.sum("logged").alias("logged"),
        F.sum("replayed").alias("replayed"),
        alone_logged.alias("missing"),
        alone_replayed.alias("extra"),
    )
    other = F.least("missing", "extra")
    sums = {"logged": F.col("logged"), "replayed": F.col("replayed"), "other_scan": other}
    sums |= {"missing": F.col("missing") - other, "extra": F.col("extra") - other}
    return of_life.agg(*(F.coalesce(F.sum(value), F.lit(0)).alias(name) for name, value in sums.items()))
