"""How many lines of which kind are where? One pass over everything; all that only counts is taken from it."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.schemas import VERSION


def tally(events: DataFrame) -> DataFrame:
    """Lines by file, boot, event and broker, with the first and last moment of each."""
    columns = ("file", "part", "event", "boot", "boot_id", "nameserver", "key", "who")
    broker = ("cluster", "broker_addr", "broker_name", "broker_id")
    groups = events.groupBy(
        *columns, *broker, (F.col("v") > VERSION).alias("is_newer"), (F.col("copy") > 1).alias("is_copy")
    )
    return groups.agg(
        F.count(F.lit(1)).alias("lines"),
        F.min("mono").alias("first"),
        F.max("mono").alias("last"),
        F.sum(F.when(F.col("event") == "dropped", F.col("count")).otherwise(0)).alias("dropped"),
    )


def brokers(tallied: DataFrame) -> DataFrame:
    """Who is behind each `key` and `who`."""
    columns = ("key", "who", "cluster", "broker_addr", "broker_name", "broker_id")
    return tallied.filter(F.col("broker_addr").isNotNull()).select(*columns).distinct()
