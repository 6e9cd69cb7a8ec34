"""Replays of the logged heartbeats under other settings, and under the logged ones."""

from collections.abc import Sequence
from itertools import product
from typing import Final, NamedTuple

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.options import WhatIf
from namesrv_spark_jobs.transforms.output_rows import measures
from namesrv_spark_jobs.transforms.registration_periods import is_same_process, point_heartbeats, with_return
from namesrv_spark_jobs.transforms.silences import is_last_heartbeat, next_tick

# poll phases that are tried for each eviction, evenly spread over the poll interval
PHASES: Final = 10
# the number of the policy that stands for the logged settings
LOGGED: Final = -1
_HEARTBEAT: Final = ("key", "boot", "period", "seq", "live", "who", "agent", "expiry")


class Policy(NamedTuple):
    """The expiry and scan interval of one cell of the grid, without the poll."""

    number: int
    expiry_ms: int
    scan_ms: int


def policies(grid: WhatIf) -> list[Policy]:
    """The policies of a grid, in its order."""
    cells = product(grid.expiry_ms, grid.scan_ms)
    return [Policy(number, *cell) for number, cell in enumerate(cells)]


def silences(points: DataFrame, periods: DataFrame, begun: DataFrame, boots: DataFrame) -> DataFrame:
    """The heartbeats among the points, with the end of the silence that follows each of them.

    Every heartbeat after which some policy of the grid evicts is among them, and a few more.

    `next_live` is the time of the next heartbeat at the address, and `closed` that of an eviction for another reason
    than silence. `back` is the next heartbeat of the same broker. All times are liveness times.
    """
    own = point_heartbeats(points)
    known = own.join(_ends(periods), on=["key", "period"], how="left")
    ended = known.withColumns(
        {
            "closed": F.when(is_last_heartbeat(), F.col("end_closed")),
            "next_live": F.when(is_last_heartbeat(), F.col("end_next")).otherwise(F.col("next_live")),
        }
    )
    settings = F.broadcast(boots.select("boot", "start_live", "end_live", "broker_expiry"))
    silent = _with_back(ended.join(settings, on="boot", how="inner"), begun)
    return silent.select(*_HEARTBEAT, "next_live", "closed", "back", "start_live", "end_live", "broker_expiry")


def _ends(periods: DataFrame) -> DataFrame:
    """The end of the silence after each registration period that has heartbeats.

    `end_next` is the first heartbeat of the next such period. `end_closed` is the first eviction before that for
    another reason than silence; it may belong to a period without heartbeats in between.
    """
    order = W.partitionBy("key").orderBy("period")
    number = F.count("first_live").over(order.rowsBetween(W.unboundedPreceding, W.currentRow))
    closes = F.col("evict_seq").isNotNull() & F.coalesce(F.col("reason") != "silent", F.expr("true"))
    groups = periods.withColumn("number", number).groupBy("key", "number")
    ends = groups.agg(
        F.min("period").alias("period"),
        F.min("first_live").alias("first_live"),
        F.min(F.when(closes, F.struct("period", "removed_live"))).alias("closing"),
    )
    following = F.lead("first_live").over(W.partitionBy("key").orderBy("number"))
    return ends.select("key", "period", F.col("closing.removed_live").alias("end_closed"), following.alias("end_next"))


def _with_back(ended: DataFrame, begun: DataFrame) -> DataFrame:
    """`ended` with `back`: mostly the next heartbeat at the address; for the rest it is looked up in `begun`."""
    is_next = F.coalesce(~is_last_heartbeat() & (F.col("next_who") == F.col("who")), F.expr("false"))
    following = F.struct(*(F.col(f"next_{name}").alias(name) for name in ("mono", "seq", "live", "agent")))
    direct = ended.filter(is_next).withColumn("back", following)
    return direct.unionByName(with_return(ended.filter(~is_next), begun))


