"""Divergence: the times during which NameServers disagreed about a broker."""

from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.transforms.output_rows import label

# A broker is its address, as in the log: a slave that is elected master keeps the address, and changes its id. `broker`
# is the label of its last registration period.
_BROKER: Final = ("cluster", "broker_addr", "broker")
# one second, in microseconds: the longest overlap of two boots that inexact clocks explain
_OVERLAP: Final = 1_000_000


def episodes(periods: DataFrame, boots: DataFrame) -> DataFrame:
    """The episodes of disagreement about each broker, as long as possible: `began`, `ended`, microseconds of wall time.

    `periods` has the names of the brokers. `up` servers run at a moment, and `had` of them have the broker in their
    tables; the servers disagree where 0 < `had` < `up`. Only moments at which a number changes are looked at. A server
    does not count as up for a broker while it is unknown whether the server has the broker.
    """
    boots = _with_servers(boots)
    all_periods = periods.join(F.broadcast(boots), on="boot", how="inner")
    ended = F.coalesce("removed", F.col("last"))
    known = all_periods.withColumn("since", _since()).filter(F.col("since").isNotNull())
    known = known.withColumn("broker", _last_label(ended))
    had = _merged(known, F.col("since"), ended, list(_BROKER))
    unknown = _merged(_boots_in_doubt(known, boots), F.col("first"), F.col("last"), list(_BROKER))
    up = _merged(boots, F.col("first"), F.col("last"), [])
    up_of_each = had.select(*_BROKER).distinct().join(F.broadcast(up), how="cross")
    edges = _edges(had, had=1, up=0).unionByName(_edges(up_of_each, had=0, up=1))
    return _joined(_segments(edges.unionByName(_edges(unknown, had=0, up=-1))))


def _boots_in_doubt(known: DataFrame, boots: DataFrame) -> DataFrame:
    """For each broker, the boots that have no line about it, and yet may have had it since before the log begins.

    Such a boot ends before an eviction of the broker was due, which the log would have.
    """
    extent = ("server", "offset_ms", "first", "last")
    brokers = known.groupBy(*_BROKER).agg(F.max("expiry").alias("longest_expiry"))
    latest = F.col("longest_expiry") + F.coalesce("scan_interval", F.lit(0))
    cut = brokers.join(F.broadcast(boots.filter("is_cut")), how="cross")
    short = cut.filter(F.col("end_live") - F.col("head_live") <= latest).select(*_BROKER, "boot", *extent)
    # a group, and not a join, since a cluster may be null
    with_lines = known.select(*_BROKER, "boot", F.lit(1).alias("with_lines"))
    both = short.unionByName(with_lines, allowMissingColumns=True).groupBy(*_BROKER, "boot")
    merged = both.agg(*(F.max(name).alias(name) for name in (*extent, "with_lines")))
    return merged.filter(F.col("with_lines").isNull())


def _with_servers(boots: DataFrame) -> DataFrame:
    """Boots with `server`: the name of the server, or the id of a boot that overlaps another boot of this name.

    Boots that overlap belong to two servers that share the name; as one server, they could not disagree.
    """
    clock = F.col("offset_ms") * 1000
    extents = boots.groupBy(F.coalesce("nameserver", F.lit("")).alias("name"), "boot_id").agg(
        F.min(F.col("first") + clock).alias("began"), F.max(F.col("last") + clock).alias("ended")
    )
    others = F.broadcast(extents.select(*(F.col(name).alias(f"other_{name}") for name in extents.columns)))
    overlap = F.least("ended", "other_ended") - F.greatest("began", "other_began")
    is_shared = (F.col("name") == F.col("other_name")) & (F.col("boot_id") != F.col("other_boot_id"))
    shared = extents.join(others, on=is_shared & (overlap > _OVERLAP), how="inner").select("boot_id").distinct()
    marked = boots.join(F.broadcast(shared.withColumn("server", F.col("boot_id"))), on="boot_id", how="left")
    return marked.withColumn("server", F.coalesce("server", "nameserver"))


