"""The stages from lines to tables. The result of each stage is stored once; later stages read the columns they need."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from namesrv_spark_jobs.engines.engine import Engine, Rows, Shape
from namesrv_spark_jobs.errors import NothingToReadError
from namesrv_spark_jobs.frames import DataFrame, F
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.transforms import boots, clients, extract, registration_periods, replay, silences
from namesrv_spark_jobs.transforms.extract import BAD_PART, HEARTBEAT_PART, REST_PART
from namesrv_spark_jobs.transforms.schema import ANCHORS

# the spans between `late` lines are cut into slices of at least a minute, and into at most so many slices
_LEAST_SLICE: Final = 60_000_000
_MOST_SLICES: Final = 200_000


@dataclass(frozen=True, kw_only=True)
class Lines:
    """The parsed lines, stored, and their counts."""

    # see `extract.file_names`
    files: DataFrame
    # see `extract.events`, or `extract.numbered` where some lines are duplicates
    events: DataFrame
    # see `boots.clock_steps`
    clock_steps: DataFrame
    # see `extract.tally`
    tallied: DataFrame
    # the number of lines with each `part` of `events`
    counts: Mapping[str, int]

    @property
    def bad(self) -> DataFrame:
        """The bad lines."""
        return _once(self.events).filter(F.col("part") == BAD_PART)

    @property
    def heartbeats(self) -> DataFrame:
        """Registrations and heartbeats in the logs of servers, without duplicates."""
        return self._of_servers(HEARTBEAT_PART)

    @property
    def rest(self) -> DataFrame:
        """All other events in the logs of servers, without duplicates."""
        return self._of_servers(REST_PART)

    def _of_servers(self, part: str) -> DataFrame:
        # The clocks take client boots from `taken`, too: with lines that the options exclude, a boot could be a
        # client's here and a server's there.
        clients = F.broadcast(boots.client_boots(self.taken))
        return _once(self.events).join(clients, on="boot", how="left_anti").filter(F.col("part") == part)

    @property
    def taken(self) -> DataFrame:
        """The counts of heartbeats and other events, without duplicates and excluded lines."""
        return self.tallied.filter(F.col("part").isin(HEARTBEAT_PART, REST_PART) & ~F.col("is_copy"))


def _once(events: DataFrame) -> DataFrame:
    return events.filter(F.col("copy") == 1) if "copy" in events.columns else events


@dataclass(frozen=True, kw_only=True)
class Tables(Lines):
    """The tables that the report and the history need; the transforms of the same names describe their rows."""

    # see `boots.timed`
    moments: DataFrame
    boots: DataFrame
    boot_rows: Rows
    # all heartbeats, summed up
    points: DataFrame
    brokers: DataFrame
    routes: DataFrame
    periods: DataFrame
    intervals: DataFrame
    # see `replay.silences`
    silences: DataFrame

    @property
    def named_periods(self) -> DataFrame:
        """All registration periods, open ones included, with the names of their brokers."""
        return self._named(self.periods.drop(*registration_periods.BROKER))

    @property
    def near_misses(self) -> DataFrame:
        """The near misses, with the names of their brokers."""
        return self._named(registration_periods.near_misses(self.points))

    def _named(self, rows: DataFrame) -> DataFrame:
        return rows.join(self.brokers, on=["key", "who"], how="left")


def tables_of(engine: Engine, files: Sequence[str], options: Options, progress: Callable[[str], None]) -> Tables:
    """Read all lines of these files, and make their tables.

    Raises:
        MissingFileError: a file has been removed or renamed.
        NothingToReadError: no line could be read.
    """
    lines = _lines(engine, files, options)
    progress("clocks")
    heartbeats, rest = lines.heartbeats, lines.rest
    moments = engine.stored(boots.timed(rest), "moments")
    clocks = boots.clocks(_anchors(heartbeats, rest, moments))
    boot_table = engine.stored(boots.boots(lines.taken, moments, clocks, options), "boots")
    boot_rows = engine.collected({"boots": boot_table.orderBy("nameserver", "boot_id", "first", "last")})["boots"]
    progress("heartbeats")
    live = live_heartbeats(engine, lines, heartbeats, moments, boot_rows)
    rows = silences.rows(live, moments.filter(F.col("event") == "evict"))
    # the one big sort: all heartbeats and evictions, by broker and time
    followed = silences.followed(engine.spread(rows, "key", lines.counts.get(HEARTBEAT_PART, 0)))
    points = engine.stored(silences.points(followed, boot_table, options.what_if), "points")
    progress("registration periods")
    first = engine.all_stored(
        periods=registration_periods.periods(points, rest, moments),
        beginnings=registration_periods.beginnings(points),
        routes=clients.routes(rest, options.topics),
        brokers=extract.brokers(lines.taken),
    )
    periods, begun = first["periods"], first["beginnings"]
    second = engine.all_stored(
        intervals=registration_periods.intervals(periods, boot_table, moments, begun),
        silences=replay.silences(points, periods, begun, boot_table),
    )
    return Tables(
        **vars(lines),
        moments=moments,
        boots=boot_table,
        boot_rows=boot_rows,
        points=points,
        brokers=first["brokers"],
        routes=first["routes"],
        periods=periods,
        intervals=second["intervals"],
        silences=second["silences"],
    )


def _lines(engine: Engine, files: Sequence[str], options: Options) -> Lines:
    """Parse every line once, mark duplicates, divide boots with missing lines, and count the lines."""
    of_lines = partial(extract.events, options=options)
    shape = Shape(by="part", sparse=extract.SPARSE, distinct=extract.DISTINCT)
    events, names = engine.lines_stored(files, of_lines, extract.file_names, shape)
    is_event = F.col("part").isin(HEARTBEAT_PART, REST_PART)
    suspects = extract.suspects(events.filter(is_event))
    if not suspects.isEmpty():
        others = events.filter(~is_event).withColumn("copy", F.lit(1))
        numbered_events = extract.numbered(events.filter(is_event), engine.stored(suspects, "suspects"), names)
        events = engine.stored(numbered_events.unionByName(others), "numbered", by="part")
    readable, once = events.filter(F.col("part") != BAD_PART), _once(events).filter(F.col("part") == REST_PART)
    steps = engine.stored(boots.clock_steps(_once(readable), once, names, options), "clock_steps")
    resumed = boots.resumed(readable, once, steps)
    if not resumed.isEmpty():
        events = engine.stored(boots.split(events, engine.stored(resumed, "resumed")), "split", by="part")
    numbered = events if "copy" in events.columns else events.withColumn("copy", F.lit(1))
    tallied = engine.stored(extract.tally(numbered, names, options), "tally")
    counted = tallied.groupBy("part").agg(F.sum("lines").alias("lines"))
    counts = {row["part"]: int(row["lines"]) for row in engine.collected({"counted": counted})["counted"]}
    if not counts.keys() - {BAD_PART}:
        raise NothingToReadError(counts.get(BAD_PART, 0))
    return Lines(files=names, events=events, clock_steps=steps, tallied=tallied, counts=counts)


def live_heartbeats(
    engine: Engine, lines: Lines, heartbeats: DataFrame, moments: DataFrame, boot_rows: Rows
) -> DataFrame:
    """Heartbeats with their liveness time, which is their `mono` unless a server was late."""
    if moments.filter(F.col("event") == "late").isEmpty():
        return heartbeats.withColumn("live", F.col("mono"))
    width = max(_LEAST_SLICE, sum(row["last"] - row["first"] for row in boot_rows) // _MOST_SLICES)
    spans = boots.late_spans(moments, boots.extents(lines.taken), width)
    return boots.live_heartbeats(heartbeats, engine.stored(spans, "late_spans"), width)


def _anchors(heartbeats: DataFrame, rest: DataFrame, moments: DataFrame) -> DataFrame:
    """The lines from which the clock of each boot is computed: its anchors, or all lines when it has no anchor."""
    columns = ("boot", "mono", "ts_ms")
    anchors = moments.filter(F.col("event").isin(*ANCHORS)).select(*columns)
    with_anchors = F.broadcast(anchors.select("boot").distinct())
    every = heartbeats.select(*columns).unionByName(rest.select(*columns))
    return anchors.unionByName(every.join(with_anchors, on="boot", how="left_anti"))