def replayed(silences: DataFrame, grid: WhatIf) -> DataFrame:
    """One row for each eviction of each policy: its `staleness` and whether it `is_false`; microseconds.

    Boots with unknown settings are left out: which of their brokers used the server's expiry is unknown.
    """
    known = silences.filter(F.col("broker_expiry").isNotNull())
    cells = known.withColumn("policy", F.explode(F.array(*(_literal(policy) for policy in policies(grid)))))
    cells = cells.withColumn("deadline", _deadline())
    cells = cells.withColumn("at", next_tick(F.col("deadline"), F.col("policy.scan")))
    evictions = _evicted(cells)
    return evictions.filter(F.col("at") <= F.col("end_live")).select(
        F.col("policy.number").alias("policy"), "staleness", "is_false"
    )


def _literal(policy: Policy) -> Column:
    return F.struct(
        F.lit(policy.number).alias("number"),
        F.lit(policy.expiry_ms * 1000).cast("long").alias("expiry"),
        F.lit(policy.scan_ms * 1000).cast("long").alias("scan"),
    )


def _deadline() -> Column:
    """The time until which the broker may be silent; null for a broker without a logged expiry, which is never evicted.

    A policy replaces the server's default expiry. A broker that registered with an expiry of its own keeps that expiry.
    """
    logged = F.col("live") + F.col("expiry")
    is_usual = F.coalesce(F.col("expiry") == F.col("broker_expiry"), F.expr("false"))
    return F.when(is_usual, F.col("live") + F.col("policy.expiry")).otherwise(logged)


def _evicted(scanned: DataFrame) -> DataFrame:
    """The silences in which the scan `at` comes before the next heartbeat and before any other removal.

    `is_false` is true if the same broker process is back later.
    """
    before_heartbeat = F.col("next_live").isNull() | (F.col("at") < F.col("next_live"))
    before_closing = F.col("closed").isNull() | (F.col("at") < F.col("closed"))
    is_false = is_same_process(F.col("agent"), F.col("expiry"), F.col("back"), F.col("back.live") - F.col("at"))
    evictions = scanned.filter(before_heartbeat & before_closing)
    return evictions.withColumns({"staleness": F.col("at") - F.col("live"), "is_false": is_false})


def judged(evictions: DataFrame) -> DataFrame:
    """One row for each policy: the number of evictions, of false ones, and the staleness of the others."""
    false = F.count(F.when(F.col("is_false"), 1)).alias("false")
    true = evictions.withColumn("value", F.when(~F.col("is_false"), F.col("staleness")))
    return true.groupBy("policy").agg(F.count(F.lit(1)).alias("evictions"), false, *measures())


