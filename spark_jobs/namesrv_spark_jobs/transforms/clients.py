"""Client staleness: which clients still had the route of a removed broker, and for how long."""

from collections.abc import Sequence
from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.transforms.schema import BROKERS, CHANGES, MOST_COUNT

# How an exposure ends: the client received a route without the broker, a later route with the broker, its connection
# closed, or the log ended. Of two ends at one moment, the one that stands first here counts.
OUTCOMES = ("seen", "returned", "client_gone", "log_end")
_ROUTE = ["boot", "topic", "revision"]
_MEMBER = ["boot", "broker_name", "broker_id"]
# a time in microseconds, later than every moment in a log
_NEVER: Final = 1 << 62
_EXPOSURE = ["key", "evict_seq", "client", "topic"]
# the order of marks at one moment: begins of spans, then `low` and `high` of rows, then ends; see `_overlapping`
_BEGINS: Final = 0
_RANGES: Final = 1
_ENDS: Final = 2


def routes(rest: DataFrame, topics: Sequence[str]) -> DataFrame:
    """One row for each revision of a topic: the brokers that its first `route` entry sets and unsets.

    `turn` numbers the changes of a topic from 1 to `turns`. `next_whole` is the turn of the next entry that has the
    whole route instead of a difference. `is_known` is true when a whole route comes at or before the revision, so that
    its route can be put together.
    """
    lines = rest.filter(F.col("event") == "route")
    # a line of version 1 has the whole route of one topic
    one = F.struct(
        F.array("topic").alias("topics"),
        F.from_json("brokers", BROKERS).alias("set"),
        F.lit(None).cast("array<string>").alias("unset"),
        F.expr("true").alias("whole"),
    )
    entries = lines.select(
        "boot", "revision", "seq", F.explode(F.coalesce(F.from_json("changes", CHANGES), F.array(one))).alias("entry")
    )
    wanted = _wanted(entries.select("*", F.explode("entry.topics").alias("topic")), topics)
    named = wanted.filter(F.col("topic").isNotNull() & F.col("revision").isNotNull())
    first = named.groupBy(*_ROUTE).agg(F.min_by("entry", "seq").alias("entry"))
    order, backwards = (W.partitionBy("boot", "topic").orderBy(by) for by in ("revision", F.desc("revision")))
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
    """One row for each broker (name and id) in each known route; only names with an unannounced removal."""
    change = ("boot", "topic", "turn", "turns", "next_whole")
    had = routes.select(*change, F.explode("set").alias("broker")).select(*change, "broker.name", "broker.ids")
    left = routes.select(*change, F.explode("unset").alias("name"), F.lit(None).cast("array<bigint>").alias("ids"))
    dead = intervals.filter(F.col("is_unannounced")).select("boot", F.col("broker_name").alias("name")).distinct()
    changes = had.unionByName(left).join(F.broadcast(dead), on=["boot", "name"], how="left_semi")
    # The ids of a broker hold until the next entry for the broker, or until the next whole route. Null ids stand for a
    # broker that left; they sort before other ids of the same turn.
    following = F.lead("turn").over(W.partitionBy("boot", "topic", "name").orderBy("turn", F.size("ids")))
    last = F.least(following - 1, F.col("next_whole") - 1, "turns")
    held = changes.withColumn("last", last).filter((F.size("ids") > 0) & (F.col("last") >= F.col("turn")))
    turns = held.select("boot", "topic", "name", "ids", F.explode(F.sequence("turn", "last")).alias("turn"))
    known = routes.filter("is_known").select(*_ROUTE, "turn")
    received = turns.join(known, on=["boot", "topic", "turn"], how="inner")
    return received.select(*_ROUTE, F.col("name").alias("broker_name"), F.explode("ids").alias("broker_id")).distinct()


def given(rest: DataFrame, event: str, topics: Sequence[str]) -> DataFrame:
    """One row for each topic of each `served` or `pulls` line, with `revision` and, for `pulls`, `count`."""
    lines = rest.filter(F.col("event") == event)
    columns = {"topics": "string", "revisions": "bigint"} | ({"counts": "bigint"} if event == "pulls" else {})
    lists = F.arrays_zip(*(F.from_json(name, f"array<{kind}>") for name, kind in columns.items()))
    fields = ",".join(f"{name[:-1]}:{kind}" for name, kind in columns.items())
    one = F.array(F.struct(*(name[:-1] for name in columns)))
    entries = F.explode(F.coalesce(lists.cast(f"array<struct<{fields}>>"), one)).alias("entry")
    rows = lines.select("boot", "client", "mono", "seq", entries).select("boot", "client", "mono", "seq", "entry.*")
    is_whole = F.col("topic").isNotNull() & F.col("revision").isNotNull()
    if "counts" in columns:
        is_whole &= F.col("count").between(0, MOST_COUNT)
    return _wanted(rows.filter(is_whole), topics)


def _wanted(rows: DataFrame, topics: Sequence[str]) -> DataFrame:
    """The rows of the topics in `topics` (all rows when it is empty): one line may name other topics as well."""
    return rows.filter(F.col("topic").isin(*topics)) if topics else rows


