"""Silence after each beat: the one sort of all beats, and what is kept of it.

Twenty million beats are shuffled and sorted once. Nearly all of them are followed by the next one as expected: these
are summed up by life. A *point* is kept of everything else: the ends of a life, its eviction, and each silence that
some setting might have taken for a death.
"""

from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.options import WhatIf

# a silence is shown as so many parts of the broker's expiry, and no more than as two of it
BINS_PER_EXPIRY: Final = 40
MOST_BINS: Final = 2 * BINS_PER_EXPIRY
# of a life's last gaps; a gap under 10 ms is two registrations at once
PERIOD_GAPS: Final = 10
SHORTEST_GAP: Final = 10_000

_ROW: Final = ("key", "boot", "mono", "seq", "live", "who", "agent", "expiry", "is_evict")
_NEXT: Final = ("mono", "seq", "live", "who", "agent", "is_evict")
_POINT: Final = (
    *("mono", "live", "who", "agent", "expiry", "is_evict", "earlier"),
    *(f"next_{name}" for name in _NEXT),
)


def next_tick(deadline: Column, scan: Column) -> Column:
    """The first scan strictly after a deadline, with one each `scan` since `start_live`; null without one."""
    since = deadline - F.col("start_live")
    # greatest takes no notice of null
    return F.when(deadline.isNotNull(), F.greatest(deadline - F.pmod(since, scan) + scan, F.col("start_live")))


def is_last_beat() -> Column:
    """Whether no beat follows before the next eviction."""
    return F.coalesce("next_is_evict", F.expr("true"))


def rows(beats: DataFrame, evicts: DataFrame) -> DataFrame:
    """Beats and evictions as the sort takes them: numbers only."""
    evicted = evicts.withColumn("is_evict", F.expr("true")).select(*_ROW)
    return beats.withColumn("is_evict", F.expr("false")).select(*_ROW).unionByName(evicted)


def followed(ordered: DataFrame) -> DataFrame:
    """Each row with the one that follows it in its `key`, its life, and the sums over the earlier ones.

    `life` counts the evictions before, `earlier` the gaps of this life, `counted` those that periods are made of.
    """
    order = W.partitionBy("key").orderBy("mono", "seq")
    before = order.rowsBetween(W.unboundedPreceding, -1)
    known = ordered.select(
        *_ROW,
        F.row_number().over(order).alias("number"),
        *(F.lead(name).over(order).alias(f"next_{name}") for name in _NEXT),
    )
    evicted = F.when(F.col("is_evict"), F.col("number"))
    return known.select(
        "*",
        F.count(evicted).over(before).alias("life"),
        F.count(_counted_gap()).over(before).alias("counted"),
        (F.col("number") - F.coalesce(F.max(evicted).over(before), F.lit(0)) - 1).alias("earlier"),
    )


def _is_gap() -> Column:
    """Whether a beat follows this beat at once."""
    return ~F.col("is_evict") & ~is_last_beat()


def _counted_gap() -> Column:
    """The gap after a beat, if it is one that periods are made of."""
    gap = F.col("next_mono") - F.col("mono")
    return F.when(_is_gap() & (gap >= SHORTEST_GAP), gap)


def _live_gap() -> Column:
    return F.col("next_live") - F.col("live")


def points(sequence: DataFrame, boots: DataFrame, grid: WhatIf) -> DataFrame:
    """Rows that matter one by one (with `point`, their number in the log), and the rest summed up by life.

    `slot` and `gap` give the last ten gaps of each life: gaps that are ten apart share a slot, and its last one stays.
    """
    settings = F.broadcast(boots.select("boot", "start_live", "broker_expiry"))
    place = F.when(_counted_gap().isNotNull(), F.col("counted"))
    gap_bin = F.when(F.col("expiry") > 0, bin_of(F.col("next_mono") - F.col("mono"), F.col("expiry")))
    ends = ~_is_gap() | (F.col("earlier") == 0) | (F.col("next_who") != F.col("who"))
    is_point = ends | F.coalesce(_might_be_dead(grid), F.expr("false"))
    groups = sequence.join(settings, on="boot", how="left").groupBy(
        *("key", "boot", "life"),
        F.when(is_point, F.col("seq")).alias("point"),
        (place % PERIOD_GAPS).alias("slot"),
        F.when(_is_gap(), gap_bin).alias("bin"),
    )
    return groups.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count(F.when(~F.col("is_evict"), 1)).alias("beats"),
        F.max(place).alias("place"),
        F.max_by(_counted_gap(), place).alias("gap"),
        *(F.max(name).alias(name) for name in _POINT),
    )


def bin_of(gap: Column, expiry: Column) -> Column:
    """How many parts of the broker's expiry a gap is long."""
    return F.least(F.floor(gap * BINS_PER_EXPIRY / expiry), F.lit(MOST_BINS))


def is_near_miss(gap: Column, expiry: Column) -> Column:
    """Whether a silence is of more than two thirds of the broker's expiry."""
    return 3 * gap > 2 * expiry


def _might_be_dead(grid: WhatIf) -> Column:
    """Whether some setting evicts the broker in this gap: a little too often is fine, too seldom is not."""
    found = is_near_miss(_live_gap(), F.col("expiry"))
    is_usual = F.col("expiry") == F.col("broker_expiry")
    for expiry in grid.expiry_ms:
        deadline = F.col("live") + expiry * 1000
        # what a scan finds is over its deadline: nearly all gaps need no look at any scan
        is_over = is_usual & (deadline < F.col("next_live"))
        for scan in grid.scan_ms:
            found |= is_over & (next_tick(deadline, F.lit(scan * 1000)) < F.col("next_live"))
    return found


def gap_bins(points: DataFrame) -> DataFrame:
    """How many gaps between beats fall into each part of the broker's expiry."""
    return points.filter(F.col("bin").isNotNull()).groupBy("bin").agg(F.sum("rows").alias("count"))
