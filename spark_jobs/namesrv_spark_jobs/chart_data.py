"""What do the charts of the report need? Little, however long the log is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as W  # noqa: N817 - as everyone calls it
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.transforms.distributions import CURVE_STEPS, whole_ms
from namesrv_spark_jobs.transforms.output_rows import label
from namesrv_spark_jobs.transforms.silences import BINS_PER_EXPIRY, MOST_BINS

MOST_ROWS: Final = 60
MOST_LIVES: Final = 50


def timeline(lives: DataFrame, boots: DataFrame) -> DataFrame:
    """The last lives of the brokers that were stale for longest, in microseconds of wall time.

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
        F.when(F.col("evict_seq").isNotNull(), F.col("removed") - F.col("last_ok")).otherwise(0).alias("stale"),
    )
    row = ["broker", "nameserver"]
    stalest = named.groupBy(*row).agg(F.sum("stale").alias("in_all")).orderBy(F.desc("in_all"), *row).limit(MOST_ROWS)
    order = W.partitionBy(*row).orderBy(F.desc("began"), F.desc("ended"), "last_ok", "reason")
    latest = named.withColumn("rank", F.row_number().over(order)).filter(F.col("rank") <= MOST_LIVES)
    return latest.join(F.broadcast(stalest), on=row, how="inner")


def timeline_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each broker and server, the stalest first."""
    ordered = sorted(rows, key=lambda row: (-row["in_all"], row["broker"], row["nameserver"] or "", -row["rank"]))
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for row in ordered:
        place = row["broker"], row["nameserver"]
        entry = found.setdefault(place, {"broker": row["broker"], "nameserver": row["nameserver"] or "", "lives": []})
        moments = {
            f"{name}_ms": whole_ms(row[of]) for name, of in (("from", "began"), ("last_ok", "last_ok"), ("to", "ended"))
        }
        entry["lives"].append({**moments, "reason": row["reason"]})
    return list(found.values())


def gap_bins(points: DataFrame) -> DataFrame:
    """How many gaps between beats fall into each part of the broker's expiry."""
    return points.filter(F.col("bin").isNotNull()).groupBy("bin").agg(F.sum("rows").alias("count"))


def gap_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The bins from the first to the last one that has any, in percent; the very last one has no end."""
    counts = {int(row["bin"]): int(row["count"]) for row in rows}
    width = 100 / BINS_PER_EXPIRY
    return [
        {
            "from_pct": number * width,
            "to_pct": None if number == MOST_BINS else (number + 1) * width,
            "count": counts.get(number, 0),
        }
        for number in (range(min(counts), max(counts) + 1) if counts else ())
    ]


def curve(points: Sequence[float] | None) -> list[list[float]]:
    """A distribution as points (milliseconds, share), ascending."""
    return [[whole_ms(value), step / CURVE_STEPS] for step, value in enumerate(points or ())]