def served(given: DataFrame, routes: DataFrame) -> DataFrame:
    """The known routes that each connection received, each with time, number and revision of the next one."""
    known = given.join(routes.filter("is_known").select(*_ROUTE), on=_ROUTE, how="left_semi")
    order = W.partitionBy("boot", "client", "topic").orderBy("mono", "seq")
    following = [F.lead(name).over(order).alias(f"next_{name}") for name in ("mono", "seq", "revision")]
    return known.select("*", *following)


def unknown_revisions(given: DataFrame, routes: DataFrame) -> DataFrame:
    """The rows of `given` whose route is not in the log."""
    return given.join(routes.filter("is_known").select(*_ROUTE), on=_ROUTE, how="left_anti")


def exposures(intervals: DataFrame, members: DataFrame, served: DataFrame, rest: DataFrame) -> DataFrame:
    """One row for each eviction, exposed client and topic: the `outcome`, and the `staleness` until then.

    A client is exposed when the last route that it received before the removal contained the broker.
    """
    dead = intervals.filter(F.col("is_unannounced")).select("key", "evict_seq", "removed", "last_ok", "last", *_MEMBER)
    # only routes that contain a broker with an unannounced removal matter
    of_dead = members.join(F.broadcast(dead.select(*_MEMBER).distinct()), on=_MEMBER, how="left_semi")
    given = served.join(of_dead, on=_ROUTE, how="inner")
    # A route is the client's last one from its arrival to that of the next route. A broker that flaps is removed many
    # times while many clients watch, so the removals are matched by overlap and not by a join of all pairs.
    last = given.withColumns({"low": F.col("mono") + 1, "high": F.coalesce("next_mono", F.lit(_NEVER))})
    deaths = dead.withColumns({"begin": F.col("removed"), "end": F.col("removed")})
    exposed = _overlapping(last, deaths, _MEMBER).drop("low", "high", "begin", "end")
    gone = rest.filter(F.col("event") == "client_gone").groupBy("boot", "client").agg(F.min("mono").alias("gone"))
    staying = exposed.join(gone, on=["boot", "client"], how="left")
    return _with_outcome(staying.filter(F.col("gone").isNull() | (F.col("gone") >= F.col("removed"))), served, of_dead)


def _with_outcome(exposed: DataFrame, served: DataFrame, of_dead: DataFrame) -> DataFrame:
    has = of_dead.select(
        "boot", "topic", F.col("revision").alias("next_revision"), "broker_name", "broker_id", F.lit(1).alias("still")
    )
    known = exposed.join(has, on=["boot", "topic", "next_revision", "broker_name", "broker_id"], how="left")
    ended = known.join(_following(known, served, of_dead), on=_EXPOSURE, how="left")
    # all possible ends of the exposure; array_min ignores the null of an end that did not happen
    next_one = F.when(F.col("still").isNotNull(), F.col("later")).when(
        F.col("next_mono").isNotNull(), _end("next_mono", 1)
    )
    gone = F.when(F.col("gone").isNotNull(), _end("gone", 3))
    ends = ended.withColumn("end", F.array_min(F.array(next_one, gone, _end("last", 4))))
    outcome = F.element_at(F.array(*(F.lit(name) for name in OUTCOMES)), F.col("end.outcome"))
    staleness = F.col("end.at") - F.col("last_ok")
    return ends.select(*_EXPOSURE, outcome.alias("outcome"), staleness.alias("staleness"))


def _end(at: str, outcome: int | Column) -> Column:
    which = F.lit(outcome) if isinstance(outcome, int) else outcome
    return F.struct(F.col(at).alias("at"), which.alias("outcome"))


def _following(known: DataFrame, served: DataFrame, of_dead: DataFrame) -> DataFrame:
    """The end (`later`) of each exposure whose next route still contained the broker.

    Several routes may arrive at the moment of the next route, which may be that of the removal. So the routes of that
    moment (`next_mono`) and of the next one (`then`) are examined.
    """
    given = served.select("boot", "client", "topic", "revision", "mono")
    order = W.partitionBy("boot", "client", "topic").orderBy("next_mono")
    times = given.select("boot", "client", "topic", F.col("mono").alias("next_mono")).distinct()
    exposures = known.filter(F.col("still").isNotNull())
    exposures = exposures.select(*_EXPOSURE, "boot", "removed", "broker_name", "broker_id", "next_mono")
    # `then` is after the removal, so the exposure ends there at the latest
    nearest = exposures.join(
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
    """The number `pulls` of responses that contained a removed broker after its last heartbeat, by eviction and topic.

    Lines until one scan interval after the removal count: a `pulls` line has the responses since the previous scan.
    """
    until = F.col("removed") + F.coalesce("scan_interval", F.lit(0))
    unannounced = intervals.filter(F.col("is_unannounced"))
    dead = unannounced.select("evict_seq", "key", *_MEMBER, (F.col("last_ok") + 1).alias("begin"), until.alias("end"))
    pull_counts = pulls.groupBy(*_ROUTE, "mono").agg(F.sum("count").alias("count"))
    had = pull_counts.join(members, on=_ROUTE, how="inner").withColumns({"low": F.col("mono"), "high": F.col("mono")})
    during = _overlapping(had, dead, _MEMBER)
    return during.groupBy("key", "evict_seq", "topic").agg(F.sum("count").alias("pulls"))


def _overlapping(ranges: DataFrame, spans: DataFrame, by: list[str]) -> DataFrame:
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
