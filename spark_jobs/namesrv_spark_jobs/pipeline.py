"""From lines to tables: each step is stored once; later steps read only the columns that they need."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from namesrv_spark_jobs.engines.engine import Engine, Rows, Shape
from namesrv_spark_jobs.frames import DataFrame, F
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.transforms import boots, clients, extract, lives, replay, silences
from namesrv_spark_jobs.transforms.extract import BAD_PART, BEAT_PART, REST_PART
from namesrv_spark_jobs.transforms.schema import ANCHORS

# how finely the time between `late` lines is cut, and into how many slices at most
_LEAST_SLICE: Final = 60_000_000
_MOST_SLICES: Final = 200_000


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What was read; stored, as all that the next steps add to it."""

    # see `extract.file_names`
    files: DataFrame
    # see `extract.events`, or `extract.numbered`
    events: DataFrame


@dataclass(frozen=True, kw_only=True)
class Lines(Parsed):
    """Lines that were told apart and counted."""

    # see `extract.tally`
    tallied: DataFrame

    @property
    def bad(self) -> DataFrame:
        """What could not be read."""
        return _once(self.events).filter(F.col("part") == BAD_PART)

    @property
    def beats(self) -> DataFrame:
        """Of servers only, each once."""
        return self._of_servers(BEAT_PART)

    @property
    def rest(self) -> DataFrame:
        """Other events of servers only, each once."""
        return self._of_servers(REST_PART)

    def _of_servers(self, part: str) -> DataFrame:
        # of the same lines as the clocks: one that was not asked for must not tell a boot's kind here and not there
        clients = F.broadcast(boots.client_boots(self.taken))
        return _once(self.events).join(clients, on="boot", how="left_anti").filter(F.col("part") == part)

    @property
    def taken(self) -> DataFrame:
        """What was counted of lines that were asked for, each once."""
        return self.tallied.filter(F.col("part").isin(BEAT_PART, REST_PART) & ~F.col("is_copy"))


def _once(events: DataFrame) -> DataFrame:
    return events.filter(F.col("copy") == 1) if "copy" in events.columns else events


@dataclass(frozen=True, kw_only=True)
class Walk(Lines):
    """What is there when all lines have been walked through; the beats are in `points` now."""

    # the events that decide something, in liveness time
    moments: DataFrame
    boots: DataFrame
    boot_rows: Rows
    points: DataFrame


@dataclass(frozen=True, kw_only=True)
class Tables(Walk):
    """What was made of it; the transforms of the same names say what is in them."""

    brokers: DataFrame
    lives: DataFrame
    intervals: DataFrame
    exposures: DataFrame
    pulls: DataFrame
    unknown_revisions: DataFrame
    evictions: DataFrame
    as_logged: DataFrame


def read(engine: Engine, files: Sequence[str], options: Options) -> Parsed:
    """Parse every line once."""
    of_lines = partial(extract.events, options=options)
    shape = Shape(by="part", sparse=extract.SPARSE, distinct=extract.DISTINCT)
    events, names = engine.lines_stored(files, of_lines, extract.file_names, shape)
    return Parsed(files=names, events=events)


def counted(engine: Engine, parsed: Parsed, options: Options) -> Lines:
    """Tell apart what was met before, and count."""
    events, files = parsed.events, parsed.files
    is_event = F.col("part").isin(BEAT_PART, REST_PART)
    suspects = extract.suspects(events.filter(is_event))
    if not suspects.isEmpty():
        others = events.filter(~is_event).withColumn("copy", F.lit(1))
        told_apart = extract.numbered(events.filter(is_event), engine.stored(suspects, "suspects"), files)
        events = engine.stored(told_apart.unionByName(others), "numbered", by="part")
    numbered = events if "copy" in events.columns else events.withColumn("copy", F.lit(1))
    return Lines(files=files, events=events, tallied=engine.stored(extract.tally(numbered, files, options), "tally"))


