"""Which lines were met before? Of the lines of one boot with one number, one is kept."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as W  # noqa: N817 - as everyone calls it
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

# numbers to a bucket: the bits of a long
_BITS: Final = 6


def suspects(events: DataFrame) -> DataFrame:
    """The buckets of numbers (`boot`, `bucket`) that have one more than once; exact, and without a sort.

    Each number is a bit of its bucket: with as many lines as bits in every bucket, no number is there twice.
    """
    bit = F.expr("shiftleft(1L, cast(seq & 63 as int))")
    buckets = _bucketed(events.select("boot", "seq")).groupBy("boot", "bucket")
    counted = buckets.agg(F.bit_or(bit).alias("bits"), F.count(F.lit(1)).alias("lines"))
    return counted.filter(F.bit_count("bits") < F.col("lines")).select("boot", "bucket")


def _bucketed(events: DataFrame) -> DataFrame:
    return events.withColumn("bucket", F.shiftright("seq", _BITS))


def numbered(events: DataFrame, suspected: DataFrame, files: DataFrame) -> DataFrame:
    """Events with `copy`: 1 for the one that is kept, more for its duplicates; only suspects are sorted for it.

    `files` names the files: of equal lines the one in the first file counts.
    """
    bucketed = _bucketed(events)
    keys = ["boot", "bucket"]
    clear = bucketed.join(F.broadcast(suspected), on=keys, how="left_anti").withColumn("copy", F.lit(1))
    order = W.partitionBy("boot", "seq").orderBy("mono", "ts_ms", "event", "name", F.xxhash64(*events.columns))
    unclear = bucketed.join(F.broadcast(suspected), on=keys, how="left_semi")
    named = unclear.join(F.broadcast(files), on="file", how="left")
    return clear.unionByName(named.withColumn("copy", F.row_number().over(order)).drop("name")).drop("bucket")
