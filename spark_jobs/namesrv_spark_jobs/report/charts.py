"""Charts of the page: distributions of staleness, lives of brokers, gaps between heartbeats."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from namesrv_spark_jobs.report.shown import shown_duration, shown_moment
from namesrv_spark_jobs.report.svg import (
    NARROW,
    Box,
    Picture,
    Scale,
    clock_ticks,
    duration_ceiling,
    duration_floor,
    duration_name,
    duration_ticks,
)

Curve = Sequence[tuple[float, float]]
# a curve that spans more than that shows its last part only: what matters is on the right
_MOST_SPAN: Final = 100_000
_QUARTERS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
Row = Mapping[str, Any]
_BAR: Final = 13
# a tail of two minutes in a day is a tenth of a pixel; it is what the reader looks for
_LEAST_TAIL: Final = 2.5
_TOP: Final = 30
_LABELS: Final = 250
_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000
Bin = Mapping[str, Any]
# two thirds of the expiry: as docs/staleness.md has it
NEAR_MISS_PERCENT: Final = 200 / 3


@dataclass(frozen=True)
class Staleness:
    """What is drawn; a curve without points is left out."""

    registry: Curve
    client: Curve
    # where the settings say that it ends; None when the log does not tell them
    bound_ms: int | None
    # percentiles to mark, by curve and name: {"registry": {"p50": 91000}}
    marks: Mapping[str, Mapping[str, float | None]]


def draw_staleness(staleness: Staleness, width: int) -> Picture:
    """The curves over a logarithmic time axis, and the bound."""
    height = 300 if width <= NARROW else 370
    picture = Picture(width, height, "How long stale routes lasted", _describe_staleness(staleness))
    across = Scale(*_span(staleness), 44, width - 16, logarithmic=True)
    up = Scale(0, 1, height - 46, 34)
    _draw_staleness_axes(picture, across, up)
    taken: list[Box] = []
    _draw_bound(picture, across, up, staleness.bound_ms, taken)
    for kind, curve in (("client", staleness.client), ("registry", staleness.registry)):
        if curve:
            picture.curve(_steps(curve, across, up), kind=kind)
            _draw_marks(picture, (across, up), kind, staleness.marks.get(kind, {}), taken)
    return picture


def _describe_staleness(staleness: Staleness) -> str:
    sentences = []
    for name, kind in (("NameServers", "registry"), ("clients", "client")):
        marks = [f"{mark} {shown_duration(ms)}" for mark, ms in staleness.marks.get(kind, {}).items()]
        sentences += [f"At {name}: {', '.join(marks)}."] if marks else []
    if staleness.bound_ms is not None:
        sentences.append(f"The settings bound it to {shown_duration(staleness.bound_ms)}.")
    return " ".join(sentences) or "Cumulative share of cases over time."


def _span(staleness: Staleness) -> tuple[float, float]:
    """Round durations around everything that is drawn."""
    values = [ms for curve in (staleness.registry, staleness.client) for ms, _ in curve if ms > 0]
    values += [staleness.bound_ms] if staleness.bound_ms else []
    high = duration_ceiling(max(values, default=1000) * 1.02)
    low = max(min(values, default=100), high / _MOST_SPAN)
    return min(duration_floor(low), high / 10), high


def _draw_staleness_axes(picture: Picture, across: Scale, up: Scale) -> None:
    for share in _QUARTERS:
        y = up.at(share)
        picture.line((across.start, y), (across.end, y), kind="axis" if share == 0 else "grid")
        picture.text((across.start - 8, y + 4), f"{share:.0%}", kind="small", anchor="end")
    for tick in duration_ticks(across, apart=52):
        x = across.at(tick)
        picture.line((x, up.start), (x, up.end), kind="grid")
        picture.text((x, up.start + 19), duration_name(tick), kind="small", anchor="middle")
    picture.text((across.end, up.start + 38), "time since the last heartbeat", kind="small", anchor="end")


def _draw_bound(picture: Picture, across: Scale, up: Scale, bound_ms: int | None, taken: list[Box]) -> None:
    if bound_ms is None:
        return
    x = across.at(bound_ms)
    picture.line((x, up.start), (x, up.end - 8), kind="bound")
    # beside the line, on the side where there is room for it
    picture.label(
        f"bound {shown_bound(bound_ms)}",
        [((x + 7, up.end - 14), "start"), ((x - 7, up.end - 14), "end")],
        taken,
        kind="bound",
    )


def shown_bound(ms: int) -> str:
    """A bound is a round number of seconds, and is known as such: 160 s."""
    return f"{ms / 1000:g} s"


def _steps(curve: Curve, across: Scale, up: Scale) -> list[tuple[float, float]]:
    """From 0 %, a step at each value."""
    points = [(across.at(curve[0][0]), up.at(0))]
    for ms, share in curve:
        x = across.at(ms)
        points += [(x, points[-1][1]), (x, up.at(share))]
    return points


def _draw_marks(
    picture: Picture, scales: tuple[Scale, Scale], kind: str, marks: Mapping[str, float | None], taken: list[Box]
) -> None:
    """Registry staleness is the shorter one: its labels go to the left if they can, the clients' to the right."""
    across, up = scales
    for name, ms in marks.items():
        if ms is None:
            continue
        x, y = across.at(ms), up.at(float(name.removeprefix("p")) / 100)
        words = f"{name} {shown_duration(ms)}"
        picture.dot((x, y), 4.5, kind=kind, tip=words)
        left = [((x - 10, y - 7), "end"), ((x - 10, y + 16), "end")]
        right = [((x + 10, y + 16), "start"), ((x + 10, y - 7), "start")]
        if picture.width > NARROW:
            picture.label(words, left + right if kind == "registry" else right + left, taken, kind=f"small {kind}")


