"""Readings of logs: the report's tables for a span of time, kept for further requests, and the results from them.

Only `namesrv_spark_jobs.transforms` defines registration periods, removals, routes and replays.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self, TypeVar, get_args

from msgspec.structs import replace

from namesrv_spark_jobs.analysis import analyse
from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.errors import MissingFileError, NothingToReadError
from namesrv_spark_jobs.frames import Column, DataFrame, F, W, written_in
from namesrv_spark_jobs.history.files import files_of
from namesrv_spark_jobs.history.hours import LogsError
from namesrv_spark_jobs.history.model import (
    LEAST_EXPIRY_MS,
    MOST_CHANGES,
    MOST_CLIENTS,
    MOST_TIMELINE_ROWS,
    STRIP_BINS,
    Broker,
    Change,
    Member,
    Outcome,
    PastRequest,
    Reading,
    ReceivedRoute,
    RegistrationPeriod,
    Report,
    ReportRequest,
    Result,
    RouteRequest,
    Run,
    ServerRoute,
    Silence,
    Strip,
    StripBin,
    StripKind,
    StripRequest,
    StripRow,
    Timeline,
    TimelineRequest,
    TimelineRow,
    TopicPast,
    WhatIfRequest,
    WhatIfs,
)
from namesrv_spark_jobs.history.spans import HOUR_MS, Span, written
from namesrv_spark_jobs.options import Options, WhatIf
from namesrv_spark_jobs.pipeline import Tables, good_and_bad, live_heartbeats, made, read_lines, walked
from namesrv_spark_jobs.report.charts import Setting, lettered, what_if
from namesrv_spark_jobs.report.drawing import drawn
from namesrv_spark_jobs.report.page import page
from namesrv_spark_jobs.transforms import clients, output_rows, registration_periods, replay
from namesrv_spark_jobs.transforms.output_rows import whole_ms
from namesrv_spark_jobs.transforms.registration_periods import BROKER

Row = Mapping[str, Any]
T = TypeVar("T")

# from 1970 to 2200
_EVERYTHING: Final = Span(HOUR_MS, 7_258_118_400_000)
# expiries that a what-if shows beside the requested one
OTHER_EXPIRIES_MS: Final = (10_000, 20_000, 30_000, 45_000, 60_000, 90_000, 120_000, 180_000, 240_000, 300_000)
# The lines before a span tell which brokers are registered at its start.
_BEFORE_MS: Final = HOUR_MS
# The shortest expiry with the finest scan evicts in every silence in which any other setting evicts: a silence without
# an eviction under this setting has none under any.
_ANY_SETTING: Final = WhatIf(expiry_ms=(LEAST_EXPIRY_MS,), scan_ms=(1,), poll_ms=(1,))
# DuckDB's memory limit for one reading; tables beyond it go to disk
_MEMORY: Final = "1GB"
# intervals are rarely longer than so many usual intervals
_USUAL_PERIODS: Final = 1.25
# A reading of logs that are still being written is used for this time, or for `_REST` times the time that the reading
# took, if that is longer.
_FRESH_SECONDS: Final = 60.0
_REST: Final = 10
_MOST_READINGS: Final = 2
# more registration periods than that would be drawn as one grey band
_MOST_PERIODS: Final = 20_000
# a silence longer than this many intervals is late, as in docs/heartbeat-log.md
_LATE_INTERVALS: Final = 1.5
# fewer heartbeats say little about the usual interval: a broker registers again soon after a server's start
_FEW_HEARTBEATS: Final = 3
_STRIP_KINDS: Final[tuple[StripKind, ...]] = get_args(StripKind)


@dataclass(frozen=True, kw_only=True)
class _Read:
    """The tables of one span."""

    engine: EmbeddedEngine
    # the callbacks that close the engine and remove its folder
    kept: ExitStack
    about: Reading
    tables: Tables
    # all rows of `replay.silences`, and the few rows with a silence longer than `usual`
    silences: DataFrame
    long_silences: DataFrame
    # nearly all silences are at most this long, microseconds
    usual: int
    # start (monotonic) and duration of the reading
    began: float
    seconds: float

    @property
    def offsets(self) -> dict[int, int]:
        """Boot -> the milliseconds to add to its monotonic time for wall time."""
        return {row["boot"]: row["offset_ms"] for row in self.tables.boot_rows}


class Readings:
    """Context manager that answers requests; a request within the span of a recent reading is answered from it."""

    def __init__(self, folder: str, logs: Sequence[str]) -> None:
        self._folder = Path(folder)
        self._logs = logs
        # least recently used first
        self._kept: list[_Read] = []

    def __repr__(self) -> str:
        return f"<Readings of {', '.join(self._logs)}: {[read.about.span for read in self._kept]}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop(self._kept)

    def result(self, request: PastRequest) -> Result:
        """The result for a request, after reading the logs if necessary. Raises LogsError."""
        return _retried(lambda: self._result(request))

    def end_ms(self) -> int | None:
        """The moment after the last line of a server; all logs are read. Raises LogsError."""
        read = _retried(lambda: self._reading(_EVERYTHING, is_exact=False))
        with written_in(read.engine):
            return max((run.to_ms + 1 for run in _runs(read)), default=None)

    def _result(self, request: PastRequest) -> Result:
        if isinstance(request, ReportRequest):
            return self._report(request)
        # a replay covers everything that was read, so its reading must have exactly the span of the request
        read = self._reading(request.span, is_exact=isinstance(request, WhatIfRequest))
        with written_in(read.engine):
            match request:
                case TimelineRequest():
                    return _timeline(read, request)
                case StripRequest():
                    return _strip(read, request)
                case RouteRequest():
                    return _topic_past(read, request)
                case WhatIfRequest():
                    return _what_ifs(read, request)

    def _reading(self, requested: Span, *, is_exact: bool) -> _Read:
        span = _read_for(requested)
        for read in reversed(self._kept):
            is_fresh = time.monotonic() - read.began < max(_FRESH_SECONDS, _REST * read.seconds)
            is_wanted = span == read.about.span if is_exact else span in read.about.span
            if is_wanted and (is_fresh or span.to_ms <= read.about.read_ms - HOUR_MS):
                self._kept.remove(read)
                self._kept.append(read)
                return read
        newest = self._read(span)
        self._kept.append(newest)
        # A reading whose span lies within that of the newest one is not needed any more.
        self._drop([read for read in self._kept[:-1] if read.about.span in newest.about.span])
        self._drop(self._kept[:-_MOST_READINGS])
        return newest

    def _drop(self, reads: Sequence[_Read]) -> None:
        for read in list(reads):
            self._kept.remove(read)
            read.kept.close()

    def _files(self, span: Span) -> list[str]:
        files = files_of(self._logs, span)
        if not files:
            raise LogsError(f"no log {_moments(span)}")
        return files

    def _report(self, request: ReportRequest) -> Report:
        span = _read_for(request.span)
        expiries = tuple(sorted({request.expiry_ms, *WhatIf().expiry_ms}))
        grid = WhatIf(expiry_ms=expiries, scan_ms=(request.scan_ms,), poll_ms=(request.poll_ms,))
        options = Options(since_ms=span.from_ms, until_ms=span.to_ms, poll_ms=request.poll_ms, what_if=grid)
        with (
            TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as folder,
            EmbeddedEngine(Path(folder), memory=_MEMORY) as engine,
        ):
            try:
                analysis = analyse(engine, self._files(span), options, lambda _: None)
            except NothingToReadError:
                raise LogsError(f"no line of a log {_moments(span)} could be read") from None
            return Report(html=page(analysis.summary, analysis.charts))

    def _read(self, span: Span) -> _Read:
        files = self._files(span)
        began, read_ms = time.monotonic(), round(time.time() * 1000)
        options = Options(since_ms=span.from_ms, until_ms=span.to_ms, what_if=_ANY_SETTING)
        with ExitStack() as kept:
            folder = kept.enter_context(TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True))
            engine = kept.enter_context(EmbeddedEngine(Path(folder), memory=_MEMORY))
            with written_in(engine):
                lines = read_lines(engine, files, options)
                good, bad = good_and_bad(engine, lines)
                if not good:
                    raise LogsError(f"no line of a log {_moments(span)} could be read")
                walk = walked(engine, lines, options, lambda _: None)
                tables = made(engine, walk, options, lambda _: None)
                begun = registration_periods.beginnings(tables.points)
                silences = engine.stored(
                    replay.silences(tables.points, tables.periods, begun, tables.boots), "silences"
                )
                middle = F.percentile("usual_interval", F.array(F.lit(0.5))).alias("middle")
                [[usual_interval]] = [row["middle"] for row in tables.periods.agg(middle).collect()]
                usual = round((usual_interval or 0) * _USUAL_PERIODS)
                long_silences = engine.stored(silences.filter(_is_longer(usual)), "long_silences")
            return _Read(
                engine=engine,
                kept=kept.pop_all(),
                about=Reading(span=span, files=len(files), lines=good + bad, bad=bad, read_ms=read_ms),
                tables=tables,
                silences=silences,
                long_silences=long_silences,
                usual=usual,
                began=began,
                seconds=time.monotonic() - began,
            )


def _retried(read: Callable[[], T]) -> T:
    """The result of a function that reads logs. Raises LogsError."""
    try:
        return read()
    except MissingFileError:
        # the file was closed, which renames it, or removed after the files were listed
        try:
            return read()
        except MissingFileError as error:
            raise LogsError(f"{error}; try again") from error


def _read_for(requested: Span) -> Span:
    """The span to read for a request: whole hours, and one hour before."""
    return Span(requested.from_ms - _BEFORE_MS, requested.to_ms).hours()


def _moments(span: Span) -> str:
    return f"from {written(span.from_ms)} to {written(span.to_ms)}"


def _runs(read: _Read) -> list[Run]:
    rows = read.tables.boot_rows
    stops = read.tables.moments.filter(F.col("event") == "stop").select("boot").collect()
    ended = {row["boot"] for row in stops}
    # a boot is in several parts if lines between them are missing
    ended |= {part["boot"] for part, following in pairwise(rows) if part["boot_id"] == following["boot_id"]}
    return [
        Run(
            nameserver=row["nameserver"] or "",
            boot_id=row["boot_id"],
            from_ms=whole_ms(row["first"] + row["offset_ms"] * 1000),
            to_ms=whole_ms(row["last"] + row["offset_ms"] * 1000),
            has_ended=row["boot"] in ended,
        )
        for row in rows
    ]


# --- timeline


def _timeline(read: _Read, request: TimelineRequest) -> Timeline:
    """The timeline rows, sorted by broker and server."""
    tables = read.tables
    rows_by_place: dict[tuple[Broker, str], TimelineRow] = {}

    def row_of(row: Row) -> TimelineRow:
        key = (_broker(row), row["nameserver"] or "")
        return rows_by_place.setdefault(
            key, TimelineRow(broker=key[0], nameserver=key[1], periods=[], silences=[], fenced_ms=[])
        )

    for row in _shown(read, request, _named_periods(tables)):
        row_of(row).periods.append(_period(row))
    times = {"began": F.col("mono"), "ended": F.col("mono") + F.col("silence")}
    for row in _shown(read, request, tables.near_misses.withColumns(times)):
        row_of(row).silences.append(Silence(from_ms=whole_ms(row["began"]), to_ms=whole_ms(row["ended"])))
    fenced = tables.moments.filter(F.col("event") == "fenced")
    for row in _shown(read, request, fenced.withColumns({"began": F.col("mono"), "ended": F.col("mono")})):
        row_of(row).fenced_ms.append(whole_ms(row["began"]))
    rows = [rows_by_place[key] for key in sorted(rows_by_place, key=_place)]
    left_out = max(0, len(rows) - MOST_TIMELINE_ROWS)
    return Timeline(
        reading=read.about, span=request.span, runs=_runs(read), rows=rows[:MOST_TIMELINE_ROWS], left_out=left_out
    )


def _named_periods(tables: Tables) -> DataFrame:
    """All registration periods, open ones included, with the names of their brokers, as in the report's timeline."""
    false = tables.intervals.select("key", "evict_seq", "is_false")
    ended = tables.named_periods.join(false, on=["key", "evict_seq"], how="left")
    ended = ended.join(tables.boots.select("boot", "last"), on="boot", how="inner")
    times = {
        "began": F.coalesce("first_ok", "last_ok"),
        "ended": F.coalesce("removed", "last"),
        "stale": registration_periods.upper(),
    }
    return ended.withColumns(times)


