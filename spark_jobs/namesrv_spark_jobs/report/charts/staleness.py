"""How is the distribution of staleness drawn? As the share of cases that were over by then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from namesrv_spark_jobs.report.charts.scales import (
    Scale,
    duration_ceiling,
    duration_floor,
    duration_name,
    duration_ticks,
)
from namesrv_spark_jobs.report.charts.svg import NARROW, Picture
from namesrv_spark_jobs.times import shown_duration

Curve = Sequence[tuple[float, float]]
# a curve that spans more than that shows its last part only: what matters is on the right
_MOST_SPAN: Final = 100_000
_QUARTERS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


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
    picture = Picture(width, height, "How long stale routes lasted", _description(staleness))
    across = Scale(*_span(staleness), 44, width - 16, logarithmic=True)
    up = Scale(0, 1, height - 46, 34)
    _draw_axes(picture, across, up)
    _draw_bound(picture, across, up, staleness.bound_ms)
    for kind, curve in (("client", staleness.client), ("registry", staleness.registry)):
        if curve:
            picture.curve(_steps(curve, across, up), kind=kind)
            _draw_marks(picture, across, up, kind, staleness.marks.get(kind, {}))
    return picture


def _description(staleness: Staleness) -> str:
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


def _draw_axes(picture: Picture, across: Scale, up: Scale) -> None:
    for share in _QUARTERS:
        y = up.at(share)
        picture.line((across.start, y), (across.end, y), kind="axis" if share == 0 else "grid")
        picture.text((across.start - 8, y + 4), f"{share:.0%}", kind="small", anchor="end")
    for tick in duration_ticks(across, apart=52):
        x = across.at(tick)
        picture.line((x, up.start), (x, up.end), kind="grid")
        picture.text((x, up.start + 19), duration_name(tick), kind="small", anchor="middle")
    picture.text((across.end, up.start + 38), "time since the last heartbeat", kind="small", anchor="end")


def _draw_bound(picture: Picture, across: Scale, up: Scale, bound_ms: int | None) -> None:
    if bound_ms is None:
        return
    x = across.at(bound_ms)
    picture.line((x, up.start), (x, up.end - 8), kind="bound")
    # beside the line, on the side where there is room for it
    words = f"bound {shown_bound(bound_ms)}"
    has_room = x + 7 + len(words) * 8 < picture.width
    picture.text(
        (x + 7 if has_room else x - 7, up.end - 14), words, kind="bound", anchor="start" if has_room else "end"
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


def _draw_marks(picture: Picture, across: Scale, up: Scale, kind: str, marks: Mapping[str, float | None]) -> None:
    """Registry staleness is the shorter one: its labels go to the left, the clients' to the right."""
    for name, ms in marks.items():
        if ms is None:
            continue
        at = across.at(ms), up.at(float(name.removeprefix("p")) / 100)
        words = f"{name} {shown_duration(ms)}"
        picture.dot(at, 4.5, kind=kind, tip=words)
        is_left = kind == "registry"
        if picture.width > NARROW:
            place = (at[0] - 10, at[1] - 7) if is_left else (at[0] + 10, at[1] + 16)
            room = len(words) * 7.5
            if across.start + room < place[0] if is_left else place[0] + room < across.end:
                picture.text(place, words, kind=f"small {kind}", anchor="end" if is_left else "start")