def walked(engine: Engine, lines: Lines, options: Options, progress: Callable[[str], None]) -> Walk:
    """Everything that looks at all lines."""
    progress("clocks")
    taken, beats, rest = lines.taken, lines.beats, lines.rest
    moments = engine.stored(boots.timed(rest), "moments")
    clocks = boots.clocks(_anchors(beats, rest, moments))
    boot_table = engine.stored(boots.boots(taken, moments, clocks), "boots")
    boot_rows = engine.collected({"boots": boot_table.orderBy("nameserver", "boot_id")})["boots"]
    progress("heartbeats")
    live = _live_beats(engine, lines, beats, moments, boot_rows)
    rows = silences.rows(live, moments.filter(F.col("event") == "evict"))
    # the one big sort: all beats and evictions, by broker and time
    followed = silences.followed(engine.spread(rows, "key", _beats_of(engine, lines)))
    points = engine.stored(silences.points(followed, boot_table, options.what_if), "points")
    return Walk(**vars(lines), moments=moments, boots=boot_table, boot_rows=boot_rows, points=points)


def _beats_of(engine: Engine, lines: Lines) -> int:
    """How many beats there are."""
    counted = lines.taken.filter(F.col("part") == BEAT_PART).agg(F.coalesce(F.sum("lines"), F.lit(0)).alias("count"))
    (beats,) = engine.collected({"beats": counted})["beats"]
    return int(beats["count"])


def made(engine: Engine, walk: Walk, options: Options, progress: Callable[[str], None]) -> Tables:
    """Everything that is computed from what is left of the lines."""
    progress("lives")
    rest, points, boot_table = walk.rest, walk.points, walk.boots
    first = engine.all_stored(
        lives=lives.lives(points, rest.filter(F.col("event") == "evict")),
        beginnings=lives.beginnings(points),
        routes=clients.routes(rest, options.topics),
        brokers=extract.brokers(walk.taken),
    )
    life_table, begun, routes = first["lives"], first["beginnings"], first["routes"]
    progress("clients")
    second = engine.all_stored(
        intervals=lives.intervals(life_table, boot_table, walk.moments, begun),
        gaps=replay.gaps(points, life_table, begun, boot_table),
    )
    intervals, gaps = second["intervals"], second["gaps"]
    members = engine.stored(clients.members(routes, intervals), "members")
    given = clients.given(rest, "served", options.topics)
    progress("what if")
    third = engine.all_stored(
        exposures=clients.exposures(intervals, members, clients.served(given, routes), rest),
        pulls=clients.exposed_pulls(intervals, members, clients.given(rest, "pulls", options.topics)),
        evictions=replay.replayed(gaps, options.what_if),
        as_logged=replay.replayed_as_logged(gaps, walk.moments),
    )
    return Tables(
        **vars(walk),
        brokers=first["brokers"],
        lives=life_table,
        intervals=intervals,
        exposures=third["exposures"],
        pulls=third["pulls"],
        unknown_revisions=clients.unknown_revisions(given, routes),
        evictions=third["evictions"],
        as_logged=third["as_logged"],
    )


def _anchors(beats: DataFrame, rest: DataFrame, moments: DataFrame) -> DataFrame:
    """The lines that a boot's clock is taken from: its anchors, or all when it has none."""
    columns = ("boot", "mono", "ts_ms")
    anchors = moments.filter(F.col("event").isin(*ANCHORS)).select(*columns)
    with_anchors = F.broadcast(anchors.select("boot").distinct())
    every = beats.select(*columns).unionByName(rest.select(*columns))
    return anchors.unionByName(every.join(with_anchors, on="boot", how="left_anti"))


def _live_beats(engine: Engine, lines: Lines, beats: DataFrame, moments: DataFrame, boot_rows: Rows) -> DataFrame:
    """Beats in liveness time: mostly no server was late, and then it is their own."""
    if moments.filter(F.col("event") == "late").isEmpty():
        return beats.withColumn("live", F.col("mono"))
    width = max(_LEAST_SLICE, sum(row["last"] - row["first"] for row in boot_rows) // _MOST_SLICES)
    spans = boots.late_spans(moments, boots.extents(lines.taken), width)
    return boots.live_beats(beats, engine.stored(spans, "late_spans"), width)
