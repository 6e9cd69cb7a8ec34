"""From lines to tables: each step is stored once; later steps read only the columns that they need."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from namesrv_spark_jobs.engines.engine import Engine, Rows
from namesrv_spark_jobs.frames import DataFrame, F
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.transforms import boots, clients, extract, lives, replay, silences
from namesrv_spark_jobs.transforms.extract import BAD_PART, BEAT_PART, REST_PART
from namesrv_spark_jobs.transforms.schema import ANCHORS

# how finely the time between `late` lines is cut, and into how many slices at most
_LEAST_SLICE: Final = 60_000_000
_MOST_SLICES: Final = 200_000


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
    boot_rows: Rows
    brokers: DataFrame
    points: DataFrame
    lives: DataFrame
    intervals: DataFrame
    exposures: DataFrame
    pulls: DataFrame
    unknown_revisions: DataFrame
    evictions: DataFrame
    as_logged: DataFrame


def read(engine: Engine, files: Sequence[str], options: Options) -> Lines:
    """Parse every line once, tell apart what was met before, and count."""
    events, found = engine.lines_stored(files, partial(extract.events, options=options), sparse=extract.SPARSE)
    names = extract.file_names(found)
    is_event = F.col("part").isin(BEAT_PART, REST_PART)
    suspects = extract.suspects(events.filter(is_event))
    if suspects.isEmpty():
        numbered = events.withColumn("copy", F.lit(1))
    else:
        others = events.filter(~is_event).withColumn("copy", F.lit(1))
        told_apart = extract.numbered(events.filter(is_event), engine.stored(suspects, "suspects"), names)
        numbered = engine.stored(told_apart.unionByName(others), "numbered", by="part")
    tallied = engine.stored(extract.tally(numbered, names), "tally")
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


def make(engine: Engine, lines: Lines, options: Options, progress: Callable[[str], None]) -> Tables:
    """Everything that is computed from the lines."""
    progress("clocks")
    taken = _taken(lines.tallied)
    moments = engine.stored(boots.timed(lines.rest), "moments")
    boot_table = engine.stored(boots.boots(taken, moments, boots.clocks(_anchors(lines, moments))), "boots")
    boot_rows = engine.collected({"boots": boot_table.orderBy("nameserver", "boot_id")})["boots"]
    progress("heartbeats")
    # the one big sort: all beats and evictions, by broker and time
    rows = silences.rows(_live_beats(engine, lines, moments, boot_rows), moments.filter(F.col("event") == "evict"))
    beats = taken.filter(F.col("part") == BEAT_PART).agg(F.coalesce(F.sum("lines"), F.lit(0)).alias("count"))
    (counted,) = engine.collected({"beats": beats})["beats"]
    sequence = silences.followed(engine.spread(rows, "key", counted["count"]))
    points = engine.stored(silences.points(sequence, boot_table, options.what_if), "points")
    progress("lives")
    first = engine.all_stored(
        lives=lives.lives(points, lines.rest.filter(F.col("event") == "evict")),
        beginnings=lives.beginnings(points),
        routes=clients.routes(lines.rest, options.topics),
        brokers=extract.brokers(taken),
    )
    life_table, begun, routes = first["lives"], first["beginnings"], first["routes"]
    progress("clients")
    second = engine.all_stored(
        intervals=lives.intervals(life_table, boot_table, moments, begun),
        gaps=replay.gaps(points, life_table, begun, boot_table),
    )
    intervals, gaps = second["intervals"], second["gaps"]
    members = engine.stored(clients.members(routes, intervals), "members")
    given = clients.given(lines.rest, "served", options.topics)
    progress("what if")
    third = engine.all_stored(
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


def _live_beats(engine: Engine, lines: Lines, moments: DataFrame, boot_rows: Rows) -> DataFrame:
    """Beats in liveness time: mostly no server was late, and then it is their own."""
    if moments.filter(F.col("event") == "late").isEmpty():
        return lines.beats.withColumn("live", F.col("mono"))
    width = max(_LEAST_SLICE, sum(row["last"] - row["first"] for row in boot_rows) // _MOST_SLICES)
    spans = boots.late_spans(moments, boots.extents(_taken(lines.tallied)), width)
    return boots.live_beats(lines.beats, engine.stored(spans, "late_spans"), width)
