"""From lines to tables: each step is stored once; later steps read only the columns that they need."""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.transforms import boots, clients, extract, lives, replay, silences
from namesrv_spark_jobs.transforms.extract import BAD_PART, BEAT_PART, REST_PART
from namesrv_spark_jobs.transforms.schema import ANCHORS

_T = TypeVar("_T")

# a small job is mostly planning, which keeps one core of the driver busy
_AT_ONCE: Final = 4
# rows to a task of the one big sort: what is sorted fits into the memory of a small executor
_ROWS_PER_TASK: Final = 400_000
# how finely the time between `late` lines is cut, and into how many slices at most
_LEAST_SLICE: Final = 60_000_000
_MOST_SLICES: Final = 200_000


@dataclass(frozen=True)
class Staging:
    """A folder of tables that live as long as one analysis."""

    spark: SparkSession
    folder: str

    def stored(self, table: DataFrame, name: str, *, by: str | None = None) -> DataFrame:
        """The same table, computed now."""
        path = f"{self.folder.rstrip('/')}/{name}"
        writer = table.write.mode("overwrite")
        (writer if by is None else writer.partitionBy(by)).parquet(path)
        # a table without rows has no files, and so nothing that its schema could be read from
        return self.spark.read.schema(table.schema).parquet(path)

    def all_stored(self, **tables: DataFrame) -> dict[str, DataFrame]:
        """Small tables that do not need each other, by their names."""
        return at_once({name: partial(self.stored, table, name) for name, table in tables.items()})


def at_once(jobs: Mapping[str, Callable[[], _T]]) -> dict[str, _T]:
    """The results of small jobs that do not need each other, by their names."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        started = {name: pool.submit(job) for name, job in jobs.items()}
        return {name: job.result() for name, job in started.items()}


@dataclass(frozen=True, kw_only=True)
class Lines:
    """What was read."""

    # see `extract.file_names`
    files: DataFrame
    # see `extract.tally`
    tallied: DataFrame
    bad: DataFrame
    # of servers only, each event once
    beats: DataFrame
    rest: DataFrame


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What was made of it; the transforms of the same names say what is in them."""

    lines: Lines
    # the events that decide something, in liveness time
    moments: DataFrame
    boots: DataFrame
    boot_rows: Sequence[Row]
    brokers: DataFrame
    points: DataFrame
    lives: DataFrame
    intervals: DataFrame
    exposures: DataFrame
    pulls: DataFrame
    unknown_revisions: DataFrame
    evictions: DataFrame
    as_logged: DataFrame


def read(store: Staging, files: Sequence[str], options: Options) -> Lines:
    """Parse every line once, tell apart what was met before, and count."""
    events = store.stored(extract.events(extract.lines(store.spark, files), options), "events", by="part")
    names = store.stored(extract.file_names(store.spark, files), "files")
    is_event = F.col("part").isin(BEAT_PART, REST_PART)
    suspects = extract.suspects(events.filter(is_event))
    if suspects.isEmpty():
        numbered = events.withColumn("copy", F.lit(1))
    else:
        others = events.filter(~is_event).withColumn("copy", F.lit(1))
        told_apart = extract.numbered(events.filter(is_event), store.stored(suspects, "suspects"), names)
        numbered = store.stored(told_apart.unionByName(others), "numbered", by="part")
    tallied = store.stored(extract.tally(numbered, names), "tally")
    once = numbered.filter(F.col("copy") == 1)
    # of the same lines as the clocks: one that was not asked for must not tell a boot's kind here and not there
    servers = once.join(F.broadcast(boots.client_boots(_taken(tallied))), on="boot", how="left_anti")
    return Lines(
        files=names,
        tallied=tallied,
        bad=numbered.filter(F.col("part") == BAD_PART),
        beats=servers.filter(F.col("part") == BEAT_PART),
        rest=servers.filter(F.col("part") == REST_PART),
    )