def _shown(read: _Read, request: TimelineRequest, table: DataFrame) -> list[Row]:
    """Rows within the request's span that match its text; `began` and `ended` in wall time. Raises LogsError."""
    clocks = read.tables.boots.select("boot", "nameserver", "offset_ms")
    known = table.drop("nameserver", "offset_ms").join(clocks, on="boot", how="inner")
    known = known.withColumns({name: F.col(name) + F.col("offset_ms") * 1000 for name in ("began", "ended")})
    span = request.span
    periods = known.filter((F.col("ended") >= span.from_ms * 1000) & (F.col("began") < span.to_ms * 1000))
    if request.text:
        periods = periods.filter(_is_named(read.tables, request.text.lower()))
    rows = [row.asDict() for row in periods.limit(_MOST_PERIODS + 1).collect()]
    if len(rows) > _MOST_PERIODS:
        raise LogsError(
            f"more than {_MOST_PERIODS} registration periods or silences; choose a shorter time, or a part of a name"
        )
    return sorted(rows, key=lambda row: row["began"])


def _is_named(tables: Tables, text: str) -> Column:
    """A condition: a text in lower case is part of the name or address of a row's broker, or of its server's name."""
    boots = [row["boot"] for row in tables.boot_rows if text in (row["nameserver"] or "").lower()]
    brokers = (row.asDict() for row in tables.brokers.collect())
    keys = [row["key"] for row in brokers if text in f"{_broker(row)} {row['broker_addr']}".lower()]
    # 0 never is a boot or key; it is listed because SQL does not allow an empty list
    return F.col("boot").isin(0, *boots) | F.col("key").isin(0, *keys)


