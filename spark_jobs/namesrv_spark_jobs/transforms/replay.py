"""Replays of the log under other settings, and under its own."""

from collections.abc import Sequence
from itertools import product
from typing import Final, NamedTuple

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.options import WhatIf
from namesrv_spark_jobs.transforms.lives import is_same_process, point_beats, with_return
from namesrv_spark_jobs.transforms.output_rows import measures
from namesrv_spark_jobs.transforms.silences import is_last_beat, next_tick

# of the next poll, over its period
PHASES: Final = 10
# stands for the logged settings among the numbers of policies
LOGGED: Final = -1
_BEAT: Final = ("key", "boot", "life", "seq", "live", "who", "agent", "expiry")


class Policy(NamedTuple):
    """One cell of the grid but for the poll."""

    number: int
    expiry_ms: int
    scan_ms: int


def policies(grid: WhatIf) -> list[Policy]:
    """All of the grid, in its order."""
    cells = product(grid.expiry_ms, grid.scan_ms)
    return [Policy(number, *cell) for number, cell in enumerate(cells)]


def gaps(points: DataFrame, lives: DataFrame, begun: DataFrame, boots: DataFrame) -> DataFrame:
    """Every beat after which some policy might evict, with the end of its silence.

    `next_live` is the next beat's time, `closed` that of an eviction for another reason than silence, `back` the
    next beat of the same broker; liveness time.
    """
    own = point_beats(points)
    known = own.join(_ends(lives), on=["key", "life"], how="left")
    ended = known.withColumns(
        {
            "closed": F.when(is_last_beat(), F.col("end_closed")),
            "next_live": F.when(is_last_beat(), F.col("end_next")).otherwise(F.col("next_live")),
        }
    )
    settings = F.broadcast(boots.select("boot", "start_live", "end_live", "broker_expiry"))
    found = _with_back(ended.join(settings, on="boot", how="inner"), begun)
    return found.select(*_BEAT, "next_live", "closed", "back", "start_live", "end_live", "broker_expiry")


def _ends(lives: DataFrame) -> DataFrame:
    """What ends the silence after each life that has beats: evictions before the next such life may close it."""
    order = W.partitionBy("key").orderBy("life")
    heard = F.count("first_live").over(order.rowsBetween(W.unboundedPreceding, W.currentRow))
    closes = F.col("evict_seq").isNotNull() & F.coalesce(F.col("reason") != "silent", F.expr("true"))
    groups = lives.withColumn("heard", heard).groupBy("key", "heard")
    ends = groups.agg(
        F.min("life").alias("life"),
        F.min("first_live").alias("first_live"),
        F.min(F.when(closes, F.struct("life", "removed_live"))).alias("closing"),
    )
    following = F.lead("first_live").over(W.partitionBy("key").orderBy("heard"))
    return ends.select("key", "life", F.col("closing.removed_live").alias("end_closed"), following.alias("end_next"))


def _with_back(ended: DataFrame, begun: DataFrame) -> DataFrame:
    """Mostly the next beat is the same broker's; for the rest it is looked up."""
    is_next = F.coalesce(~is_last_beat() & (F.col("next_who") == F.col("who")), F.expr("false"))
    following = F.struct(*(F.col(f"next_{name}").alias(name) for name in ("mono", "seq", "live", "agent")))
    direct = ended.filter(is_next).withColumn("back", following)
    return direct.unionByName(with_return(ended.filter(~is_next), begun))


def replayed(gaps: DataFrame, grid: WhatIf) -> DataFrame:
    """One row for each eviction of each policy: its `staleness` and whether it `is_false`; microseconds."""
    cells = gaps.withColumn("policy", F.explode(F.array(*(_literal(policy) for policy in policies(grid)))))
    cells = cells.withColumn("deadline", _deadline(cells))
    cells = cells.withColumn("at", next_tick(F.col("deadline"), F.col("policy.scan")))
    found = _evicted(cells)
    return found.filter(F.col("at") <= F.col("end_live")).select(
        F.col("policy.number").alias("policy"), "staleness", "is_false"
    )


def _literal(policy: Policy) -> Column:
    return F.struct(
        F.lit(policy.number).alias("number"),
        F.lit(policy.expiry_ms * 1000).cast("long").alias("expiry"),
        F.lit(policy.scan_ms * 1000).cast("long").alias("scan"),
    )


def _deadline(cells: DataFrame) -> Column:
    """Null when nothing says how long the broker may be silent: then it is never evicted."""
    logged = F.col("live") + cells["expiry"]
    is_usual = F.coalesce(cells["expiry"] == F.col("broker_expiry"), F.expr("false"))
    return F.when(is_usual, F.col("live") + F.col("policy.expiry")).otherwise(logged)


def _evicted(scanned: DataFrame) -> DataFrame:
    """The gaps in which a scan (`at`) comes before the broker is heard, or leaves, by itself; was that false?"""
    before_beat = F.col("next_live").isNull() | (F.col("at") < F.col("next_live"))
    before_closing = F.col("closed").isNull() | (F.col("at") < F.col("closed"))
    is_false = is_same_process(F.col("agent"), F.col("expiry"), F.col("back"), F.col("back.live") - F.col("at"))
    found = scanned.filter(before_beat & before_closing)
    return found.withColumns({"staleness": F.col("at") - F.col("live"), "is_false": is_false})


