"""The stages from lines to tables. The result of each stage is stored once; later stages read the columns they need."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from namesrv_spark_jobs.engines.engine import Engine, Rows, Shape
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
    """The parsed lines, stored, and their counts. Each later stage is a subclass that adds its own stored tables."""

    # see `extract.file_names`
    files: DataFrame
    # see `extract.events`, or `extract.numbered` where some lines are duplicates
    events: DataFrame
    # see `boots.clock_steps`
    clock_steps: DataFrame
    # see `extract.tally`
    tallied: DataFrame

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
class Walk(Lines):
    """The tables after the one sort of all heartbeats, which are summed up in `points`."""

    # see `boots.timed`
    moments: DataFrame
    boots: DataFrame
    boot_rows: Rows
    points: DataFrame


@dataclass(frozen=True, kw_only=True)
class Tables(Walk):
    """The tables of the analysis; the transforms of the same names describe their rows."""

    brokers: DataFrame
    periods: DataFrame
    intervals: DataFrame
    exposures: DataFrame
    pulls: DataFrame
    unknown_revisions: DataFrame
    evictions: DataFrame
    as_logged: DataFrame

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


def read_lines(engine: Engine, files: Sequence[str], options: Options) -> Lines:
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
    return Lines(files=names, events=events, clock_steps=steps, tallied=tallied)


def good_and_bad(engine: Engine, lines: Lines) -> tuple[int, int]:
    """The number of lines that could be read, and of those that could not."""
    is_bad = (F.col("part") == BAD_PART).alias("is_bad")
    tallied = lines.tallied.groupBy(is_bad).agg(F.sum("lines").alias("lines"))
    numbers = {row["is_bad"]: int(row["lines"]) for row in engine.collected({"counted": tallied})["counted"]}
    return numbers.get(False, 0), numbers.get(True, 0)


def walked(engine: Engine, lines: Lines, options: Options, progress: Callable[[str], None]) -> Walk:
    """Run the stages that read all lines: clocks, boots, and the sort of all heartbeats."""
    progress("clocks")
    taken, heartbeats, rest = lines.taken, lines.heartbeats, lines.rest
    moments = engine.stored(boots.timed(rest), "moments")
    clocks = boots.clocks(_anchors(heartbeats, rest, moments))
    boot_table = engine.stored(boots.boots(taken, moments, clocks, options), "boots")
    boot_rows = engine.collected({"boots": boot_table.orderBy("nameserver", "boot_id", "first", "last")})["boots"]
    progress("heartbeats")
    live = live_heartbeats(engine, lines, heartbeats, moments, boot_rows)
    rows = silences.rows(live, moments.filter(F.col("event") == "evict"))
    # the one big sort: all heartbeats and evictions, by broker and time
    followed = silences.followed(engine.spread(rows, "key", _heartbeat_count(engine, lines)))
    points = engine.stored(silences.points(followed, boot_table, options.what_if), "points")
    return Walk(**vars(lines), moments=moments, boots=boot_table, boot_rows=boot_rows, points=points)


def live_heartbeats(
    engine: Engine, lines: Lines, heartbeats: DataFrame, moments: DataFrame, boot_rows: Rows
) -> DataFrame:
    """Heartbeats with their liveness time, which is their `mono` unless a server was late."""
    if moments.filter(F.col("event") == "late").isEmpty():
        return heartbeats.withColumn("live", F.col("mono"))
    width = max(_LEAST_SLICE, sum(row["last"] - row["first"] for row in boot_rows) // _MOST_SLICES)
    spans = boots.late_spans(moments, boots.extents(lines.taken), width)
    return boots.live_heartbeats(heartbeats, engine.stored(spans, "late_spans"), width)


def _heartbeat_count(engine: Engine, lines: Lines) -> int:
    """The number of heartbeats among the selected lines."""
    counted = lines.taken.filter(F.col("part") == HEARTBEAT_PART).agg(
        F.coalesce(F.sum("lines"), F.lit(0)).alias("count")
    )
    (heartbeats,) = engine.collected({"heartbeats": counted})["heartbeats"]
    return int(heartbeats["count"])


def made(engine: Engine, walk: Walk, options: Options, progress: Callable[[str], None]) -> Tables:
    """Run the stages that need only points and the events that are not heartbeats."""
    progress("registration periods")
    rest, points, boot_table = walk.rest, walk.points, walk.boots
    first = engine.all_stored(
        periods=registration_periods.periods(points, rest, walk.moments),
        beginnings=registration_periods.beginnings(points),
        routes=clients.routes(rest, options.topics),
        brokers=extract.brokers(walk.taken),
    )
    period_table, begun, routes = first["periods"], first["beginnings"], first["routes"]
    progress("clients")
    second = engine.all_stored(
        intervals=registration_periods.intervals(period_table, boot_table, walk.moments, begun),
        silences=replay.silences(points, period_table, begun, boot_table),
    )
    intervals, silence_table = second["intervals"], second["silences"]
    members = engine.stored(clients.members(routes, intervals), "members")
    given = clients.given(rest, "served", options.topics)
    progress("what if")
    third = engine.all_stored(
        exposures=clients.exposures(intervals, members, clients.served(given, routes), rest),
        pulls=clients.exposed_pulls(intervals, members, clients.given(rest, "pulls", options.topics)),
        evictions=replay.replayed(silence_table, options.what_if),
        as_logged=replay.replayed_as_logged(silence_table, walk.moments),
    )
    return Tables(
        **vars(walk),
        brokers=first["brokers"],
        periods=period_table,
        intervals=intervals,
        exposures=third["exposures"],
        pulls=third["pulls"],
        unknown_revisions=clients.unknown_revisions(given, routes),
        evictions=third["evictions"],
        as_logged=third["as_logged"],
    )


def _anchors(heartbeats: DataFrame, rest: DataFrame, moments: DataFrame) -> DataFrame:
    """The lines from which the clock of each boot is computed: its anchors, or all lines when it has no anchor."""
    columns = ("boot", "mono", "ts_ms")
    anchors = moments.filter(F.col("event").isin(*ANCHORS)).select(*columns)
    with_anchors = F.broadcast(anchors.select("boot").distinct())
    every = heartbeats.select(*columns).unionByName(rest.select(*columns))
    return anchors.unionByName(every.join(with_anchors, on="boot", how="left_anti"))
