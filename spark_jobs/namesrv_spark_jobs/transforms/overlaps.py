"""Join of time spans that overlap, without a comparison of all pairs."""

from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W

# the order of marks at one moment: begins of spans, then the `low` and `high` of rows, then ends of spans
_BEGINS: Final = 0
_RANGES: Final = 1
_ENDS: Final = 2


def overlapping(ranges: DataFrame, spans: DataFrame, by: list[str]) -> DataFrame:
    """Pairs of `ranges` (distinct rows with `low`, `high`) and `spans` (`begin`, `end`) that have a moment in common.

    Both ends count. Only rows with the same `by` are paired; the tables have no other column in common.

    The spans are numbered by their ends. The spans that end before `low` have the lowest numbers. Each `begin` is
    lowered to the earliest `begin` of the spans from this number on, so that the spans begun by `high` are the first
    ones, too.
    Counting both along time gives each row a range of numbers; the spans in it that do not overlap are filtered out.
    """
    place = W.partitionBy(*by).orderBy("end", *(name for name in spans.columns if name not in {*by, "end"}))
    numbered = spans.withColumn("number", F.row_number().over(place))
    since = F.min("begin").over(W.partitionBy(*by).orderBy("number").rowsBetween(W.currentRow, W.unboundedFollowing))
    marks = numbered.withColumn("begin", since).select(*by, _moments(begin=_BEGINS, end=_ENDS))
    both = ranges.select("*", _moments(low=_RANGES, high=_RANGES)).unionByName(marks, allowMissingColumns=True)
    order = W.partitionBy(*by).orderBy("mark.at", "mark.kind")
    so_far = order.rowsBetween(W.unboundedPreceding, W.currentRow)
    counts = {
        name: F.count(F.when(F.col("mark.kind") == kind, 1)).over(so_far)
        for name, kind in (("begun", _BEGINS), ("ended", _ENDS))
    }
    bounds = both.withColumns(counts).filter(F.col("mark.kind") == _RANGES).groupBy(*ranges.columns)
    # The spans that ended before `low`, and those that began by `high`. Both counts only grow along time, so that the
    # minimum is the one at `low`, and the maximum the one at `high`.
    matches = bounds.agg(F.min("ended").alias("ended"), F.max("begun").alias("begun"))
    between = F.explode(F.sequence(F.col("ended") + 1, F.col("begun")))
    each = matches.filter(F.col("ended") < F.col("begun")).withColumn("number", between)
    pairs = each.join(F.broadcast(numbered), on=[*by, "number"], how="inner")
    meet = (F.col("begin") <= F.col("high")) & (F.col("end") >= F.col("low"))
    return pairs.filter(meet).drop("ended", "begun", "number")


def _moments(**kinds: int) -> Column:
    moments = (F.struct(F.col(at).alias("at"), F.lit(kind).alias("kind")) for at, kind in kinds.items())
    return F.explode(F.array(*moments)).alias("mark")
