"""Divergence: when NameServers disagreed about a broker."""

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.transforms.output_rows import label

_BROKER = ["cluster", "broker_name", "broker_id", "broker_addr"]


def episodes(lives: DataFrame, boots: DataFrame) -> DataFrame:
    """The longest stretches of disagreement about a broker, in wall time: `began`, `ended`, microseconds.

    `lives` have the names of their broker. Along time, a broker is had by so many of the servers that are up; it is
    enough to look where one of these numbers changes.
    """
    known = lives.filter(F.col("first_ok").isNotNull()).join(F.broadcast(boots), on="boot", how="inner")
    had = _merged(known, F.col("first_ok"), F.coalesce("removed", F.col("last")), _BROKER)
    up = _merged(boots, F.col("first"), F.col("last"), [])
    up_of_each = had.select(*_BROKER).distinct().join(F.broadcast(up), how="cross")
    return _joined(_segments(_edges(had, had=1, up=0).unionByName(_edges(up_of_each, had=0, up=1))))


def _merged(table: DataFrame, began: Column, ended: Column, of: list[str]) -> DataFrame:
    """Spans of one server that touch or overlap, as one; in wall time."""
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
    """Where each span begins and ends, as changes of the numbers `had` and `up`."""
    edges = [
        F.struct(F.col(at).alias("at"), *(F.lit(sign * number).alias(name) for name, number in numbers.items()))
        for at, sign in (("began", 1), ("ended", -1))
    ]
    return spans.select(*_BROKER, F.explode(F.array(*edges)).alias("edge")).select(*_BROKER, "edge.*")


def _segments(edges: DataFrame) -> DataFrame:
    """The stretches between neighbouring edges, and whether the servers diverge in them."""
    order = W.partitionBy(*_BROKER).orderBy("at")
    so_far = order.rowsBetween(W.unboundedPreceding, W.currentRow)
    changes = edges.groupBy(*_BROKER, "at").agg(F.sum("had").alias("had"), F.sum("up").alias("up"))
    had, up = F.sum("had").over(so_far), F.sum("up").over(so_far)
    return changes.select(
        *_BROKER,
        F.col("at").alias("began"),
        F.lead("at").over(order).alias("ended"),
        ((up > 1) & (had > 0) & (had < up)).alias("diverges"),
    )


def _joined(segments: DataFrame) -> DataFrame:
    """Neighbouring stretches of disagreement are one episode."""
    so_far = W.partitionBy(*_BROKER).orderBy("began").rowsBetween(W.unboundedPreceding, W.currentRow)
    agreed = F.sum(F.when(F.col("diverges"), 0).otherwise(1)).over(so_far)
    numbered = segments.withColumn("episode", agreed).filter(F.col("diverges") & F.col("ended").isNotNull())
    found = numbered.groupBy(*_BROKER, "episode").agg(F.min("began").alias("began"), F.max("ended").alias("ended"))
    return found.select(*_BROKER, "began", "ended")


def by_broker(episodes: DataFrame) -> DataFrame:
    """How often, and for how long in all and at most, there was disagreement about each broker."""
    lengths = episodes.withColumn("length", F.col("ended") - F.col("began"))
    return lengths.groupBy(label().alias("key")).agg(
        F.count(F.lit(1)).alias("count"), F.sum("length").alias("total"), F.max("length").alias("longest")
    )
