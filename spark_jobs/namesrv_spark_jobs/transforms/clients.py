"""Client staleness: who went on getting the route of a broker that was gone, and for how long."""

from collections.abc import Sequence
from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.transforms.overlaps import overlapping
from namesrv_spark_jobs.transforms.schema import BROKERS, CHANGES, MOST_COUNT

# what a client saw at last; of two at one time the first of these counts
OUTCOMES = ("seen", "returned", "client_gone", "log_end")
_ROUTE = ["boot", "topic", "revision"]
_MEMBER = ["boot", "broker_name", "broker_id"]
# later than any moment
_NEVER: Final = 1 << 62
_EXPOSURE = ["key", "evict_seq", "client", "topic"]


def routes(rest: DataFrame, topics: Sequence[str]) -> DataFrame:
    """One row for each revision of a topic: the first `route` entry of it, and what it changed.

    `turn` counts the changes of a topic up to `turns`; `next_whole` is the turn of the next whole route. `is_known`
    says whether the route of the revision is in the log.
    """
    lines = rest.filter(F.col("event") == "route")
    # a line of version 1 is the whole route of one topic
    one = F.struct(
        F.array("topic").alias("topics"),
        F.from_json("brokers", BROKERS).alias("set"),
        F.lit(None).cast("array<string>").alias("unset"),
        F.expr("true").alias("whole"),
    )
    entries = lines.select(
        "boot", "revision", "seq", F.explode(F.coalesce(F.from_json("changes", CHANGES), F.array(one))).alias("entry")
    )
    told = _asked(entries.select("*", F.explode("entry.topics").alias("topic")), topics)
    named = told.filter(F.col("topic").isNotNull() & F.col("revision").isNotNull())
    first = named.groupBy(*_ROUTE).agg(F.min_by("entry", "seq").alias("entry"))
    order, backwards = (W.partitionBy("boot", "topic").orderBy(by) for by in (F.asc("revision"), F.desc("revision")))
    whole = F.when(F.col("entry.whole"), F.col("turn"))
    numbered = first.withColumn("turn", F.row_number().over(order))
    so_far, after = (by.rowsBetween(W.unboundedPreceding, end) for by, end in ((order, W.currentRow), (backwards, -1)))
    return numbered.select(
        *_ROUTE,
        "turn",
        F.max("turn").over(W.partitionBy("boot", "topic")).alias("turns"),
        F.last(whole, ignorenulls=True).over(after).alias("next_whole"),
        F.last(whole, ignorenulls=True).over(so_far).isNotNull().alias("is_known"),
        "entry.set",
        "entry.unset",
    )


def members(routes: DataFrame, intervals: DataFrame) -> DataFrame:
    """One row for each broker (name and id) of each revision, of those brokers that died."""
    change = ("boot", "topic", "turn", "turns", "next_whole")
    had = routes.select(*change, F.explode("set").alias("broker")).select(*change, "broker.name", "broker.ids")
    left = routes.select(*change, F.explode("unset").alias("name"), F.lit(None).cast("array<bigint>").alias("ids"))
    dead = intervals.filter(F.col("is_unannounced")).select("boot", F.col("broker_name").alias("name")).distinct()
    told = had.unionByName(left).join(F.broadcast(dead), on=["boot", "name"], how="left_semi")
    # what is said of a broker holds until something else is said of it, or of the whole route
    following = F.lead("turn").over(W.partitionBy("boot", "topic", "name").orderBy("turn", F.size("ids")))
    last = F.least(following - 1, F.col("next_whole") - 1, "turns")
    held = told.withColumn("last", last).filter((F.size("ids") > 0) & (F.col("last") >= F.col("turn")))
    turns = held.select("boot", "topic", "name", "ids", F.explode(F.sequence("turn", "last")).alias("turn"))
    known = routes.filter("is_known").select(*_ROUTE, "turn")
    found = turns.join(known, on=["boot", "topic", "turn"], how="inner")
    return found.select(*_ROUTE, F.col("name").alias("broker_name"), F.explode("ids").alias("broker_id")).distinct()


def given(rest: DataFrame, event: str, topics: Sequence[str]) -> DataFrame:
    """One row for each topic of each `served` or `pulls` line, with `revision` and, of pulls, `count`."""
    lines = rest.filter(F.col("event") == event)
    columns = {"topics": "string", "revisions": "bigint"} | ({"counts": "bigint"} if event == "pulls" else {})
    lists = F.arrays_zip(*(F.from_json(name, f"array<{kind}>") for name, kind in columns.items()))
    fields = ",".join(f"{name[:-1]}:{kind}" for name, kind in columns.items())
    one = F.array(F.struct(*(name[:-1] for name in columns)))
    entries = F.explode(F.coalesce(lists.cast(f"array<struct<{fields}>>"), one)).alias("entry")
    told = lines.select("boot", "client", "mono", "seq", entries).select("boot", "client", "mono", "seq", "entry.*")
    is_whole = F.col("topic").isNotNull() & F.col("revision").isNotNull()
    if "counts" in columns:
        is_whole &= F.col("count").between(0, MOST_COUNT)
    return _asked(told.filter(is_whole), topics)


def _asked(told: DataFrame, topics: Sequence[str]) -> DataFrame:
    """Those of the topics that were asked for: a line may have others as well."""
    return told.filter(F.col("topic").isin(*topics)) if topics else told


