"""Distributions of staleness, in all and for each server, cluster, broker, topic, client and reason."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 - as everyone calls it
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.transforms.output_rows import label

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
# of one scope: the worst ones by their total time
MOST_KEYS: Final = 1000
# points of a distribution's curve
CURVE_STEPS: Final = 200

Stats = dict[str, int | None]


def registry_values(intervals: DataFrame) -> DataFrame:
    """One row for each interval, measure and scope: `measure`, `scope`, `key`, `value`."""
    scopes = {
        "all": F.lit(""),
        "reason": F.col("reason"),
        "nameserver": F.col("nameserver"),
        "cluster": F.col("cluster"),
        "broker": label(),
    }
    both = {"registry": F.col("upper"), "registry_lower": F.col("lower")}
    measures = F.array(*(F.struct(F.lit(name).alias("measure"), value.alias("value")) for name, value in both.items()))
    return _scoped(intervals.withColumn("told", F.explode(measures)), scopes)


def client_values(clients: DataFrame) -> DataFrame:
    """The same of clients that saw the broker go; the others are counted elsewhere."""
    scopes = {"all": F.lit(""), "reason": F.col("reason"), "topic": F.col("topic"), "client": F.col("client")}
    told = F.struct(F.lit("client").alias("measure"), F.col("staleness").alias("value"))
    return _scoped(clients.filter(F.col("outcome") == "seen").withColumn("told", told), scopes)


def _scoped(told: DataFrame, scopes: Mapping[str, Column]) -> DataFrame:
    pairs = (
        F.struct(F.lit(scope).alias("scope"), F.coalesce(key, F.lit("")).alias("key")) for scope, key in scopes.items()
    )
    return told.withColumn("of", F.explode(F.array(*pairs))).select("told.measure", "of.scope", "of.key", "told.value")


def measures() -> list[Column]:
    """What is told of a group of values: exact, and the same however the rows are spread."""
    shares = F.array(*(F.lit(share) for share in PERCENTILES.values()))
    return [
        F.count("value").alias("count"),
        F.percentile("value", shares).alias("percentiles"),
        F.max("value").alias("max"),
        F.sum("value").alias("total"),
    ]


def worst(distributed: DataFrame) -> DataFrame:
    """The keys of each measure and scope with the longest total time."""
    order = W.partitionBy("measure", "scope").orderBy(F.desc("total"), "key")
    return distributed.withColumn("rank", F.row_number().over(order)).filter(F.col("rank") <= MOST_KEYS)


def curves(values: DataFrame) -> DataFrame:
    """Of each measure, as many percentiles as a chart has points."""
    shares = F.array(*(F.lit(step / CURVE_STEPS) for step in range(CURVE_STEPS + 1)))
    return values.filter(F.col("scope") == "all").groupBy("measure").agg(F.percentile("value", shares).alias("points"))


NO_STATS: Final[Stats] = {"count": 0, **dict.fromkeys((*PERCENTILES, "max", "mean")), "total_ms": 0}


def stats(row: Mapping[str, Any] | None) -> Stats:
    """A row of `distributions` in whole milliseconds."""
    if row is None or not row["count"]:
        return dict(NO_STATS)
    values = {name: whole_ms(value) for name, value in zip(PERCENTILES, row["percentiles"], strict=True)}
    count, total = row["count"], row["total"]
    mean = (2 * total + 1000 * count) // (2000 * count)
    return {"count": count, **values, "max": whole_ms(row["max"]), "mean": mean, "total_ms": whole_ms(total)}


def whole_ms(value: float) -> int:
    """Microseconds as whole milliseconds, halves up."""
    return int((value + 500) // 1000)


def metric_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of metrics.csv."""
    found = [{"scope": row["scope"], "key": row["key"], "measure": row["measure"], **stats(row)} for row in rows]
    return sorted(found, key=lambda row: (row["measure"], row["scope"], row["key"]))