def _broker(row: Row) -> Broker:
    return Broker(
        cluster=row["cluster"] or "",
        broker_name=row["broker_name"] or "",
        broker_id=row["broker_id"],
        broker_addr=row["broker_addr"] or "",
    )


def _place(key: tuple[Broker, str]) -> tuple[str, ...]:
    """The sort key of a broker on a server."""
    return str(key[0]), key[0].broker_addr, key[1]


def _period(row: Row) -> RegistrationPeriod:
    last_ok_ms = whole_ms(row["last_ok"] + row["offset_ms"] * 1000)
    return RegistrationPeriod(
        first_ok_ms=None if row["first_ok"] is None else whole_ms(row["began"]),
        last_ok_ms=last_ok_ms,
        due_ms=last_ok_ms + whole_ms(row["usual_interval"]),
        reason=row["reason"],
        end_ms=whole_ms(row["ended"]),
        stale_ms=0 if row["evict_seq"] is None else whole_ms(row["stale"]),
        is_false=bool(row["is_false"]),
    )


# --- strip


def _strip(read: _Read, request: StripRequest) -> Strip:
    """For each bin of the span: the number of heartbeats, and the longest silence before one of them."""
    tables, span = read.tables, request.span
    of_name = (F.col("cluster") == request.cluster) & (F.col("broker_name") == request.broker_name)
    clocks = tables.boots.select("boot", "nameserver", "offset_ms")
    named = tables.brokers.filter(of_name)
    before = W.partitionBy("key").orderBy("mono", "seq")
    heartbeats = tables.heartbeats.select("key", "who", "boot", "mono", "seq", "expiry")
    # heartbeats of few brokers, so that the sort is short
    of_name_only = heartbeats.join(named.select("key").distinct(), on="key", how="left_semi")
    # a stop of the server is no silence of the broker
    live = live_heartbeats(read.engine, tables, of_name_only, tables.moments, tables.boot_rows)
    known = live.withColumn("interval", F.col("live") - F.lag("live").over(before)).join(clocks, on="boot", how="inner")
    since = F.col("mono") + F.col("offset_ms") * 1000 - span.from_ms * 1000
    placed = known.withColumn("bin", F.floor(since * STRIP_BINS / (span.length_ms * 1000)).cast("bigint"))
    within = placed.filter(F.col("bin").between(0, STRIP_BINS - 1)).join(named, on=["key", "who"], how="inner")
    binned = within.groupBy("key", "nameserver", *BROKER, "bin").agg(
        F.count("mono").alias("heartbeats"), F.max("interval").alias("longest"), F.max("expiry").alias("expiry")
    )
    periods = tables.periods.drop(*BROKER).join(named, on=["key", "who"], how="inner").drop("nameserver", "offset_ms")
    lived = periods.join(clocks, on="boot", how="inner").select(
        *("key", "nameserver", *BROKER, "usual_interval", "heartbeats", "last_ok", "evict_seq", "reason"),
        (F.col("removed") + F.col("offset_ms") * 1000).alias("ended"),
    )
    rows = read.engine.collected({"binned": binned, "lived": lived})
    return Strip(reading=read.about, span=span, rows=_strip_rows(span, rows["binned"], rows["lived"]))