def _taken(tallied: DataFrame) -> DataFrame:
    """What was counted of lines that were asked for, each once."""
    return tallied.filter(F.col("part").isin(BEAT_PART, REST_PART) & ~F.col("is_copy"))


def make(store: Staging, lines: Lines, options: Options, progress: Callable[[str], None]) -> Tables:
    """Everything that is computed from the lines."""
    progress("clocks")
    taken = _taken(lines.tallied)
    moments = store.stored(boots.timed(lines.rest), "moments")
    boot_table = store.stored(boots.boots(taken, moments, boots.clocks(_anchors(lines, moments))), "boots")
    boot_rows = boot_table.orderBy("nameserver", "boot_id").collect()
    progress("heartbeats")
    # the one big sort: all beats and evictions, by broker and time
    rows = silences.rows(_live_beats(store, lines, moments, boot_rows), moments.filter(F.col("event") == "evict"))
    count = taken.filter(F.col("part") == BEAT_PART).agg(F.sum("lines")).first()
    tasks = max(1, math.ceil(((count and count[0]) or 0) / _ROWS_PER_TASK))
    sequence = silences.followed(rows.repartition(tasks, "key"))
    points = store.stored(silences.points(sequence, boot_table, options.what_if), "points")
    progress("lives")
    first = store.all_stored(
        lives=lives.lives(points, lines.rest.filter(F.col("event") == "evict")),
        beginnings=lives.beginnings(points),
        routes=clients.routes(lines.rest, options.topics),
        brokers=extract.brokers(taken),
    )
    life_table, begun, routes = first["lives"], first["beginnings"], first["routes"]
    progress("clients")
    late = moments.filter(F.col("event") == "late")
    second = store.all_stored(
        intervals=lives.intervals(life_table, boot_table, late, begun),
        gaps=replay.gaps(points, life_table, begun, boot_table),
    )
    intervals, gaps = second["intervals"], second["gaps"]
    members = store.stored(clients.members(routes, intervals), "members")
    given = clients.given(lines.rest, "served", options.topics)
    progress("what if")
    third = store.all_stored(
        exposures=clients.exposures(intervals, members, clients.served(given, routes), lines.rest),
        pulls=clients.exposed_pulls(intervals, members, clients.given(lines.rest, "pulls", options.topics)),
        evictions=replay.replayed(gaps, options.what_if),
        as_logged=replay.replayed_as_logged(gaps, moments),
    )
    return Tables(
        lines=lines,
        moments=moments,
        boots=boot_table,
        boot_rows=boot_rows,
        brokers=first["brokers"],
        points=points,
        lives=life_table,
        intervals=intervals,
        unknown_revisions=clients.unknown_revisions(given, routes),
        **third,
    )


def _anchors(lines: Lines, moments: DataFrame) -> DataFrame:
    """The lines that a boot's clock is taken from: its anchors, or all when it has none."""
    columns = ("boot", "mono", "ts_ms")
    anchors = moments.filter(F.col("event").isin(*ANCHORS)).select(*columns)
    with_anchors = F.broadcast(anchors.select("boot").distinct())
    every = lines.beats.select(*columns).unionByName(lines.rest.select(*columns))
    return anchors.unionByName(every.join(with_anchors, on="boot", how="left_anti"))


def _live_beats(store: Staging, lines: Lines, moments: DataFrame, boot_rows: Sequence[Row]) -> DataFrame:
    """Beats in liveness time: mostly no server was late, and then it is their own."""
    if moments.filter(F.col("event") == "late").isEmpty():
        return lines.beats.withColumn("live", F.col("mono"))
    width = max(_LEAST_SLICE, sum(row["last"] - row["first"] for row in boot_rows) // _MOST_SLICES)
    spans = boots.late_spans(moments, boots.extents(_taken(lines.tallied)), width)
    return boots.live_beats(lines.beats, store.stored(spans, "late_spans"), width)
