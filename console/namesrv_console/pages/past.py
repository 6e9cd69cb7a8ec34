"""The pages about the past: timeline, time travel, what if, and the strip of one broker."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import PlainTextResponse, Response

from namesrv_console.console import Content, Page, Visit
from namesrv_console.past import timeline_rows
from namesrv_console.past.asking import LIMIT_SECONDS, PATIENCE_SECONDS, Answer, Logged
from namesrv_console.past.strip_picture import strip_picture
from namesrv_spark_jobs.history.model import (
    LEAST_EXPIRY_MS,
    MOST_TIMELINE_ROWS,
    Failed,
    PastRequest,
    Report,
    ReportRequest,
    RouteRequest,
    Strip,
    StripRequest,
    Timeline,
    TimelineRequest,
    TopicPast,
    WhatIfRequest,
)
from namesrv_spark_jobs.history.moments import moment_ms
from namesrv_spark_jobs.history.spans import DAY_MS, HOUR_MS, MINUTE_MS, MOST_MS, Span, written

# Longest wait of the script's request for a page, and of a picture, since neither can show a placeholder.
_LONG_PATIENCE_SECONDS: Final = 25.0
_MOST_REMOVALS: Final = 100
# Choices for the number of days before the moment.
DAYS: Final = ("1", "2", "7")


@dataclass(frozen=True, slots=True)
class Slider:
    """A setting of the what-if page, in seconds."""

    name: str
    least: int
    most: int
    step: int
    # The value without one in the query: the default of our servers and clients.
    default: int


# Names of the form fields.
_FIELDS: Final = ("from", "to", "q", "topic", "at", "days", "expiry", "scan", "poll", "wait")
SLIDERS: Final = (
    Slider("expiry", LEAST_EXPIRY_MS // 1000, 300, 5, 120),
    Slider("scan", 1, 60, 1, 10),
    Slider("poll", 1, 120, 1, 30),
)


@dataclass(frozen=True, slots=True)
class _LinkedRequest:
    """A request, and the query of a permanent link to it. None: the query is incomplete."""

    request: PastRequest | None
    query: Mapping[str, str]


async def _content(
    visit: Visit,
    page: Page,
    read: Callable[[Mapping[str, str], Span], _LinkedRequest],
    shown: Callable[[Any], Mapping[str, Any]],
) -> Content:
    """The values for a template: the result, or the reason why it is missing."""
    if visit.now is None:
        # Only the frame of these pages is live.
        return {}
    query = {**dict.fromkeys(_FIELDS, ""), **visit.query}
    values = {"state": "no_logs", "why": "", "query": query, "path": page.path, "sliders": SLIDERS}
    values["logs"] = shlex.join(visit.console.past.logs)
    if not visit.console.past.logs:
        return values
    logged = await visit.console.past.logged(visit.wall, patience_seconds=_patience_seconds(visit))
    if not isinstance(logged, Logged):
        given = {name: value for name, value in visit.query.items() if name != "wait"}
        return values | {"missing_logs": [], "permanent": given, **_without_result(logged)}
    covered = _covered(logged, visit.wall)
    values |= {"missing_logs": logged.missing, "presets": presets(covered)}
    try:
        linked = read(query, covered)
    except ValueError as error:
        return values | {"state": "failed", "why": str(error)}
    return values | {
        "query": {**query, **linked.query},
        "permanent": linked.query,
        **await _results(visit, linked, shown),
    }


async def _results(
    visit: Visit, linked: _LinkedRequest, shown: Callable[[Any], Mapping[str, Any]]
) -> Mapping[str, Any]:
    if linked.request is None:
        return {"state": "to_ask"}
    result = await visit.console.past.ask(linked.request, patience_seconds=_patience_seconds(visit))
    if result is None or isinstance(result, Failed):
        return _without_result(result)
    return {"state": "ready", "result": result, "span": linked.request.span, **shown(result)}


def _patience_seconds(visit: Visit) -> float:
    return _LONG_PATIENCE_SECONDS if "wait" in visit.query else PATIENCE_SECONDS


def _without_result(result: Answer | None) -> Mapping[str, Any]:
    return {"state": "failed", "why": result.why} if isinstance(result, Failed) else {"state": "reading"}


def _covered(logged: Logged, wall: float) -> Span:
    """The time that the logs cover, up to now; in whole seconds, since form fields have no milliseconds."""
    now_ms = int(wall) * 1000
    if logged.hours is None or now_ms <= logged.hours.from_ms:
        return Span(now_ms - DAY_MS, now_ms)
    return Span(logged.hours.from_ms, min(now_ms, logged.hours.to_ms))


def _span(query: Mapping[str, str], logged: Span) -> Span:
    """The span of the query, by default the last day as far as there are logs. Raises ValueError."""
    to_ms = moment_ms(query["to"]) if query.get("to") else logged.to_ms
    from_ms = moment_ms(query["from"]) if query.get("from") else to_ms - DAY_MS
    if not query.get("from") and logged.from_ms < to_ms:
        from_ms = max(from_ms, logged.from_ms)
    return Span.checked(from_ms, to_ms)


def presets(logged: Span) -> Mapping[str, Span]:
    """Spans to choose from, each up to the end of the logs; the longest is limited by what a page can show."""
    lengths = {"quarter": 15 * MINUTE_MS, "hour": HOUR_MS, "day": DAY_MS, "every": min(MOST_MS, logged.length_ms)}
    return {name: Span(logged.to_ms - length, logged.to_ms) for name, length in lengths.items()}


def _permanent(span: Span, **others: object) -> Mapping[str, str]:
    return {"from": written(span.from_ms), "to": written(span.to_ms)} | {
        name: str(value) for name, value in others.items() if value
    }


# --- timeline


async def timeline(visit: Visit) -> Content:
    """Timeline rows by broker and server."""
    return await _content(visit, TIMELINE, _timeline_request, _timeline)


def _timeline_request(query: Mapping[str, str], logged: Span) -> _LinkedRequest:
    span, text = _span(query, logged), query.get("q", "").strip()
    return _LinkedRequest(TimelineRequest(span=span, text=text), _permanent(span, q=text))


def _timeline(result: Timeline) -> Mapping[str, Any]:
    span = result.span
    names = {row.nameserver for row in result.rows}
    until_ms = result.reading.until_ms
    down = {name: timeline_rows.downtimes(result.runs, name, span, read_until_ms=until_ms) for name in names}
    ended = [
        (period, row)
        for row in result.rows
        for period in row.periods
        if period.reason is not None and period.end_ms in span
    ]
    ended.sort(key=lambda it: (-it[0].end_ms, it[1].nameserver, str(it[1].broker)))
    return {
        "rows": [(timeline_rows.drawn(row, span), down[row.nameserver]) for row in result.rows],
        "ticks": timeline_rows.ticks(span),
        "ended": [(period, row, timeline_rows.removal_of(period.reason)) for period, row in ended[:_MOST_REMOVALS]],
        "ended_left_out": max(0, len(ended) - _MOST_REMOVALS),
        "most_rows": MOST_TIMELINE_ROWS,
        "moves": {
            "earlier": span.moved(-0.5),
            "later": span.moved(0.5),
            "closer": span.zoomed(0.5),
            "wider": span.zoomed(2),
        },
    }


# --- time travel


async def travel(visit: Visit) -> Content:
    """The route of a topic at a moment."""
    return await _content(visit, TRAVEL, _route_request, _route)


def _route_request(query: Mapping[str, str], logged: Span) -> _LinkedRequest:
    topic, at_ms = query.get("topic", "").strip(), moment_ms(query["at"]) if query.get("at") else logged.to_ms
    days = query.get("days") or DAYS[0]
    if days not in DAYS:
        raise ValueError(f"days: {days!r} is not one of {', '.join(DAYS)}")
    span = Span.checked(at_ms - int(days) * DAY_MS, at_ms)
    permanent = {"topic": topic, "at": written(at_ms), "days": days}
    return _LinkedRequest(RouteRequest(span=span, topic=topic) if topic else None, permanent)


def _route(result: TopicPast) -> Mapping[str, Any]:
    return {"old": sum(client.is_old for client in result.clients)}


# --- what if


async def what_if(visit: Visit) -> Content:
    """A replay of the same heartbeats with other settings."""
    return await _content(visit, WHAT_IF, _what_if_request, lambda _: {})


def _what_if_request(query: Mapping[str, str], logged: Span) -> _LinkedRequest:
    span, seconds = _what_if_settings(query, logged)
    return _LinkedRequest(WhatIfRequest(span=span, **_in_ms(seconds)), _permanent(span, **seconds))


def _what_if_settings(query: Mapping[str, str], logged: Span) -> tuple[Span, dict[str, int]]:
    return _span(query, logged), {slider.name: _seconds(slider, query) for slider in SLIDERS}


def _in_ms(seconds: Mapping[str, int]) -> dict[str, int]:
    return {f"{name}_ms": value * 1000 for name, value in seconds.items()}


def _seconds(slider: Slider, query: Mapping[str, str]) -> int:
    text = query.get(slider.name) or str(slider.default)
    if not text.isascii() or not text.isdigit() or not slider.least <= int(text) <= slider.most:
        raise ValueError(f"{slider.name}: {text!r} is not a number of seconds from {slider.least} to {slider.most}")
    return int(text)


async def report(visit: Visit) -> Content:
    """The whole staleness report of the same hours, as a file: the console's pages do not allow its scripts."""
    past = visit.console.past
    if not past.logs:
        return PlainTextResponse("no logs\n", HTTPStatus.NOT_FOUND)
    logged = await past.logged(visit.wall, patience_seconds=LIMIT_SECONDS)
    if not isinstance(logged, Logged):
        return _unavailable(logged)
    try:
        span, seconds = _what_if_settings(visit.query, _covered(logged, visit.wall))
    except ValueError as error:
        return PlainTextResponse(f"{error}\n", HTTPStatus.BAD_REQUEST)
    # The user downloads a file, so the request waits for the result.
    result = await past.ask(ReportRequest(span=span, **_in_ms(seconds)), patience_seconds=LIMIT_SECONDS)
    if not isinstance(result, Report):
        return _unavailable(result)
    as_file = {"content-disposition": 'attachment; filename="staleness.html"'}
    return Response(result.html, media_type="text/html", headers=as_file)