def draw_timeline(rows: Sequence[Row], timeline: Mapping[str, Any], width: int) -> Picture:
    """These rows of the time line from top to bottom, over one time axis; each shows when its server was down."""
    is_narrow = width <= NARROW
    row_height = 38 if is_narrow else 24
    height = _TOP + row_height * len(rows) + 8
    picture = Picture(width, height, "Lives of brokers, and how long their routes were stale", _describe_lives(rows))
    across = Scale(timeline["from_ms"], timeline["to_ms"], 2 if is_narrow else _LABELS, width - 12)
    _draw_clock(picture, across, height, most=4 if is_narrow else 8)
    for index, row in enumerate(rows):
        top = _TOP + row_height * index
        where = f"{row['broker']} on {row['nameserver']}"
        if is_narrow:
            picture.text((2, top + 13), shortened(where, 52), kind="row small")
        else:
            picture.text((_LABELS - 10, top + 15), shortened(where, 37), kind="row small", anchor="end")
        bar = top + (18 if is_narrow else 5)
        for begin, end in timeline["down"].get(row["nameserver"], ()):
            tip = f"{row['nameserver']} was not running, or its log is missing, for {shown_duration(end - begin)}"
            picture.box((across.at(begin), bar), (across.at(end) - across.at(begin), _BAR), kind="down", tip=tip)
        _draw_lives(picture, across, row, where, bar)
    return picture


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a long name: names differ at the end."""
    if len(text) <= most:
        return text
    return f"{text[: most // 3]}…{text[-(most - most // 3 - 1) :]}"


def _describe_lives(rows: Sequence[Row]) -> str:
    ended = sum(1 for row in rows for life in row["lives"] if life["reason"] is not None)
    return f"{len(rows)} brokers; {ended} of their lives ended. The same is in the table of intervals."


def _draw_clock(picture: Picture, across: Scale, height: int, *, most: int) -> None:
    ticks, step = clock_ticks(int(across.low), int(across.high), most)
    for tick in ticks:
        x = across.at(tick)
        picture.line((x, _TOP - 6), (x, height), kind="grid")
        if across.start + 18 < x < across.end - 14:
            picture.text((x, _TOP - 13), _clock(tick, step), kind="small", anchor="middle")


def _clock(ms: int, step: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    if step >= _DAY_MS or (moment.hour, moment.minute, moment.second) == (0, 0, 0):
        return moment.strftime("%d %b")
    return moment.strftime("%H:%M" if step >= _MINUTE_MS else "%H:%M:%S")


def _draw_lives(picture: Picture, across: Scale, row: Row, where: str, top: float) -> None:
    for life in row["lives"]:
        stale_from = life["to_ms"] - (life["stale_ms"] or 0)
        begin, alive_until, end = (across.at(moment) for moment in (life["from_ms"], stale_from, life["to_ms"]))
        picture.box((begin, top), (alive_until - begin, _BAR), kind="alive", tip=f"{where}: {_alive(life)}")
        if life["stale_ms"]:
            size = max(end - alive_until, _LEAST_TAIL), _BAR
            picture.box((alive_until, top), size, kind="stale", tip=f"{where}: {_stale(life)}")


def _alive(life: Row) -> str:
    if life["reason"] is None:
        return f"alive from {shown_moment(life['from_ms'])} to the end of the server's log"
    if life["stale_ms"]:
        return f"alive from {shown_moment(life['from_ms'])} to {shown_moment(life['last_ok_ms'])}"
    return f"alive from {shown_moment(life['from_ms'])} to {shown_moment(life['to_ms'])} ({life['reason']})"


def _stale(life: Row) -> str:
    lasted = shown_duration(life["stale_ms"])
    return f"last heard {shown_moment(life['last_ok_ms'])}, removed {lasted} later ({life['reason']})"


def draw_gaps(bins: Sequence[Bin], width: int) -> Picture:
    """One bar for each bin; what comes near to a removal is red."""
    height = 250 if width <= NARROW else 270
    picture = Picture(width, height, "Gaps between the heartbeats of brokers", _describe_gaps(bins))
    most = max(item["count"] for item in bins)
    across = Scale(0, max(_end(item) for item in bins), 52, width - 14)
    up = Scale(0.5, max(most, 10), height - 46, 14, logarithmic=True)
    _draw_gap_axes(picture, across, up, most)
    for item in bins:
        if item["count"]:
            _draw_bar(picture, across, up, item)
    _draw_expiry(picture, across, up)
    return picture


def _end(item: Bin) -> float:
    """The last bin may have no end."""
    return float(item["to_pct"] if item["to_pct"] is not None else item["from_pct"] + 10)


def _describe_gaps(bins: Sequence[Bin]) -> str:
    total = sum(item["count"] for item in bins)
    near = sum(item["count"] for item in bins if item["from_pct"] >= NEAR_MISS_PERCENT)
    return f"{total:,} gaps; {near:,} of them are in bins beyond two thirds of the broker's expiry."


def _draw_gap_axes(picture: Picture, across: Scale, up: Scale, most: int) -> None:
    for power in range(math.ceil(math.log10(max(most, 10))) + 1):
        y = up.at(10**power)
        if 10**power <= up.high:
            picture.line((across.start, y), (across.end, y), kind="grid")
            picture.text((across.start - 8, y + 4), _short(10**power), kind="small", anchor="end")
    picture.line((across.start, up.start), (across.end, up.start), kind="axis")
    step = 50 if picture.width <= NARROW or across.high > 200 else 25  # noqa: PLR2004  # labels need their room
    for percent in range(0, int(across.high) + 1, step):
        picture.text((across.at(percent), up.start + 19), f"{percent} %", kind="small", anchor="middle")
    picture.text((across.end, up.start + 38), "gap, in percent of the expiry", kind="small", anchor="end")


def _short(count: int) -> str:
    for suffix, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            return f"{count / size:g} {suffix}"
    return str(count)


def _draw_bar(picture: Picture, across: Scale, up: Scale, item: Bin) -> None:
    left, right, top = across.at(item["from_pct"]), across.at(_end(item)), up.at(item["count"])
    is_late = item["from_pct"] >= NEAR_MISS_PERCENT
    upper = f"{item['to_pct']:g} %" if item["to_pct"] is not None else "more"
    tip = f"{item['from_pct']:g} % to {upper} of the expiry: {item['count']:,} gaps"
    picture.box(
        (left + 0.75, top), (right - left - 1.5, up.start - top), kind="bar late" if is_late else "bar", tip=tip
    )


def _draw_expiry(picture: Picture, across: Scale, up: Scale) -> None:
    if across.high >= 100:  # noqa: PLR2004  # percent
        x = across.at(100)
        picture.line((x, up.start), (x, up.end), kind="bound")
        picture.text((x - 7, up.end + 12), "expiry", kind="small bound", anchor="end")
