"""How many lines of which kind are where? One pass over everything; all that only counts is taken from it."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.transforms import naming


def tally(events: DataFrame, files: DataFrame) -> DataFrame:
    """Lines by file, boot, event and broker, with the first and last moment of each; `files` names the files."""
    columns = ("file", "part", "event", "boot", "key", "who", "said", "is_newer")
    counted = events.groupBy(*columns, (F.col("copy") > 1).alias("is_copy")).agg(
        F.count(F.lit(1)).alias("lines"),
        F.min("mono").alias("first"),
        F.max("mono").alias("last"),
        F.sum(F.when(F.col("event") == "dropped", F.col("count")).otherwise(0)).alias("dropped"),
    )
    named = counted.join(F.broadcast(files), on="file", how="left").withColumn("file", F.col("name"))
    return named.select("*", *naming.names()).drop("said", "name")


def brokers(tallied: DataFrame) -> DataFrame:
    """Who is behind each `key` and `who`."""
    columns = ("key", "who", "cluster", "broker_addr", "broker_name", "broker_id")
    return tallied.filter(F.col("broker_addr").isNotNull()).select(*columns).distinct()
