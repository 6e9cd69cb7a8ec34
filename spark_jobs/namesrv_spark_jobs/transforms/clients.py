"""Who went on getting the route of a broker that was gone, and for how long?"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 - as everyone calls it
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.transforms.schema import ROUTE

# what a client saw at last; of two at one time the first of these counts
OUTCOMES = ("seen", "returned", "client_gone", "log_end")
_ROUTE = ["boot", "topic", "revision"]
_MEMBER = ["boot", "broker_name", "broker_id"]
_EXPOSURE = ["key", "evict_seq", "client", "topic"]


def routes(rest: DataFrame) -> DataFrame:
    """One row for each revision of a topic: the first `route` line of it."""
    lines = rest.filter(F.col("event") == "route")
    return lines.groupBy(*_ROUTE).agg(F.min_by("brokers", F.struct("seq")).alias("brokers"))


def members(routes: DataFrame) -> DataFrame:
    """One row for each broker (name and id) of each revision."""
    brokers = routes.select(*_ROUTE, F.explode(F.from_json("brokers", ROUTE)).alias("broker"))
    ids = brokers.select(*_ROUTE, F.col("broker.name").alias("broker_name"), F.explode("broker.ids").alias("broker_id"))
    return ids.distinct()


def served(rest: DataFrame, routes: DataFrame) -> DataFrame:
    """What each connection was given and when, as far as the route is known, each with the one after it."""
    lines = rest.filter(F.col("event") == "served").select(*_ROUTE, "client", "mono", "seq")
    known = lines.join(routes.select(*_ROUTE), on=_ROUTE, how="left_semi")
    order = W.partitionBy("boot", "client", "topic").orderBy("mono", "seq")
    following = [F.lead(name).over(order).alias(f"next_{name}") for name in ("mono", "seq", "revision")]
    return known.select("*", *following)


def unknown_revisions(rest: DataFrame, routes: DataFrame) -> DataFrame:
    """`served` lines whose route is not in the log."""
    lines = rest.filter(F.col("event") == "served").select(*_ROUTE)
    return lines.join(routes.select(*_ROUTE), on=_ROUTE, how="left_anti")


def exposures(intervals: DataFrame, members: DataFrame, served: DataFrame, rest: DataFrame) -> DataFrame:
    """One row for each eviction, client and topic that was exposed: its `outcome`, and `staleness` until then.

    A client was exposed when the last thing it was given before the removal had the broker in it.
    """
    dead = intervals.filter(F.col("is_unannounced")).select("key", "evict_seq", "removed", "last_ok", "last", *_MEMBER)
    # only routes of brokers that died are looked at
    of_dead = members.join(F.broadcast(dead.select(*_MEMBER).distinct()), on=_MEMBER, how="left_semi")
    given = served.join(of_dead, on=_ROUTE, how="inner")
    at_removal = (F.col("mono") < F.col("removed")) & (
        F.col("next_mono").isNull() | (F.col("next_mono") >= F.col("removed"))
    )
    exposed = given.join(F.broadcast(dead), on=_MEMBER, how="inner").filter(at_removal)
    gone = rest.filter(F.col("event") == "client_gone").groupBy("boot", "client").agg(F.min("mono").alias("gone"))
    staying = exposed.join(gone, on=["boot", "client"], how="left")
    return _with_outcome(staying.filter(F.col("gone").isNull() | (F.col("gone") >= F.col("removed"))), served, of_dead)


def _with_outcome(exposed: DataFrame, served: DataFrame, of_dead: DataFrame) -> DataFrame:
    has = of_dead.select(
        "boot", "topic", F.col("revision").alias("next_revision"), "broker_name", "broker_id", F.lit(1).alias("still")
    )
    known = exposed.join(has, on=["boot", "topic", "next_revision", "broker_name", "broker_id"], how="left")
    later = _following(known, served, of_dead)
    candidates = F.array_min(F.array(*_candidates()))
    return (
        known.join(later, on=_EXPOSURE, how="left")
        .withColumn("found", candidates)
        .withColumn("outcome", F.element_at(F.array(*(F.lit(name) for name in OUTCOMES)), F.col("found.outcome")))
        .withColumn("staleness", F.col("found.at") - F.col("last_ok"))
        .select(*_EXPOSURE, "outcome", "staleness", F.col("found.at").alias("at"))
    )


def _candidates() -> list[Column]:
    """Every end that is known, as (time, which); one that did not come is the last in time."""
    never = F.lit((1 << 63) - 1)
    without = F.struct(F.coalesce("next_mono", never).alias("at"), F.lit(1).alias("outcome"))
    following = F.when(F.col("still").isNotNull(), F.col("later")).otherwise(without)
    ends = [(F.coalesce("gone", never), 3), (F.col("last"), 4)]
    found = [F.struct(at.alias("at"), F.lit(which).alias("outcome")) for at, which in ends]
    return [F.coalesce(following, F.struct(never.alias("at"), F.lit(1).alias("outcome"))), *found]


def _following(known: DataFrame, served: DataFrame, of_dead: DataFrame) -> DataFrame:
    """Where the next thing given still had the broker: what came of it; several may have been given at one time."""
    asked = known.filter(F.col("still").isNotNull()).select(*_EXPOSURE, "boot", "removed", "broker_name", "broker_id")
    given = served.select("boot", "client", "topic", "revision", "mono")
    pairs = asked.join(given, on=["boot", "client", "topic"], how="inner").filter(F.col("mono") >= F.col("removed"))
    has = of_dead.withColumn("still", F.lit(1))
    judged = pairs.join(has, on=[*_ROUTE, "broker_name", "broker_id"], how="left")
    ends = judged.filter(F.col("still").isNull() | (F.col("mono") > F.col("removed")))
    end = F.struct(F.col("mono").alias("at"), F.when(F.col("still").isNull(), 1).otherwise(2).alias("outcome"))
    return ends.groupBy(*_EXPOSURE).agg(F.min(end).alias("later"))


def exposed_pulls(intervals: DataFrame, members: DataFrame, rest: DataFrame) -> DataFrame:
    """How many answers still had the broker after it was last heard: `pulls` by eviction and topic."""
    dead = intervals.filter(F.col("is_unannounced")).select(
        "key",
        "evict_seq",
        "last_ok",
        (F.col("removed") + F.coalesce("scan_interval", F.lit(0))).alias("until"),
        *_MEMBER,
    )
    lines = rest.filter(F.col("event") == "pulls").select(*_ROUTE, "mono", "count")
    told = lines.join(members, on=_ROUTE, how="inner").join(F.broadcast(dead), on=_MEMBER, how="inner")
    during = told.filter((F.col("mono") > F.col("last_ok")) & (F.col("mono") <= F.col("until")))
    return during.groupBy("key", "evict_seq", "topic").agg(F.sum("count").alias("pulls"))
