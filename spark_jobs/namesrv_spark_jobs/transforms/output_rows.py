"""Rows that are handed out: names in place of numbers, milliseconds in place of microseconds."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 - as everyone calls it
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.transforms.lives import upper

# one row for each evicted life; `..._ok_ms` and `removed_ms` are wall times, the staleness has three decimals
INTERVAL_COLUMNS: Final = (
    "date",
    "nameserver",
    "boot_id",
    "cluster",
    "broker_name",
    "broker_id",
    "broker_addr",
    "agent_id",
    "reason",
    "first_ok_ms",
    "last_ok_ms",
    "removed_ms",
    "beats",
    "period_ms",
    "expiry_ms",
    "upper_ms",
    "lower_ms",
    "over_bound",
    "false_eviction",
    "scan",
    "evict_seq",
    "clients_exposed",
    "clients_seen",
    "exposed_pulls",
)
# one row for each eviction, client and topic that was exposed
CLIENT_COLUMNS: Final = (
    "nameserver",
    "boot_id",
    "cluster",
    "broker_name",
    "broker_id",
    "broker_addr",
    "reason",
    "evict_seq",
    "client",
    "topic",
    "outcome",  # seen, returned, client_gone, log_end
    "staleness_ms",
)
# one row for each eviction of a replay under the logged settings
REPLAYED_COLUMNS: Final = ("boot_id", "cluster", "broker_name", "broker_id", "broker_addr", "scan", "staleness_ms")

_DIGEST_LENGTH: Final = 12
# of the picture of lives
MOST_ROWS: Final = 60
MOST_LIVES: Final = 50


def interval_rows(intervals: DataFrame, clients: DataFrame, pulls: DataFrame, *, redact: bool) -> DataFrame:
    """The evicted lives, with who was exposed to each."""
    exposed = clients.groupBy("key", "evict_seq").agg(
        F.count(F.lit(1)).alias("clients_exposed"), F.count(F.when(F.col("outcome") == "seen", 1)).alias("clients_seen")
    )
    answers = pulls.groupBy("key", "evict_seq").agg(F.sum("pulls").alias("exposed_pulls"))
    eviction = ["key", "evict_seq"]
    known = intervals.join(exposed, on=eviction, how="left").join(answers, on=eviction, how="left")
    known = known.na.fill(0, ["clients_exposed", "clients_seen", "exposed_pulls"])
    moments = {f"{name}_ms": _wall(name) for name in ("first_ok", "last_ok", "removed")}
    lengths = {f"{name}_ms": F.col(name) / 1000 for name in ("period", "expiry", "upper", "lower")}
    flags = {"over_bound": F.col("is_over_bound"), "false_eviction": F.col("is_false")}
    date = {"date": F.date_format(F.timestamp_millis(_wall("removed")), "yyyy-MM-dd")}
    return known.withColumns(
        {**moments, **lengths, **flags, **date, **_hidden(redact, "broker_addr", "agent_id")}
    ).select(*INTERVAL_COLUMNS)


def _wall(name: str) -> Column:
    """A moment in whole milliseconds of wall time, halves up."""
    return F.floor((F.col(name) + F.col("offset_ms") * 1000) / 1000 + F.lit(0.5)).cast("long")


def _hidden(redact: bool, *names: str) -> dict[str, Column]:  # noqa: FBT001 - passed on
    if not redact:
        # not without any: Spark Connect adds at least one
        return {name: F.col(name) for name in names}
    return {name: F.substring(F.sha2(F.col(name), 256), 1, _DIGEST_LENGTH) for name in names}


def client_rows(clients: DataFrame, intervals: DataFrame, *, redact: bool) -> DataFrame:
    """Exposed clients, with the eviction that they were exposed to."""
    known = clients.join(intervals.drop("topic", "client", "outcome"), on=["key", "evict_seq"], how="inner")
    known = known.withColumn("staleness_ms", F.col("staleness") / 1000)
    return known.withColumns(_hidden(redact, "broker_addr", "client")).select(*CLIENT_COLUMNS)


def replayed_rows(replayed: DataFrame, boots: DataFrame, brokers: DataFrame, *, redact: bool) -> DataFrame:
    """Replayed evictions with names."""
    named = replayed.join(F.broadcast(boots.select("boot", "boot_id")), on="boot", how="inner")
    named = named.join(brokers, on=["key", "who"], how="left").withColumn("staleness_ms", F.col("staleness") / 1000)
    return named.withColumns(_hidden(redact, "broker_addr")).select(*REPLAYED_COLUMNS)


def label() -> Column:
    """A broker as people name it."""
    return F.concat_ws("/", "cluster", "broker_name", "broker_id")


def timeline(lives: DataFrame, boots: DataFrame) -> DataFrame:
    """The last lives of the brokers whose routes were stale longest, in microseconds of wall time.

    `lives` have the names of their broker.
    """
    known = lives.join(F.broadcast(boots), on="boot", how="inner")
    clock = F.col("offset_ms") * 1000
    named = known.select(
        label().alias("broker"),
        "nameserver",
        (F.coalesce("first_ok", "last_ok") + clock).alias("began"),
        (F.col("last_ok") + clock).alias("last_ok"),
        (F.coalesce("removed", F.col("last")) + clock).alias("ended"),
        "reason",
        F.when(F.col("evict_seq").isNotNull(), upper()).alias("stale"),
    )
    row = ["broker", "nameserver"]
    stalest = (
        named.groupBy(*row)
        .agg(F.coalesce(F.sum("stale"), F.lit(0)).alias("in_all"))
        .orderBy(F.desc("in_all"), *row)
        .limit(MOST_ROWS)
    )
    order = W.partitionBy(*row).orderBy(F.desc("began"), F.desc("ended"), "last_ok", "reason")
    latest = named.withColumn("rank", F.row_number().over(order)).filter(F.col("rank") <= MOST_LIVES)
    return latest.join(F.broadcast(stalest), on=row, how="inner")