def served(given: DataFrame, routes: DataFrame) -> DataFrame:
    """What each connection was given and when, as far as the route is known, each with the one after it."""
    known = given.join(routes.filter("is_known").select(*_ROUTE), on=_ROUTE, how="left_semi")
    order = W.partitionBy("boot", "client", "topic").orderBy("mono", "seq")
    following = [F.lead(name).over(order).alias(f"next_{name}") for name in ("mono", "seq", "revision")]
    return known.select("*", *following)


def unknown_revisions(given: DataFrame, routes: DataFrame) -> DataFrame:
    """What was served although its route is not in the log."""
    return given.join(routes.filter("is_known").select(*_ROUTE), on=_ROUTE, how="left_anti")


def exposures(intervals: DataFrame, members: DataFrame, served: DataFrame, rest: DataFrame) -> DataFrame:
    """One row for each eviction, client and topic that was exposed: its `outcome`, and `staleness` until then.

    A client was exposed when the last thing it was given before the removal had the broker in it.
    """
    dead = intervals.filter(F.col("is_unannounced")).select("key", "evict_seq", "removed", "last_ok", "last", *_MEMBER)
    # only routes of brokers that died are looked at
    of_dead = members.join(F.broadcast(dead.select(*_MEMBER).distinct()), on=_MEMBER, how="left_semi")
    given = served.join(of_dead, on=_ROUTE, how="inner")
    # the last thing given until something else is: a broker that flaps dies many times before many clients
    last = given.withColumns({"low": F.col("mono") + 1, "high": F.coalesce("next_mono", F.lit(_NEVER))})
    deaths = dead.withColumns({"begin": F.col("removed"), "end": F.col("removed")})
    exposed = overlapping(last, deaths, _MEMBER).drop("low", "high", "begin", "end")
    gone = rest.filter(F.col("event") == "client_gone").groupBy("boot", "client").agg(F.min("mono").alias("gone"))
    staying = exposed.join(gone, on=["boot", "client"], how="left")
    return _with_outcome(staying.filter(F.col("gone").isNull() | (F.col("gone") >= F.col("removed"))), served, of_dead)


def _with_outcome(exposed: DataFrame, served: DataFrame, of_dead: DataFrame) -> DataFrame:
    has = of_dead.select(
        "boot", "topic", F.col("revision").alias("next_revision"), "broker_name", "broker_id", F.lit(1).alias("still")
    )
    known = exposed.join(has, on=["boot", "topic", "next_revision", "broker_name", "broker_id"], how="left")
    ended = known.join(_following(known, served, of_dead), on=_EXPOSURE, how="left")
    # every end that is known; one that did not come is null, and array_min takes no notice of it
    next_one = F.when(F.col("still").isNotNull(), F.col("later")).when(
        F.col("next_mono").isNotNull(), _end("next_mono", 1)
    )
    gone = F.when(F.col("gone").isNotNull(), _end("gone", 3))
    found = ended.withColumn("found", F.array_min(F.array(next_one, gone, _end("last", 4))))
    outcome = F.element_at(F.array(*(F.lit(name) for name in OUTCOMES)), F.col("found.outcome"))
    staleness = F.col("found.at") - F.col("last_ok")
    return found.select(*_EXPOSURE, outcome.alias("outcome"), staleness.alias("staleness"))


def _end(at: str, outcome: int | Column) -> Column:
    which = F.lit(outcome) if isinstance(outcome, int) else outcome
    return F.struct(F.col(at).alias("at"), which.alias("outcome"))


def _following(known: DataFrame, served: DataFrame, of_dead: DataFrame) -> DataFrame:
    """Where the next thing given still had the broker: what came of it; several may have been given at one time."""
    given = served.select("boot", "client", "topic", "revision", "mono")
    order = W.partitionBy("boot", "client", "topic").orderBy("next_mono")
    times = given.select("boot", "client", "topic", F.col("mono").alias("next_mono")).distinct()
    asked = known.filter(F.col("still").isNotNull())
    asked = asked.select(*_EXPOSURE, "boot", "removed", "broker_name", "broker_id", "next_mono")
    # that moment, and the one after it: by then it is decided
    nearest = asked.join(
        times.withColumn("then", F.lead("next_mono").over(order)),
        on=["boot", "client", "topic", "next_mono"],
        how="left",
    )
    moments = nearest.withColumn("mono", F.explode(F.array("next_mono", "then"))).drop("next_mono", "then")
    pairs = moments.join(given, on=["boot", "client", "topic", "mono"], how="inner")
    has = of_dead.withColumn("still", F.lit(1))
    judged = pairs.join(has, on=[*_ROUTE, "broker_name", "broker_id"], how="left")
    ends = judged.filter(F.col("still").isNull() | (F.col("mono") > F.col("removed")))
    end = _end("mono", F.when(F.col("still").isNull(), 1).otherwise(2))
    return ends.groupBy(*_EXPOSURE).agg(F.min(end).alias("later"))


def exposed_pulls(intervals: DataFrame, members: DataFrame, pulls: DataFrame) -> DataFrame:
    """How many answers still had the broker after it was last heard: `pulls` by eviction and topic."""
    until = F.col("removed") + F.coalesce("scan_interval", F.lit(0))
    unannounced = intervals.filter(F.col("is_unannounced"))
    dead = unannounced.select("evict_seq", "key", *_MEMBER, (F.col("last_ok") + 1).alias("begin"), until.alias("end"))
    answers = pulls.groupBy(*_ROUTE, "mono").agg(F.sum("count").alias("count"))
    had = answers.join(members, on=_ROUTE, how="inner").withColumns({"low": F.col("mono"), "high": F.col("mono")})
    during = overlapping(had, dead, _MEMBER)
    return during.groupBy("key", "evict_seq", "topic").agg(F.sum("count").alias("pulls"))