def _unavailable(result: Answer | None) -> Response:
    why = result.why if isinstance(result, Failed) else "still reading the logs; try again"
    return PlainTextResponse(f"{why}\n", HTTPStatus.SERVICE_UNAVAILABLE)


# --- strip


async def strip(visit: Visit) -> Content:
    """A picture of how regularly each server received heartbeats of a broker group during the last day."""
    past, query = visit.console.past, visit.query
    if not past.logs:
        return PlainTextResponse("no logs\n", HTTPStatus.NOT_FOUND)
    logged = await past.logged(visit.wall, patience_seconds=_LONG_PATIENCE_SECONDS)
    if not isinstance(logged, Logged):
        return _unavailable(logged)
    # The span ends at a whole minute, so that requests within one minute get the same picture.
    to_ms = _covered(logged, visit.wall).to_ms // MINUTE_MS * MINUTE_MS
    span = Span(to_ms - DAY_MS, to_ms)
    name = query.get("name", "")
    request = StripRequest(span=span, cluster=query.get("cluster", ""), broker_name=name)
    result = await past.ask(request, patience_seconds=_LONG_PATIENCE_SECONDS)
    if not isinstance(result, Strip):
        return _unavailable(result)
    missing = [visit.t("past.missing", folders=", ".join(logged.missing))] if logged.missing else []
    picture = strip_picture(result, visit.t, label=visit.t("past.strip_of", name=name), remarks=missing)
    headers = {"cache-control": "max-age=60", "vary": "cookie, accept-language"}
    return Response(picture, media_type="image/svg+xml", headers=headers)


TIMELINE: Final = Page("timeline", "/timeline", "past.timeline", timeline, fields=_FIELDS, group="past", key="l")
TRAVEL: Final = Page("travel", "/travel", "past.travel", travel, fields=_FIELDS, group="past", key="v")
WHAT_IF: Final = Page("what_if", "/what-if", "past.what_if", what_if, fields=_FIELDS, group="past", key="w")
REPORT: Final = Page("report", "/what-if/report.html", "past.full_report", report, fields=_FIELDS, is_live=False)
STRIP: Final = Page("strip", "/strip.svg", "past.strip", strip, fields=("cluster", "name"), is_live=False)
PAGES: Final = (TIMELINE, TRAVEL, WHAT_IF, REPORT, STRIP)
