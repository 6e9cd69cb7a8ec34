"""Which boots of servers are there, with which settings, and from when to when?"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.transforms.schema import BEATS, CLIENT_EVENTS


def client_boots(tallied: DataFrame) -> DataFrame:
    """The boots of clients: they say nothing about any server."""
    return tallied.filter(F.col("event").isin(*CLIENT_EVENTS)).select("boot").distinct()


def extents(tallied: DataFrame) -> DataFrame:
    """The first and the last moment of each boot."""
    return tallied.groupBy("boot").agg(F.min("first").alias("first"), F.max("last").alias("last"))


def boots(tallied: DataFrame, moments: DataFrame, clock: DataFrame) -> DataFrame:
    """One row for each boot of a server, see the last lines; all times but `offset_ms` in microseconds."""
    servers = tallied.join(F.broadcast(client_boots(tallied)), on="boot", how="left_anti")
    seen = servers.groupBy("boot").agg(
        F.min("boot_id").alias("boot_id"),
        F.min("nameserver").alias("nameserver"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.min(F.struct("first", F.col("event").isin(*BEATS).alias("is_beat"))).alias("head"),
    )
    told = moments.groupBy("boot").agg(
        *(_first(event).alias(f"{event}_line") for event in ("start", "opened", "scan", "late")),
        F.sum(F.when(F.col("event") == "late", F.col("late")).otherwise(0)).alias("late"),
    )
    settings = F.coalesce("start_line", "opened_line")
    known = seen.join(told, on="boot", how="left").join(clock, on="boot", how="left")
    return known.select(
        "boot",
        "boot_id",
        "nameserver",
        "offset_ms",
        "first",
        "last",
        settings.getField("scan_interval").alias("scan_interval"),
        settings.getField("broker_expiry").alias("broker_expiry"),
        settings.getField("version").alias("version"),
        # where the scans of a replay begin, and where its last line ends them; liveness time
        F.coalesce(F.col("start_line.live"), F.col("scan_line.live"), _head_live()).alias("start_live"),
        (F.col("last") - F.coalesce("late", F.lit(0))).alias("end_live"),
    )


def _first(event: str) -> Column:
    fields = ("mono", "seq", "live", "scan_interval", "broker_expiry", "version")
    return F.min(F.when(F.col("event") == event, F.struct(*fields)))


def _head_live() -> Column:
    """Liveness time of a boot's first line, for a log without `start` and `scan`."""
    late = F.col("late_line")
    is_late = late["mono"] == F.col("first")
    limited = F.col("head.is_beat") | F.coalesce(is_late, F.expr("false"))
    return F.when(limited, F.least(F.col("first"), late["live"])).otherwise(F.col("first"))
