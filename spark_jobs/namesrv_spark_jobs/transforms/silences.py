"""Silence after each beat: the one sort of all beats, and what is kept of it.

Twenty million beats are shuffled and sorted once. Nearly all of them are followed by the next one as expected: these
are summed up by life. A *point* is kept of everything else: the ends of a life, its eviction, and each silence that
some setting might have taken for a death.
"""

from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.options import WhatIf
from namesrv_spark_jobs.transforms.schema import RUN

# a silence is shown as so many parts of the broker's expiry, and no more than as two of it
BINS_PER_EXPIRY: Final = 40
MOST_BINS: Final = 2 * BINS_PER_EXPIRY
# of a life's last gaps; a gap under 10 ms is two registrations at once
PERIOD_GAPS: Final = 10
SHORTEST_GAP: Final = 10_000

_ROW: Final = ("key", "boot", "mono", "seq", "live", "who", "agent", "expiry", "is_evict", "lines")
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
    return rows_of_beats(beats).unionByName(_rows(evicts, "true"))


def rows_of_beats(beats: DataFrame) -> DataFrame:
    """The same of beats only."""
    return _rows(beats, "false")


def _rows(events: DataFrame, is_evict: str) -> DataFrame:
    known = {"is_evict": F.expr(is_evict), "lines": F.lit(1)}
    return events.withColumns(known).select(*_ROW)


def rows_of_runs(runs: DataFrame) -> DataFrame:
    """Runs as the sort takes them: as their first beat, with so many `lines`.

    None of them begins or ends a life: their file has beats before and after them.
    """
    known = {"live": F.col("mono"), "is_evict": F.expr("false")}
    return runs.withColumns(known).select(*_ROW)


def followed(ordered: DataFrame) -> DataFrame:
    """Each row with the one that follows it in its `key`, its life, and the sums over the earlier ones.

    `life` counts the evictions before, `earlier` the gaps of this life, `counted` those that periods are made of.
    """
    order = W.partitionBy("key").orderBy("mono", "seq")
    before = order.rowsBetween(W.unboundedPreceding, -1)
    known = ordered.select(
        *_ROW,
        (F.coalesce(F.sum("lines").over(before).cast("long"), F.lit(0)) + 1).alias("number"),
        *(F.lead(name).over(order).alias(f"next_{name}") for name in _NEXT),
    )
    counted = F.when(_is_run(), F.col("lines")).when(_counted_gap().isNotNull(), 1)
    evicted = F.when(F.col("is_evict"), F.col("number"))
    return known.select(
        "*",
        F.count(evicted).over(before).alias("life"),
        F.coalesce(F.sum(counted).over(before).cast("long"), F.lit(0)).alias("counted"),
        (F.col("number") - F.coalesce(F.max(evicted).over(before), F.lit(0)) - 1).alias("earlier"),
    )


def _is_run() -> Column:
    return F.col("lines") > 1


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
    groups = (
        sequence.filter(~_is_run())
        .join(settings, on="boot", how="left")
        .groupBy(
            *("key", "boot", "life"),
            F.when(is_point, F.col("seq")).alias("point"),
            (place % PERIOD_GAPS).alias("slot"),
            F.when(_is_gap(), gap_bin).alias("bin"),
        )
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


def points_of_runs(sequence: DataFrame, runs: DataFrame) -> DataFrame:
    """The same of runs, which were summed up when their file was compacted: none of their beats is a point."""
    placed = sequence.filter(_is_run()).select("key", "boot", "life", "seq", "counted")
    each = placed.join(runs.select("boot", "seq", RUN), on=["boot", "seq"], how="inner").select(
        "key", "boot", "life", "counted", F.explode(F.col(RUN)["parts"]).alias("part")
    )
    place = F.col("counted") + F.col("part")["place"]
    return each.select(
        *("key", "boot", "life"),
        F.lit(None).cast("long").alias("point"),
        (place % PERIOD_GAPS).alias("slot"),
        F.col("part")["bin"].alias("bin"),
        F.col("part")["rows"].alias("rows"),
        F.col("part")["rows"].alias("beats"),
        place.alias("place"),
        F.col("part")["gap"].alias("gap"),
    )


def restless(sequence: DataFrame, runs: DataFrame, boots: DataFrame, grid: WhatIf) -> DataFrame:
    """The runs (`boot`, `seq`) of which some beat might be a point, or that a row of another file comes into."""
    settings = F.broadcast(boots.select("boot", "start_live", "broker_expiry"))
    placed = sequence.filter(_is_run()).drop("lines")
    known = placed.join(runs.select("boot", "seq", RUN), on=["boot", "seq"], how="inner").join(
        settings, on="boot", how="left"
    )
    run = F.col(RUN)
    follows = (F.col("next_mono") == run["end_mono"]) & (F.col("next_seq") == run["end_seq"])
    is_quiet = follows & ~_might_have_dead(grid)
    return known.filter(~F.coalesce(is_quiet, F.expr("false"))).select("boot", "seq")


def _might_have_dead(grid: WhatIf) -> Column:
    """Whether `_might_be_dead` holds for a beat of a run, or nearly so: its longest gap stands for all of them."""
    run, longest = F.col(RUN), F.col(RUN)["longest"]
    found = is_near_miss(longest, F.col("expiry"))
    is_usual = F.col("expiry") == F.col("broker_expiry")
    for expiry in grid.expiry_ms:
        over = longest - expiry * 1000
        since = F.lit(expiry * 1000) - F.col("start_live")
        for scan in grid.scan_ms:
            # how far from the deadline of a beat the next scan is, at most, for it to come before the next beat
            room = F.lit(scan * 1000) - over
            is_met = (F.col("mono") + since < 0) | _meets(run["beats"], since, F.lit(scan * 1000), room)
            found |= is_usual & F.when(over > 0, is_met).otherwise(F.expr("false"))
    return found


def _meets(beats: Column, since: Column, scan: Column, room: Column) -> Column:
    return F.size(F.filter(beats, lambda beat: F.pmod(beat["mono"] + since, scan) > room)) > 0


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