def _strip_rows(span: Span, binned: Sequence[Row], lived: Sequence[Row]) -> list[StripRow]:
    usual = _usual_intervals(lived)
    strips: dict[tuple[Broker, str], dict[int, StripBin]] = defaultdict(dict)
    for row in binned:
        of = strips[_broker(row), row["nameserver"] or ""]
        # An address without a registration period under this name has the interval of a period without heartbeats.
        of[row["bin"]] = _worse(of.get(row["bin"]), _strip_bin(row, usual.get(row["key"], (row["expiry"] or 0) // 4)))
    for row in lived:
        if row["evict_seq"] is None or row["reason"] == "unregistered" or whole_ms(row["ended"]) not in span:
            continue
        number = (whole_ms(row["ended"]) - span.from_ms) * STRIP_BINS // span.length_ms
        of = strips[_broker(row), row["nameserver"] or ""]
        removed = StripBin(number=number, heartbeats=0, longest_ms=0, kind="removed", reason=row["reason"])
        of[number] = _worse(of.get(number), removed)
    return [
        StripRow(broker=key[0], nameserver=key[1], bins=[strips[key][number] for number in sorted(strips[key])])
        for key in sorted(strips, key=_place)
    ]


def _usual_intervals(lived: Sequence[Row]) -> dict[int, int]:
    """The usual interval at an address in each boot of a server; after few heartbeats, its longest one in any boot.

    A registration period names the last broker at its address only: a slave that is elected master changes its id.
    """
    last: dict[int, Row] = {}
    longest: dict[str, int] = defaultdict(int)
    for row in sorted(lived, key=lambda row: row["last_ok"]):
        last[row["key"]] = row
        longest[row["broker_addr"]] = max(longest[row["broker_addr"]], row["usual_interval"])
    return {
        key: row["usual_interval"] if (row["heartbeats"] or 0) > _FEW_HEARTBEATS else longest[row["broker_addr"]]
        for key, row in last.items()
    }


def _strip_bin(row: Row, usual_interval: int) -> StripBin:
    longest = row["longest"] or 0
    kind: StripKind = "regular"
    if 3 * longest > 2 * (row["expiry"] or 0):
        kind = "overdue"
    elif longest > _LATE_INTERVALS * usual_interval:
        kind = "late"
    return StripBin(number=row["bin"], heartbeats=row["heartbeats"], longest_ms=whole_ms(longest), kind=kind)


def _worse(one: StripBin | None, other: StripBin) -> StripBin:
    """One bin with the heartbeats of both, and the worse kind."""
    if one is None:
        return other
    worse = max(one, other, key=lambda it: _STRIP_KINDS.index(it.kind))
    return StripBin(
        number=other.number,
        heartbeats=one.heartbeats + other.heartbeats,
        longest_ms=max(one.longest_ms, other.longest_ms),
        kind=worse.kind,
        reason=worse.reason,
    )


# --- route


def _topic_past(read: _Read, request: RouteRequest) -> TopicPast:
    """The route on each server at the end of the span, and the last route of each client of a running server."""
    at_ms = request.span.to_ms
    runs = {row["boot"]: run for row, run in zip(read.tables.boot_rows, _runs(read), strict=True)}
    changes = _changes(read, request.topic, runs)
    up = _up_at(at_ms, runs)
    # the changes of a boot are in the order of their revisions, so the last one stays
    current = {boot: change for boot in up for change in changes[boot].values() if change.at_ms <= at_ms}
    boot_of = {run.nameserver: boot for boot, run in up.items()}
    servers = [
        ServerRoute(nameserver=name, is_logged=name in boot_of, change=current.get(boot_of.get(name, 0)))
        for name in sorted({run.nameserver for run in runs.values()})
    ]
    received = _received(read, request, up, changes, current)
    shown = [change for of_boot in changes.values() for change in of_boot.values() if change.at_ms <= at_ms]
    shown.sort(key=lambda change: (-change.at_ms, change.nameserver, -change.revision))
    return TopicPast(
        reading=read.about,
        topic=request.topic,
        at_ms=at_ms,
        servers=servers,
        clients=received[:MOST_CLIENTS],
        clients_left_out=max(0, len(received) - MOST_CLIENTS),
        changes=shown[:MOST_CHANGES],
        changes_left_out=max(0, len(shown) - MOST_CHANGES),
    )


def _up_at(at_ms: int, runs: Mapping[int, Run]) -> dict[int, Run]:
    """The boot of each server that was up at a moment."""
    last: dict[str, int] = {}
    for boot, run in sorted(runs.items(), key=lambda it: it[1].from_ms):
        if run.from_ms <= at_ms:
            last[run.nameserver] = boot
    return {boot: runs[boot] for boot in last.values() if at_ms <= runs[boot].up_until_ms}


def _changes(read: _Read, topic: str, runs: Mapping[int, Run]) -> dict[int, dict[int, Change]]:
    """The changes of a topic's route by boot and revision, in the order of revisions, each with the route after it."""
    rest = read.tables.rest
    lines = rest.filter(F.col("event") == "route").groupBy("boot", "revision").agg(F.min("mono").alias("mono"))
    by_boot: dict[int, dict[int, Change]] = defaultdict(dict)
    routes: dict[int, dict[str, list[int]]] = defaultdict(dict)
    next_whole: dict[int, int | None] = {}
    # A boot begins without routes; without its start, the route before the first whole one is unknown.
    known = {row["boot"]: not row["is_cut"] for row in read.tables.boot_rows}
    revisions = clients.routes(rest, [topic]).join(lines, on=["boot", "revision"], how="inner").collect()
    for row in sorted((row.asDict(recursive=True) for row in revisions), key=lambda row: (row["boot"], row["turn"])):
        boot = row["boot"]
        if boot not in runs:
            continue
        at_ms = whole_ms(row["mono"] + read.offsets[boot] * 1000)
        route, was_known = routes[boot], known[boot]
        given = {one["name"]: sorted(one["ids"] or ()) for one in row["set"] or ()}
        gone = set(route) - set(given) if next_whole.get(boot) == row["turn"] else set(row["unset"] or ())
        next_whole[boot] = row["next_whole"]
        known[boot] = row["is_known"]
        before, routes[boot] = route, {name: ids for name, ids in (route | given).items() if name not in gone}
        certain = given if was_known else given.keys() & before.keys()
        by_boot[boot][row["revision"]] = Change(
            at_ms=at_ms,
            nameserver=runs[boot].nameserver,
            boot_id=runs[boot].boot_id,
            revision=row["revision"],
            route=_members(routes[boot]) if row["is_known"] else None,
            came=_members({name: _without(given[name], before.get(name)) for name in certain}),
            left=_members({name: _without(before[name], given[name]) for name in certain if name in before})
            + [Member(broker_name=name, ids=before.get(name, [])) for name in sorted(gone)],
            now=_members({name: ids for name, ids in given.items() if name not in certain}),
        )
    return by_boot


def _members(route: Mapping[str, list[int]]) -> list[Member]:
    return [Member(broker_name=name, ids=route[name]) for name in sorted(route) if route[name]]


def _without(ids: Sequence[int], others: Sequence[int] | None) -> list[int]:
    return [one for one in ids if one not in (others or ())]


def _received(
    read: _Read,
    request: RouteRequest,
    up: Mapping[int, Run],
    changes: Mapping[int, Mapping[int, Change]],
    current: Mapping[int, Change],
) -> list[ReceivedRoute]:
    """The last route that each open connection had received; those with an old route first."""
    rest, at = read.tables.rest, request.span.to_ms * 1000
    clocks = read.tables.boots.filter(F.col("boot").isin(*up)).select("boot", "offset_ms") if up else None
    if clocks is None:
        return []
    is_past = F.col("mono") + F.col("offset_ms") * 1000 <= at
    given = clients.given(rest, "served", [request.topic]).join(clocks, on="boot", how="inner").filter(is_past)
    last = given.groupBy("boot", "client").agg(F.max(F.struct("mono", "seq", "revision")).alias("last"))
    gone = rest.filter(F.col("event") == "client_gone").join(clocks, on="boot", how="inner").filter(is_past)
    staying = last.join(gone.select("boot", "client"), on=["boot", "client"], how="left_anti")
    rows = [row.asDict(recursive=True) for row in staying.collect()]
    routes = [
        ReceivedRoute(
            nameserver=up[row["boot"]].nameserver,
            client=row["client"] or "",
            received_ms=whole_ms(row["last"]["mono"] + read.offsets[row["boot"]] * 1000),
            change=changes[row["boot"]].get(row["last"]["revision"]),
            is_old=row["boot"] in current and row["last"]["revision"] != current[row["boot"]].revision,
        )
        for row in rows
    ]
    return sorted(routes, key=lambda one: (not one.is_old, one.nameserver, one.received_ms, one.client))


# --- what if


def _what_ifs(read: _Read, request: WhatIfRequest) -> WhatIfs:
    """The report's replay of the silences in which any setting might evict a broker."""
    # under an expiry shorter than the heartbeat interval every broker is evicted all the time: slow and useless
    others_ms = (it for it in OTHER_EXPIRIES_MS if it * 1000 >= read.usual)
    expiries = sorted({request.expiry_ms, *others_ms})
    evictions = read.tables.as_logged.select(F.lit(replay.LOGGED).alias("policy"), "staleness", "is_false")
    for expiry_ms in expiries:
        evictions = evictions.unionByName(_evictions(read, expiry_ms, request.scan_ms))
    closed = read.tables.intervals.filter(F.col("is_unannounced") & (F.col("reason") != "silent"))
    removals = closed.agg(F.count("key").alias("others"), F.count(F.when(F.col("is_false"), 1)).alias("false_others"))
    rows = read.engine.collected(
        {
            "judged": replay.judged(evictions),
            "polled": replay.with_polls(evictions, (request.poll_ms,)),
            "removals": removals,
        }
    )
    judged, polled = ({row["policy"]: row for row in rows[name]} for name in ("judged", "polled"))
    outcomes = [
        _outcome(judged.get(expiry_ms), polled.get(expiry_ms), expiry_ms, request.scan_ms) for expiry_ms in expiries
    ]
    if all(row["broker_expiry"] is None for row in read.tables.boot_rows):
        outcomes = [replace(outcome, evictions=None, false=None) for outcome in outcomes]
    chart, (logged, *outcomes) = _with_chart(
        [_outcome(judged.get(replay.LOGGED), polled.get(replay.LOGGED), None, None), *outcomes]
    )
    return WhatIfs(
        reading=read.about,
        poll_ms=request.poll_ms,
        others=rows["removals"][0]["others"],
        false_others=rows["removals"][0]["false_others"],
        logged=logged,
        asked=outcomes[expiries.index(request.expiry_ms)],
        expiries=outcomes,
        chart=chart,
    )


def _with_chart(outcomes: Sequence[Outcome]) -> tuple[str, list[Outcome]]:
    """The report's chart, and the outcomes with their letters in it; the logged settings come first."""
    settings = [
        Setting(str(number), "fixed" if number else "logged", one.false, one.client_p99_ms)
        for number, one in enumerate(outcomes)
        if one.client_p99_ms is not None and one.false is not None
    ]
    if not settings:
        return "", [*outcomes]
    spec = what_if(settings).spec
    # The page has the title of the axis in its reader's language.
    spec["encoding"]["x"]["title"] = None
    letters = {setting.label: letter for letter, setting in lettered(settings).items()}
    named = [replace(one, letter=letters.get(str(number), "")) for number, one in enumerate(outcomes)]
    return drawn(spec, "what-if"), named


def _evictions(read: _Read, expiry_ms: int, scan_ms: int) -> DataFrame:
    """The evictions under one setting; only the few silences that outlast its expiry are replayed."""
    silences = read.long_silences if expiry_ms * 1000 >= read.usual else read.silences
    grid = WhatIf(expiry_ms=(expiry_ms,), scan_ms=(scan_ms,), poll_ms=(1,))
    evicted = replay.replayed(silences.filter(_is_longer(expiry_ms * 1000)), grid)
    return evicted.withColumn("policy", F.lit(expiry_ms))


def _is_longer(expiry: int) -> Column:
    """A condition: a silence outlasts an expiry, or the broker's own expiry if that is shorter."""
    length = F.col("next_live") - F.col("live")
    return F.col("next_live").isNull() | (length > F.least("expiry", F.lit(expiry)))


def _outcome(judged: Row | None, polled: Row | None, expiry_ms: int | None, scan_ms: int | None) -> Outcome:
    registry, client = output_rows.stats(judged), output_rows.stats(polled)
    return Outcome(
        expiry_ms=expiry_ms,
        scan_ms=scan_ms,
        evictions=0 if judged is None else judged["evictions"],
        false=0 if judged is None else judged["false"],
        registry_p99_ms=registry["p99"],
        client_p50_ms=client["p50"],
        client_p99_ms=client["p99"],
    )
