"""Spans of time that overlap, found without a look at all pairs of them."""

from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W

# at one moment, first what begins then, then whoever asks, then what ends then
_BEGINS: Final = 0
_ASKS: Final = 1
_ENDS: Final = 2


def overlapping(asked: DataFrame, spans: DataFrame, by: list[str]) -> DataFrame:
    """Pairs of `asked` (distinct rows with `low`, `high`) and `spans` (`begin`, `end`) that have a moment in common.

    Both ends count. Only rows with the same `by` meet; otherwise no column is in both tables.

    The spans are numbered by their ends. Those that end before `low` are the first ones; those of which no later one
    begins by `high` are the last ones: along time both are counted, and what is between meets, or nearly so.
    """
    place = W.partitionBy(*by).orderBy("end", *(name for name in spans.columns if name not in {*by, "end"}))
    numbered = spans.withColumn("number", F.row_number().over(place))
    since = F.min("begin").over(W.partitionBy(*by).orderBy("number").rowsBetween(W.currentRow, W.unboundedFollowing))
    marks = numbered.withColumn("begin", since).select(*by, _moments(begin=_BEGINS, end=_ENDS))
    both = asked.select("*", _moments(low=_ASKS, high=_ASKS)).unionByName(marks, allowMissingColumns=True)
    order = W.partitionBy(*by).orderBy("mark.at", "mark.kind")
    so_far = order.rowsBetween(W.unboundedPreceding, W.currentRow)
    counts = {
        name: F.count(F.when(F.col("mark.kind") == kind, 1)).over(so_far)
        for name, kind in (("begun", _BEGINS), ("ended", _ENDS))
    }
    answers = both.withColumns(counts).filter(F.col("mark.kind") == _ASKS).groupBy(*asked.columns)
    # what has ended by `low`, what has begun by `high`: both only grow
    found = answers.agg(F.min("ended").alias("ended"), F.max("begun").alias("begun"))
    between = F.explode(F.sequence(F.col("ended") + 1, F.col("begun")))
    each = found.filter(F.col("ended") < F.col("begun")).withColumn("number", between)
    pairs = each.join(F.broadcast(numbered), on=[*by, "number"], how="inner")
    meet = (F.col("begin") <= F.col("high")) & (F.col("end") >= F.col("low"))
    return pairs.filter(meet).drop("ended", "begun", "number")


def _moments(**kinds: int) -> Column:
    moments = (F.struct(F.col(at).alias("at"), F.lit(kind).alias("kind")) for at, kind in kinds.items())
    return F.explode(F.array(*moments)).alias("mark")