def with_polls(replayed: DataFrame, polls_ms: Sequence[int]) -> DataFrame:
    """The client staleness of true evictions for each policy and `poll`: a distribution over ten phases of the poll."""
    phases = [(poll, poll * 1000 * (2 * phase + 1) // (2 * PHASES)) for poll in polls_ms for phase in range(PHASES)]
    waits = F.array(*(F.struct(F.lit(poll).alias("poll"), F.lit(wait).alias("wait")) for poll, wait in phases))
    waiting = replayed.filter(~F.col("is_false")).withColumn("next", F.explode(waits))
    value = (F.col("staleness") + F.col("next.wait")).alias("value")
    return waiting.select("policy", F.col("next.poll").alias("poll"), value).groupBy("policy", "poll").agg(*measures())


def replayed_as_logged(silences: DataFrame, moments: DataFrame) -> DataFrame:
    """One row for each eviction under the logged settings: its `period`, `scan`, and `at` in liveness time."""
    order = W.partitionBy("boot").orderBy("live", "mono", "seq")
    # `turn` numbers the scans of a boot in order
    scans = moments.filter(F.col("event") == "scan").select(
        "boot", "scan", F.col("live").alias("at"), F.row_number().over(order).alias("turn")
    )
    overdue = silences.filter(F.col("expiry").isNotNull()).withColumn("deadline", F.col("live") + F.col("expiry"))
    overdue = overdue.filter(F.col("next_live").isNull() | (F.col("deadline") < F.col("next_live")))
    due = _first_scan(overdue, scans).join(F.broadcast(_fenced(moments, scans)), on="key", how="left")
    # The broker is evicted by the first scan that was not fenced: among `size(fenced)` + 1 scans, one was not.
    turns = F.sequence("turn", F.col("turn") + F.size("fenced"))
    not_fenced = F.filter(turns, lambda turn: ~F.array_contains("fenced", turn))[0]
    chosen = due.withColumn("turn", F.when(F.col("fenced").isNull(), F.col("turn")).otherwise(not_fenced))
    evictions = _evicted(chosen.join(scans, on=["boot", "turn"], how="inner"))
    return evictions.select("boot", "key", "who", "period", "seq", "scan", "at", "staleness", "is_false")


def _first_scan(overdue: DataFrame, scans: DataFrame) -> DataFrame:
    """Each row with the `turn` of the first scan strictly after its deadline.

    Both tables are sorted backwards in time together, so that a later scan stands before the deadlines that need it. At
    one moment the deadline stands before the scan, which makes "after" strict.
    """
    backwards = W.partitionBy("boot").orderBy(F.desc("moment"), "is_scan", F.desc("turn"), "key", "seq")
    so_far = backwards.rowsBetween(W.unboundedPreceding, W.currentRow)
    deadlines = overdue.select(
        "boot", F.col("deadline").alias("moment"), F.expr("false").alias("is_scan"), "key", "seq"
    )
    moments = scans.select("boot", F.col("at").alias("moment"), F.expr("true").alias("is_scan"), "turn")
    both = deadlines.unionByName(moments, allowMissingColumns=True)
    known = both.withColumn("turn", F.last("turn", ignorenulls=True).over(so_far))
    return overdue.join(known.filter(~F.col("is_scan")).select("key", "seq", "turn"), on=["key", "seq"], how="inner")


def _fenced(moments: DataFrame, scans: DataFrame) -> DataFrame:
    """The turns of the scans that found a broker silent, but whose removal was fenced."""
    lines = moments.filter((F.col("event") == "fenced") & (F.col("reason") == "silent")).select("boot", "key", "scan")
    placed = lines.join(scans.select("boot", "scan", "turn"), on=["boot", "scan"], how="inner")
    return placed.groupBy("key").agg(F.collect_set("turn").alias("fenced"))


def compared(periods: DataFrame, replayed: DataFrame) -> DataFrame:
    """One row: how many evictions are logged, and replayed, and how many are missing, extra, or at another scan."""
    place = ["key", "period", "scan_number"]
    scan_number = F.coalesce("scan", F.lit(-1)).alias("scan_number")
    # a replay needs the last heartbeat, which is not in the log if the log begins later
    evicts = periods.filter((F.col("reason") == "silent") & F.col("first_ok").isNotNull())
    logged = evicts.select("key", "period", scan_number, F.lit(1).alias("logged"))
    evicted = replayed.select("key", "period", scan_number, F.lit(1).alias("replayed"))
    pairs = logged.join(evicted, on=place, how="full_outer")
    pairs = pairs.withColumns({name: F.coalesce(name, F.lit(0)) for name in ("logged", "replayed")})
    of_period = pairs.groupBy("key", "period").agg(
        F.sum("logged").alias("logged"),
        F.sum("replayed").alias("replayed"),
        F.count(F.when(F.col("replayed") == 0, 1)).alias("missing"),
        F.count(F.when(F.col("logged") == 0, 1)).alias("extra"),
    )
    # a missing and an extra eviction of the same registration period are one eviction at another scan
    other = F.least("missing", "extra")
    sums = {"logged": F.col("logged"), "replayed": F.col("replayed"), "other_scan": other}
    sums |= {"missing": F.col("missing") - other, "extra": F.col("extra") - other}
    return of_period.agg(*(F.coalesce(F.sum(value), F.lit(0)).alias(name) for name, value in sums.items()))