def judged(evictions: DataFrame) -> DataFrame:
    """One row for each policy: how many evictions, how many of them false, and the staleness of the true ones."""
    false = F.count(F.when(F.col("is_false"), 1)).alias("false")
    true = evictions.withColumn("value", F.when(~F.col("is_false"), F.col("staleness")))
    return true.groupBy("policy").agg(F.count(F.lit(1)).alias("evictions"), false, *measures())


def with_polls(replayed: DataFrame, polls_ms: Sequence[int]) -> DataFrame:
    """What clients would have seen of each true eviction: the distribution for each `poll`, over its ten phases."""
    phases = [(poll, poll * 1000 * (2 * phase + 1) // (2 * PHASES)) for poll in polls_ms for phase in range(PHASES)]
    waits = F.array(*(F.struct(F.lit(poll).alias("poll"), F.lit(wait).alias("wait")) for poll, wait in phases))
    waiting = replayed.filter(~F.col("is_false")).withColumn("next", F.explode(waits))
    value = (F.col("staleness") + F.col("next.wait")).alias("value")
    return waiting.select("policy", F.col("next.poll").alias("poll"), value).groupBy("policy", "poll").agg(*measures())


def replayed_as_logged(gaps: DataFrame, moments: DataFrame) -> DataFrame:
    """One row for each eviction that the logged scans had to make: its `life`, `scan`, and `at` in liveness time."""
    order = W.partitionBy("boot").orderBy("live", "mono", "seq")
    # in order: `turn` counts them
    scans = moments.filter(F.col("event") == "scan").select(
        "boot", "scan", F.col("live").alias("at"), F.row_number().over(order).alias("turn")
    )
    asked = gaps.filter(F.col("expiry").isNotNull()).withColumn("deadline", F.col("live") + F.col("expiry"))
    asked = asked.filter(F.col("next_live").isNull() | (F.col("deadline") < F.col("next_live")))
    due = _first_scan(asked, scans).join(F.broadcast(_fenced(moments, scans)), on="key", how="left")
    # the first turn that is not fenced: at most as many are skipped as there are fenced ones
    turns = F.sequence("turn", F.col("turn") + F.size("fenced"))
    not_fenced = F.filter(turns, lambda turn: ~F.array_contains("fenced", turn))[0]
    chosen = due.withColumn("turn", F.when(F.col("fenced").isNull(), F.col("turn")).otherwise(not_fenced))
    found = _evicted(chosen.join(scans, on=["boot", "turn"], how="inner"))
    return found.select("boot", "key", "who", "life", "seq", "scan", "at", "staleness", "is_false")


def _first_scan(asked: DataFrame, scans: DataFrame) -> DataFrame:
    """Each row with the `turn` of the first scan strictly after its deadline.

    Sorted backwards, the scans that are later are known before; at one time the question comes before the scan.
    """
    backwards = W.partitionBy("boot").orderBy(F.desc("moment"), "is_scan", F.desc("turn"), "key", "seq")
    so_far = backwards.rowsBetween(W.unboundedPreceding, W.currentRow)
    questions = asked.select("boot", F.col("deadline").alias("moment"), F.expr("false").alias("is_scan"), "key", "seq")
    answers = scans.select("boot", F.col("at").alias("moment"), F.expr("true").alias("is_scan"), "turn")
    both = questions.unionByName(answers, allowMissingColumns=True)
    known = both.withColumn("turn", F.last("turn", ignorenulls=True).over(so_far))
    return asked.join(known.filter(~F.col("is_scan")).select("key", "seq", "turn"), on=["key", "seq"], how="inner")


def _fenced(moments: DataFrame, scans: DataFrame) -> DataFrame:
    """The turns of the scans whose finding about a broker was given up."""
    lines = moments.filter((F.col("event") == "fenced") & (F.col("reason") == "silent")).select("boot", "key", "scan")
    placed = lines.join(scans.select("boot", "scan", "turn"), on=["boot", "scan"], how="inner")
    return placed.groupBy("key").agg(F.collect_set("turn").alias("fenced"))


def compared(lives: DataFrame, replayed: DataFrame) -> DataFrame:
    """One row: how many evictions are logged and replayed, and how many of them differ in which way."""
    place = ["key", "life", "found_by"]
    found_by = F.coalesce("scan", F.lit(-1)).alias("found_by")
    logged = lives.filter(F.col("reason") == "silent").select("key", "life", found_by, F.lit(1).alias("logged"))
    evicted = replayed.select("key", "life", found_by, F.lit(1).alias("replayed"))
    pairs = logged.join(evicted, on=place, how="full_outer").na.fill(0, ["logged", "replayed"])
    of_life = pairs.groupBy("key", "life").agg(
        F.sum("logged").alias("logged"),
        F.sum("replayed").alias("replayed"),
        F.count(F.when(F.col("replayed") == 0, 1)).alias("missing"),
        F.count(F.when(F.col("logged") == 0, 1)).alias("extra"),
    )
    # within one life, one of each that do not meet are one eviction at another scan
    other = F.least("missing", "extra")
    sums = {"logged": F.col("logged"), "replayed": F.col("replayed"), "other_scan": other}
    sums |= {"missing": F.col("missing") - other, "extra": F.col("extra") - other}
    return of_life.agg(*(F.coalesce(F.sum(value), F.lit(0)).alias(name) for name, value in sums.items()))
