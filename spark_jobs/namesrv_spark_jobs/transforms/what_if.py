"""Who would have been evicted, and when, had the settings been others?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 - as everyone calls it
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.options import WhatIf
from namesrv_spark_jobs.transforms.distributions import measures
from namesrv_spark_jobs.transforms.lives import is_same_process, with_return
from namesrv_spark_jobs.transforms.policies import EARLIEST_GAPS, deviations, next_tick, phi_deadline

# of the next poll, over its period
PHASES: Final = 10
# stands for the logged settings among the numbers of policies
LOGGED: Final = -1


@dataclass(frozen=True)
class Policy:
    """One cell of the grid but for the poll: either an expiry or a threshold."""

    number: int
    expiry_ms: int | None
    phi: float | None
    scan_ms: int


def policies(grid: WhatIf) -> list[Policy]:
    """All of the grid, in its order."""
    fixed: list[tuple[int | None, float | None]] = [(expiry, None) for expiry in grid.expiry_ms]
    whats = [*fixed, *((None, threshold) for threshold in grid.phi)]
    cells = [(expiry, phi, scan) for expiry, phi in whats for scan in grid.scan_ms]
    return [Policy(number, expiry, phi, scan) for number, (expiry, phi, scan) in enumerate(cells)]


def gaps(points: DataFrame, lives: DataFrame, begun: DataFrame, boots: DataFrame) -> DataFrame:
    """Every beat after which some policy might evict, with the end of its silence.

    `next_live` is the next beat's time, `closed` that of an eviction for another reason than silence, `back` the
    next beat of the same broker; liveness time.
    """
    own = points.filter(F.col("point").isNotNull() & ~F.col("is_evict")).withColumnRenamed("point", "seq")
    born = own.filter(F.col("earlier") == 0).select("key", "life", F.col("squares").alias("squares_born"))
    is_last = F.coalesce("next_is_evict", F.expr("true"))
    known = own.join(_ends(lives), on=["key", "life"], how="left").join(born, on=["key", "life"], how="left")
    ended = known.withColumn("closed", F.when(is_last, F.col("end_closed"))).withColumn(
        "next_live", F.when(is_last, F.col("end_next")).otherwise(F.col("next_live"))
    )
    settings = F.broadcast(boots.select("boot", "start_live", "end_live", "broker_expiry"))
    found = _with_back(ended.join(settings, on="boot", how="inner"), begun)
    beat = (
        "key",
        "boot",
        "life",
        "seq",
        "live",
        "who",
        "agent",
        "expiry",
        "born",
        "earlier",
        "squares",
        "squares_born",
    )
    return found.select(*beat, "next_live", "closed", "back", "start_live", "end_live", "broker_expiry")


def _ends(lives: DataFrame) -> DataFrame:
    """What ends the silence after each life that has beats: evictions before the next such life may close it."""
    order = W.partitionBy("key").orderBy("life")
    heard = F.count("first_live").over(order.rowsBetween(W.unboundedPreceding, W.currentRow))
    closing = F.when(F.col("reason") == "silent", None).otherwise(F.struct("life", "removed_live"))
    closed = F.when(F.col("evict_seq").isNotNull(), closing)
    groups = lives.withColumn("heard", heard).withColumn("closing", closed).groupBy("key", "heard")
    ends = groups.agg(
        F.min("life").alias("life"), F.min("first_live").alias("first_live"), F.min("closing").alias("closing")
    )
    following = F.lead("first_live").over(W.partitionBy("key").orderBy("heard"))
    return ends.select("key", "life", F.col("closing.removed_live").alias("end_closed"), following.alias("end_next"))


def _with_back(ended: DataFrame, begun: DataFrame) -> DataFrame:
    """Mostly the next beat is the same broker's; for the rest it is looked up."""
    is_next = ~F.coalesce("next_is_evict", F.expr("true")) & (F.col("next_who") == F.col("who"))
    following = F.struct(
        F.col("next_mono").alias("mono"),
        F.col("next_seq").alias("seq"),
        F.col("next_live").alias("live"),
        F.col("next_agent").alias("agent"),
    )
    direct = ended.filter(F.coalesce(is_next, F.expr("false"))).withColumn("back", following)
    return direct.unionByName(with_return(ended.filter(~F.coalesce(is_next, F.expr("false"))), begun))


def replayed(gaps: DataFrame, grid: WhatIf) -> DataFrame:
    """One row for each eviction of each policy: its `staleness` and whether it `is_false`; microseconds."""
    cells = gaps.withColumn("policy", F.explode(F.array(*(_literal(policy) for policy in policies(grid)))))
    at = next_tick(_deadline(cells), F.col("policy.scan"))
    found = cells.withColumn("at", at).filter(_is_evicted() & (F.col("at") <= F.col("end_live")))
    is_false = is_same_process(F.col("agent"), F.col("expiry"), F.col("back"), F.col("back.live") - F.col("at"))
    return found.select(
        F.col("policy.number").alias("policy"),
        (F.col("at") - F.col("live")).alias("staleness"),
        is_false.alias("is_false"),
    )


def _literal(policy: Policy) -> Column:
    y = None if policy.phi is None else deviations(policy.phi)
    return F.struct(
        F.lit(policy.number).alias("number"),
        F.lit(None if policy.expiry_ms is None else policy.expiry_ms * 1000).cast("long").alias("expiry"),
        F.lit(y).cast("double").alias("y"),
        F.lit(policy.scan_ms * 1000).cast("long").alias("scan"),
    )


def _deadline(cells: DataFrame) -> Column:
    """Null when nothing says how long the broker may be silent: then it is never evicted."""
    logged = F.col("live") + cells["expiry"]
    is_usual = F.coalesce(cells["expiry"] == F.col("broker_expiry"), F.expr("false"))
    fixed = F.when(is_usual, F.col("live") + F.col("policy.expiry")).otherwise(logged)
    adapted = F.when(F.col("earlier") >= EARLIEST_GAPS, phi_deadline(F.col("policy.y"))).otherwise(logged)
    return F.when(F.col("policy.y").isNull(), fixed).otherwise(adapted)


def _is_evicted() -> Column:
    """Whether a scan (`at`) comes before the broker is heard, or leaves, by itself."""
    before_beat = F.col("next_live").isNull() | (F.col("at") < F.col("next_live"))
    return before_beat & (F.col("closed").isNull() | (F.col("at") < F.col("closed")))


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
