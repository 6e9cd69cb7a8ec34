"""Counts of lines by file and event: one pass over everything, and all that only counts is taken from it."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.log_files import is_url, short_name
from namesrv_spark_jobs.transforms.extract import BAD_PART, LEFT_OUT_PART, names
from namesrv_spark_jobs.transforms.schema import EVENTS

_NUMBERS: Final = (
    *("lines", "bad", "duplicates", "newer_version", "unknown_events", "left_out", "dropped_by_writers", "clock_steps"),
)


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
    return named.select("*", *names()).drop("said", "name")


def brokers(tallied: DataFrame) -> DataFrame:
    """Who is behind each `key` and `who`."""
    columns = ("key", "who", "cluster", "broker_addr", "broker_name", "broker_id")
    return tallied.filter(F.col("broker_addr").isNotNull()).select(*columns).distinct()


def by_file(tallied: DataFrame) -> DataFrame:
    """One row for each file that has lines, with all its numbers."""
    part = F.col("part")
    is_event = ~part.isin(BAD_PART, LEFT_OUT_PART)
    taken = is_event & ~F.col("is_copy")
    conditions = {
        "lines": F.expr("true"),
        "bad": part == BAD_PART,
        "duplicates": is_event & F.col("is_copy"),
        "newer_version": taken & F.col("is_newer"),
        "unknown_events": taken & ~F.col("event").isin(*EVENTS),
        "left_out": part == LEFT_OUT_PART,
    }
    sums = [F.sum(F.when(where, F.col("lines")).otherwise(0)).alias(name) for name, where in conditions.items()]
    dropped = F.sum(F.when(taken, F.col("dropped")).otherwise(0)).alias("dropped_by_writers")
    return tallied.groupBy("file").agg(*sums, dropped)


def by_event(tallied: DataFrame) -> DataFrame:
    """Events of each known kind, each once."""
    known = tallied.filter(F.col("event").isin(*EVENTS) & ~F.col("is_copy"))
    events = known.filter(~F.col("part").isin(BAD_PART, LEFT_OUT_PART))
    return events.groupBy("event").agg(F.sum("lines").alias("lines"))


def per_file(
    files: Sequence[str], rows: Iterable[Mapping[str, Any]], truncated: Collection[str]
) -> list[dict[str, Any]]:
    """The numbers of every file that was asked for, by name; one without any line has noughts.

    `rows` have a `file`, as Spark found it, and some of the numbers.
    """
    found: dict[str, Counter[str]] = {file: Counter() for file in files}
    for row in rows:
        found[_asked(row["file"], files)].update({name: row[name] for name in _NUMBERS if name in row})
    return [
        {"file": name, "truncated": file in truncated, **{number: found[file][number] for number in _NUMBERS}}
        for name, file in sorted((short_name(file), file) for file in files)
    ]


def _asked(found: str, files: Sequence[str]) -> str:
    """The file that was asked for, by the URL that Spark found it under; a table is a folder of files."""
    plain = found if is_url(found) else unquote(urlsplit(found).path)
    candidates = [file for file in files if plain == _plain(file) or plain.startswith(f"{_plain(file)}/")]
    return candidates[0] if candidates else files[0]


def _plain(file: str) -> str:
    return file if is_url(file) else file.removeprefix("file://").rstrip("/")


def summed(files: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The numbers of all files together."""
    rows = list(files)
    return {name: sum(row[name] for row in rows) for name in _NUMBERS}
