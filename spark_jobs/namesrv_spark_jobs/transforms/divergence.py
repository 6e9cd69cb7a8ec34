"""Divergence: the times during which NameServers disagreed about a broker."""

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.transforms.output_rows import label
from namesrv_spark_jobs.transforms.registration_periods import BROKER


def episodes(periods: DataFrame, boots: DataFrame) -> DataFrame:
    """The episodes of disagreement about each broker, as long as possible: `began`, `ended`, microseconds of wall time.

    `periods` has the names of the brokers. `up` servers run at a moment, and `had` of them have the broker in their
    tables; the servers disagree where 0 < `had` < `up`. Only moments at which a number changes are looked at.
    """
    known = periods.filter(F.col("first_ok").isNotNull()).join(F.broadcast(boots), on="boot", how="inner")
    had = _merged(known, _since(), F.coalesce("removed", F.col("last")), list(BROKER))
    up = _merged(boots, F.col("first"), F.col("last"), [])
    up_of_each = had.select(*BROKER).distinct().join(F.broadcast(up), how="cross")
    return _joined(_segments(_edges(had, had=1, up=0).unionByName(_edges(up_of_each, had=0, up=1))))


def _since() -> Column:
    """The moment from which a server has a broker, which may have registered before the log begins.

    Such a broker sends its next heartbeat within its expiry, to each server at another time.
    """
    is_within = F.col("first_ok") - F.col("first") <= F.col("expiry")
    is_older = F.col("is_cut") & (F.col("period") == 0) & F.coalesce(is_within, F.expr("false"))
    return F.when(is_older, F.col("first")).otherwise(F.col("first_ok"))


def _merged(table: DataFrame, began: Column, ended: Column, of: list[str]) -> DataFrame:
    """The spans (`began`, `ended`) of each server in wall time; spans that touch or overlap become one."""
    clock = F.col("offset_ms") * 1000
    spans = table.select(*of, "nameserver", (began + clock).alias("began"), (ended + clock).alias("ended"))
    order = W.partitionBy(*of, "nameserver").orderBy("began", "ended")
    before = F.max("ended").over(order.rowsBetween(W.unboundedPreceding, -1))
    begins = F.when(before.isNull() | (F.col("began") > before), 1).otherwise(0)
    number = F.sum("begins").over(order.rowsBetween(W.unboundedPreceding, W.currentRow))
    numbered = spans.withColumn("begins", begins).withColumn("number", number)
    merged = numbered.groupBy(*of, "nameserver", "number")
    return merged.agg(F.min("began").alias("began"), F.max("ended").alias("ended")).drop("number")


def _edges(spans: DataFrame, **numbers: int) -> DataFrame:
    """The start and the end of each span as rows that add to, or subtract from, the numbers `had` and `up`."""
    edges = [
        F.struct(F.col(at).alias("at"), *(F.lit(sign * number).alias(name) for name, number in numbers.items()))
        for at, sign in (("began", 1), ("ended", -1))
    ]
    return spans.select(*BROKER, F.explode(F.array(*edges)).alias("edge")).select(*BROKER, "edge.*")


def _segments(edges: DataFrame) -> DataFrame:
    """The segments between neighbouring edges; `diverges` is true where the servers disagree."""
    order = W.partitionBy(*BROKER).orderBy("at")
    so_far = order.rowsBetween(W.unboundedPreceding, W.currentRow)
    changes = edges.groupBy(*BROKER, "at").agg(F.sum("had").alias("had"), F.sum("up").alias("up"))
    had, up = F.sum("had").over(so_far), F.sum("up").over(so_far)
    return changes.select(
        *BROKER,
        F.col("at").alias("began"),
        F.lead("at").over(order).alias("ended"),
        ((up > 1) & (had > 0) & (had < up)).alias("diverges"),
    )


def _joined(segments: DataFrame) -> DataFrame:
    """The episodes: neighbouring segments of disagreement joined into one."""
    so_far = W.partitionBy(*BROKER).orderBy("began").rowsBetween(W.unboundedPreceding, W.currentRow)
    agreed = F.sum(F.when(F.col("diverges"), 0).otherwise(1)).over(so_far)
    numbered = segments.withColumn("episode", agreed).filter(F.col("diverges") & F.col("ended").isNotNull())
    episodes = numbered.groupBy(*BROKER, "episode").agg(F.min("began").alias("began"), F.max("ended").alias("ended"))
    return episodes.select(*BROKER, "began", "ended")


def by_broker(episodes: DataFrame) -> DataFrame:
    """Number, total length and longest length of the episodes of each broker."""
    lengths = episodes.withColumn("length", F.col("ended") - F.col("began"))
    return lengths.groupBy(label().alias("key")).agg(
        F.count(F.lit(1)).alias("count"), F.sum("length").alias("total"), F.max("length").alias("longest")
    )