def _last_label(ended: Column) -> Column:
    """The label of the broker at an address in its last registration period on any server."""
    of_address = W.partitionBy("cluster", "broker_addr")
    all_periods = of_address.rowsBetween(W.unboundedPreceding, W.unboundedFollowing)
    period = F.struct((ended + F.col("offset_ms") * 1000).alias("ended"), label().alias("label"))
    return F.max(period).over(all_periods).getField("label")


def _since() -> Column:
    """The moment from which a server has a broker, which may have registered before the log begins; null: unknown."""
    was_registered = F.coalesce("was_registered", F.col("first_ok").isNull())
    is_older = F.col("is_cut") & (F.col("period") == 0) & was_registered
    return F.when(is_older, F.col("first")).otherwise(F.col("first_ok"))


def _merged(table: DataFrame, began: Column, ended: Column, of: list[str]) -> DataFrame:
    """The spans (`began`, `ended`) of each server in wall time; spans that touch or overlap become one."""
    clock = F.col("offset_ms") * 1000
    spans = table.select(*of, "server", (began + clock).alias("began"), (ended + clock).alias("ended"))
    order = W.partitionBy(*of, "server").orderBy("began", "ended")
    before = F.max("ended").over(order.rowsBetween(W.unboundedPreceding, -1))
    begins = F.when(before.isNull() | (F.col("began") > before), 1).otherwise(0)
    number = F.sum("begins").over(order.rowsBetween(W.unboundedPreceding, W.currentRow))
    numbered = spans.withColumn("begins", begins).withColumn("number", number)
    merged = numbered.groupBy(*of, "server", "number")
    return merged.agg(F.min("began").alias("began"), F.max("ended").alias("ended")).drop("number")


def _edges(spans: DataFrame, **numbers: int) -> DataFrame:
    """The start and the end of each span as rows that add to, or subtract from, the numbers `had` and `up`."""
    edges = [
        F.struct(F.col(at).alias("at"), *(F.lit(sign * number).alias(name) for name, number in numbers.items()))
        for at, sign in (("began", 1), ("ended", -1))
    ]
    return spans.select(*_BROKER, F.explode(F.array(*edges)).alias("edge")).select(*_BROKER, "edge.*")


def _segments(edges: DataFrame) -> DataFrame:
    """The segments between neighbouring edges; `diverges` is true where the servers disagree."""
    order = W.partitionBy(*_BROKER).orderBy("at")
    so_far = order.rowsBetween(W.unboundedPreceding, W.currentRow)
    changes = edges.groupBy(*_BROKER, "at").agg(F.sum("had").alias("had"), F.sum("up").alias("up"))
    had, up = F.sum("had").over(so_far), F.sum("up").over(so_far)
    return changes.select(
        *_BROKER,
        F.col("at").alias("began"),
        F.lead("at").over(order).alias("ended"),
        ((up > 1) & (had > 0) & (had < up)).alias("diverges"),
    )


def _joined(segments: DataFrame) -> DataFrame:
    """The episodes: neighbouring segments of disagreement joined into one."""
    so_far = W.partitionBy(*_BROKER).orderBy("began").rowsBetween(W.unboundedPreceding, W.currentRow)
    agreed = F.sum(F.when(F.col("diverges"), 0).otherwise(1)).over(so_far)
    numbered = segments.withColumn("episode", agreed).filter(F.col("diverges") & F.col("ended").isNotNull())
    episodes = numbered.groupBy(*_BROKER, "episode").agg(F.min("began").alias("began"), F.max("ended").alias("ended"))
    return episodes.select(*_BROKER, "began", "ended")


def by_broker(episodes: DataFrame) -> DataFrame:
    """Number, total length and longest length of the episodes of each broker."""
    lengths = episodes.withColumn("length", F.col("ended") - F.col("began"))
    return lengths.groupBy(F.col("broker").alias("key")).agg(
        F.count(F.lit(1)).alias("count"), F.sum("length").alias("total"), F.max("length").alias("longest")
    )
