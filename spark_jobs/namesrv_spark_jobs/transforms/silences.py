"""The silence after each heartbeat: the one sort of all heartbeats, and the rows that are kept of it.

Twenty million heartbeats are shuffled and sorted once. Nearly all are followed by the next heartbeat in time; these are
summed up by registration period. All other rows are kept one by one as *points*: the first and last heartbeat of a
registration period, its eviction, each heartbeat followed by one of another broker at the same address, and each
heartbeat followed by a silence in which some setting might evict the broker.
"""

from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.options import WhatIf

# bins of the histogram of intervals: 40 to an expiry, and one more for everything from two expiries on
BINS_PER_EXPIRY: Final = 40
MOST_BINS: Final = 2 * BINS_PER_EXPIRY
# The usual interval of a broker is computed from its last ten intervals. An interval under 10 ms does not count: it
# stands between two registrations at the same time.
RECENT_INTERVALS: Final = 10
SHORTEST_INTERVAL: Final = 10_000

_ROW: Final = ("key", "boot", "mono", "seq", "live", "who", "agent", "expiry", "was_registered", "is_evict")
_NEXT: Final = ("mono", "seq", "live", "who", "agent", "is_evict")
_POINT: Final = (
    *("mono", "live", "who", "agent", "expiry", "was_registered", "is_evict", "earlier"),
    *(f"next_{name}" for name in _NEXT),
)


def next_tick(deadline: Column, scan: Column) -> Column:
    """The time of the first scan strictly after a deadline, for scans every `scan` since `start_live`.

    Null when the deadline is null.
    """
    since = deadline - F.col("start_live")
    # greatest() ignores null
    return F.when(deadline.isNotNull(), F.greatest(deadline - F.pmod(since, scan) + scan, F.col("start_live")))


def is_last_heartbeat() -> Column:
    """True for a row that is not followed by a heartbeat: an eviction comes next, or nothing."""
    return F.coalesce("next_is_evict", F.expr("true"))


def rows(heartbeats: DataFrame, evicts: DataFrame) -> DataFrame:
    """Heartbeats and evictions in one table for the sort, with columns of numbers only."""
    evicted = evicts.withColumn("is_evict", F.expr("true")).select(*_ROW)
    return heartbeats.withColumn("is_evict", F.expr("false")).select(*_ROW).unionByName(evicted)


def followed(ordered: DataFrame) -> DataFrame:
    """Each row with the columns `next_...` of the row that follows it at its `key`, and with three counts.

    `period` numbers the registration periods: it counts the evictions before the row. `earlier` counts the rows before
    this one in the same period. `counted` counts the intervals before the row from which usual intervals are computed.
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
        F.count(evicted).over(before).alias("period"),
        F.count(_counted_interval()).over(before).alias("counted"),
        (F.col("number") - F.coalesce(F.max(evicted).over(before), F.lit(0)) - 1).alias("earlier"),
    )


def _is_followed() -> Column:
    """True for a heartbeat whose next row is a heartbeat."""
    return ~F.col("is_evict") & ~is_last_heartbeat()


def _counted_interval() -> Column:
    """The interval after a heartbeat; null when it does not count towards the usual interval."""
    interval = F.col("next_mono") - F.col("mono")
    return F.when(_is_followed() & (interval >= SHORTEST_INTERVAL), interval)


def _live_interval() -> Column:
    """The interval after a heartbeat in liveness time, without the time during which the server was stopped."""
    return F.col("next_live") - F.col("live")


def points(sequence: DataFrame, boots: DataFrame, grid: WhatIf) -> DataFrame:
    """The points, with their number in the log as `point`, and all other rows summed up.

    A sum is of the rows of one registration period with the same `slot` and `bin`; its `next_...` mean nothing.
    `slot` and `interval` give the last ten intervals of each period: intervals that are ten apart share a slot, and the
    last one of a slot is kept. `bin` is that of the histogram of intervals.
    """
    settings = F.broadcast(boots.select("boot", "start_live", "broker_expiry"))
    place = F.when(_counted_interval().isNotNull(), F.col("counted"))
    interval_bin = F.when(F.col("expiry") > 0, bin_of(_live_interval(), F.col("expiry")))
    ends = ~_is_followed() | (F.col("earlier") == 0) | (F.col("next_who") != F.col("who"))
    is_point = ends | F.coalesce(_might_be_dead(grid), F.expr("false"))
    groups = sequence.join(settings, on="boot", how="left").groupBy(
        *("key", "boot", "period"),
        F.when(is_point, F.col("seq")).alias("point"),
        (place % RECENT_INTERVALS).alias("slot"),
        F.when(_is_followed(), interval_bin).alias("bin"),
    )
    return groups.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count(F.when(~F.col("is_evict"), 1)).alias("heartbeats"),
        F.max(place).alias("place"),
        F.max_by(_counted_interval(), place).alias("interval"),
        *(F.max(name).alias(name) for name in _POINT),
    )


def bin_of(interval: Column, expiry: Column) -> Column:
    """The number of the histogram bin of an interval in liveness time."""
    return F.least(F.floor(interval * BINS_PER_EXPIRY / expiry), F.lit(MOST_BINS))


def is_near_miss(interval: Column, expiry: Column) -> Column:
    """True for an interval longer than two thirds of the broker's expiry."""
    return 3 * interval > 2 * expiry


def _might_be_dead(grid: WhatIf) -> Column:
    """True if some setting of the grid might evict the broker in the interval after this heartbeat.

    A row too many only costs time; a missing one would make the replay wrong.
    """
    might_be_dead = is_near_miss(_live_interval(), F.col("expiry"))
    is_usual = F.col("expiry") == F.col("broker_expiry")
    for expiry in grid.expiry_ms:
        deadline = F.col("live") + expiry * 1000
        # a scan only finds brokers beyond their deadline, so nearly all intervals need no computation of scans
        is_over = is_usual & (deadline < F.col("next_live"))
        for scan in grid.scan_ms:
            might_be_dead |= is_over & (next_tick(deadline, F.lit(scan * 1000)) < F.col("next_live"))
    return might_be_dead


def interval_bins(points: DataFrame) -> DataFrame:
    """The number of intervals between heartbeats in each bin, in liveness time as near misses are."""
    return points.filter(F.col("bin").isNotNull()).groupBy("bin").agg(F.sum("rows").alias("count"))
