"""Divergence: when NameServers disagreed about a broker."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 - as everyone calls it
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

_BROKER = ["cluster", "broker_name", "broker_id", "broker_addr"]


def episodes(lives: DataFrame, boots: DataFrame) -> DataFrame:
    """The longest stretches of disagreement about a broker, in wall time: `began`, `ended`, microseconds.

    `lives` have the names of their broker. Along time, a broker is had by so many of the servers that are up; it is
    enough to look where one of these numbers changes.
    """
    clock = F.col("offset_ms") * 1000
    up = _merged(
        boots.select("nameserver", (F.col("first") + clock).alias("began"), (F.col("last") + clock).alias("ended")), []
    )
    known = lives.filter(F.col("first_ok").isNotNull()).join(F.broadcast(boots), on="boot", how="inner")
    had = _merged(
        known.select(
            *_BROKER,
            "nameserver",
            (F.col("first_ok") + clock).alias("began"),
            (F.coalesce("removed", F.col("last")) + clock).alias("ended"),
        ),
        _BROKER,
    )
    edges = _edges(had, "had").unionByName(
        _edges(had.select(*_BROKER).distinct().join(F.broadcast(up), how="cross"), "up")
    )
    return _joined(_segments(edges))


def _merged(spans: DataFrame, of: list[str]) -> DataFrame:
    """Spans of one server that touch or overlap, as one."""
    order = W.partitionBy(*of, "nameserver").orderBy("began", "ended")
    before = F.max("ended").over(order.rowsBetween(W.unboundedPreceding, -1))
    begins = F.when(before.isNull() | (F.col("began") > before), 1).otherwise(0)
    number = F.sum("begins").over(order.rowsBetween(W.unboundedPreceding, W.currentRow))
    numbered = spans.withColumn("begins", begins).withColumn("number", number)
    merged = numbered.groupBy(*of, "nameserver", "number")
    return merged.agg(F.min("began").alias("began"), F.max("ended").alias("ended")).drop("number")


def _edges(spans: DataFrame, what: str) -> DataFrame:
    """Where each span begins and ends, as changes of the number `had` or `up`."""
    changes = F.explode(
        F.array(
            F.struct(F.col("began").alias("at"), F.lit(1).alias("change")),
            F.struct(F.col("ended").alias("at"), F.lit(-1).alias("change")),
        )
    )
    change = F.col("edge.change")
    numbers = [(change if name == what else F.lit(0)).alias(name) for name in ("had", "up")]
    return spans.select(*_BROKER, changes.alias("edge")).select(*_BROKER, F.col("edge.at").alias("at"), *numbers)


def _segments(edges: DataFrame) -> DataFrame:
    """The stretches between neighbouring edges, and whether the servers diverge in them."""
    order = W.partitionBy(*_BROKER).orderBy("at")
    so_far = order.rowsBetween(W.unboundedPreceding, W.currentRow)
    changes = edges.groupBy(*_BROKER, "at").agg(F.sum("had").alias("had"), F.sum("up").alias("up"))
    numbers = changes.select(
        *_BROKER,
        F.col("at").alias("began"),
        F.lead("at").over(order).alias("ended"),
        F.sum("had").over(so_far).alias("had"),
        F.sum("up").over(so_far).alias("up"),
    )
    return numbers.withColumn("diverges", _diverges())


def _diverges() -> Column:
    return (F.col("up") > 1) & (F.col("had") > 0) & (F.col("had") < F.col("up"))


def _joined(segments: DataFrame) -> DataFrame:
    """Neighbouring stretches of disagreement are one episode."""
    so_far = W.partitionBy(*_BROKER).orderBy("began").rowsBetween(W.unboundedPreceding, W.currentRow)
    agreed = F.sum(F.when(F.col("diverges"), 0).otherwise(1)).over(so_far)
    numbered = segments.withColumn("episode", agreed).filter(F.col("diverges") & F.col("ended").isNotNull())
    found = numbered.groupBy(*_BROKER, "episode").agg(F.min("began").alias("began"), F.max("ended").alias("ended"))
    return found.select(*_BROKER, "began", "ended")
