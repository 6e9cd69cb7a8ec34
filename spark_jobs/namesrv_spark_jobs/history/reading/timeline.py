"""Timelines: the registration periods and long silences of brokers on each server."""

from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F
from namesrv_spark_jobs.history.hours import LogsError
from namesrv_spark_jobs.history.model import (
    MOST_TIMELINE_ROWS,
    Broker,
    RegistrationPeriod,
    Silence,
    Timeline,
    TimelineRequest,
    TimelineRow,
)
from namesrv_spark_jobs.history.reading.read_span import ReadSpan, Row, broker_of, place_of, runs_of
from namesrv_spark_jobs.pipeline import Tables
from namesrv_spark_jobs.transforms import registration_periods
from namesrv_spark_jobs.transforms.output_rows import whole_ms

# more registration periods than that would be drawn as one grey band
_MOST_PERIODS: Final = 20_000


def timeline(read: ReadSpan, request: TimelineRequest) -> Timeline:
    """The timeline rows, sorted by broker and server."""
    tables = read.tables
    rows_by_place: dict[tuple[Broker, str], TimelineRow] = {}

    def row_of(row: Row) -> TimelineRow:
        key = (broker_of(row), row["nameserver"] or "")
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
    rows = [rows_by_place[key] for key in sorted(rows_by_place, key=place_of)]
    left_out = max(0, len(rows) - MOST_TIMELINE_ROWS)
    return Timeline(
        reading=read.about, span=request.span, runs=runs_of(read), rows=rows[:MOST_TIMELINE_ROWS], left_out=left_out
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


def _shown(read: ReadSpan, request: TimelineRequest, table: DataFrame) -> list[Row]:
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
    keys = [row["key"] for row in brokers if text in f"{broker_of(row)} {row['broker_addr']}".lower()]
    # 0 never is a boot or key; it is listed because SQL does not allow an empty list
    return F.col("boot").isin(0, *boots) | F.col("key").isin(0, *keys)


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
