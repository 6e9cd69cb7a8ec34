"""The charts of the page in Vega-Lite, as plain values, each with what it shows in words."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from namesrv_spark_jobs.report.shown import printable, shown_duration, shown_moment

Row = Mapping[str, Any]
Spec = dict[str, Any]

# of the drawing for paper; in a browser a chart is as wide as its card
_WIDTH: Final = 920
_ROW_HEIGHT: Final = 24
# two thirds of the expiry: as docs/staleness.md has it
_NEAR_MISS_PERCENT: Final = 200 / 3
# a curve that spans more than that shows its last part only: what matters is on the right
_MOST_SPAN: Final = 100_000
# round numbers of milliseconds, as people say them: 1 ms to 30 days
_DURATIONS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000),
    *(86_400_000, 172_800_000, 604_800_000, 2_592_000_000),
)
# a number of milliseconds at an axis: 500 ms, 90 s, 2.5 min
_AXIS_DURATION: Final = " : ".join(
    [
        *(
            f"datum.value >= {least} ? format(datum.value / {size}, '~g') + ' {unit}'"
            for unit, least, size in (
                ("d", 172_800_000, 86_400_000),
                ("h", 7_200_000, 3_600_000),
                ("min", 300_000, 60_000),
                ("s", 1_000, 1_000),
            )
        ),
        "datum.value > 0 ? format(datum.value, '~g') + ' ms'",
        "'0'",
    ]
)
# a moment at an axis: 02 Mar, 07:30, 07:30:05
_AXIS_MOMENT: Final = (
    "utchours(datum.value) || utcminutes(datum.value) || utcseconds(datum.value)"
    " ? utcFormat(datum.value, utcseconds(datum.value) ? '%H:%M:%S' : '%H:%M') : utcFormat(datum.value, '%d %b')"
)
# width of a letter of a name, at most: the program that draws for paper does not know the reader's letters
_LETTER: Final = 7.5
# letters of a name at the time line that there is room for
_MOST_LETTERS: Final = 37
# from there on single evictions are not told apart any more
_MOST_LINEAR: Final = 20
# the smallest plot that the letters of settings must not overprint in, and the room of one
_LEAST_PLOT: Final = (250, 300)
_LETTER_ROOM: Final = 15
# colours are those of the page, by day, by night and on paper: its style has them
_CONFIG: Final[Spec] = {
    "aria": False,
    "background": None,
    "font": "system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, Liberation Sans, DejaVu Sans, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **dict.fromkeys(("domainColor", "tickColor"), "var(--rule)"),
        **dict.fromkeys(("labelColor", "titleColor"), "var(--soft)"),
        **dict.fromkeys(("labelFontSize", "titleFontSize"), 12),
        "gridColor": "var(--faint)",
        "labelPadding": 6,
        "titleFontWeight": "normal",
    },
    "axisX": {"labelSeparation": 12, "titleAnchor": "end", "labelBound": True},
}
_TIP: Final = {"field": "says"}
_DOT: Final = {"type": "point", "filled": True, "opacity": 1, "stroke": "var(--card)"}


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart."""

    title: str
    # what is to be seen in it, for those who cannot see it
    description: str
    spec: Spec


class Axis(NamedTuple):
    """What stands along one side of a chart."""

    field: str
    type: str
    title: str | None
    scale: Spec
    axis: Spec


def _spec(rows: Sequence[Row], height: int, axes: tuple[Axis, Axis], layers: Sequence[Spec], **parameters: Any) -> Spec:
    """Layers, most of them for these rows, over an axis to the right and one upwards.

    The page sets the parameter `zoom` to the part to show: from, to, and the same upwards.
    """
    encoding = {name: axis._asdict() for name, axis in zip("xy", axes, strict=True)}
    for place, axis in zip((0, 2), encoding.values(), strict=True):
        if "domain" in axis["scale"] and axis["type"] != "nominal":
            whole = axis["scale"].pop("domain")
            part = f"zoom && zoom[{place + 1}] != null ? [zoom[{place}], zoom[{place + 1}]] : {json.dumps(whole)}"
            axis["scale"] |= {"nice": False, "domainRaw": {"expr": part}}
    return {
        "width": _WIDTH,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": _CONFIG,
        "params": [{"name": name, "value": value} for name, value in {"zoom": None, **parameters}.items()],
        "data": {"values": rows},
        "encoding": encoding,
        "layer": list(layers),
    }


def _layer(
    mark: Spec, *, colours: Mapping[str, str] | None = None, rows: Sequence[Row] | None = None, **encoding: Any
) -> Spec:
    """Marks, by the `kind` of their rows in these colours of the page; for rows of their own, if given."""
    made: Spec = {"mark": {"clip": True, **mark}, "encoding": encoding}
    if rows is not None:
        made["data"] = {"values": rows}
    if colours is not None:
        scale = {"domain": list(colours), "range": [f"var(--{colour})" for colour in colours.values()]}
        made["encoding"]["color"] = {"field": "kind", "type": "nominal", "scale": scale, "legend": None}
    return made


def _limit(row: Row) -> Spec:
    """A line from the bottom to the top."""
    line = {"type": "rule", "color": "var(--bound)", "strokeDash": [6, 4], "strokeWidth": 2}
    return _layer(line, rows=[row], tooltip=_TIP, y={"value": 0}, y2={"value": {"expr": "height"}})


def staleness(charts: Row, marks: Mapping[str, Mapping[str, float]]) -> Chart:
    """The curves over a logarithmic time axis, with these percentiles marked, and the bound."""
    names, colours = {"registry": "NameServers", "client": "clients"}, {"registry": "registry", "client": "client"}
    curves = {kind: charts[f"{kind}_cdf"] for kind in names if charts[f"{kind}_cdf"]}
    bound = charts["bound_ms"]
    low, high = _span([bound, *(ms for curve in curves.values() for ms, _ in curve)])

    def point(kind: str, ms: float, share: float, says: str) -> Row:
        # 0 has no place on a logarithmic axis
        return {"kind": kind, "ms": max(ms, low), "share": share, "says": f"at {names[kind]}: {says}"}

    points = [
        point(kind, ms, share, f"{share:.1%} of the routes gone after {shown_duration(ms)}")
        for kind, curve in curves.items()
        for ms, share in curve
    ]
    dots = [
        point(kind, ms, float(mark.removeprefix("p")) / 100, f"{mark} {shown_duration(ms)}")
        for kind in curves
        for mark, ms in marks.get(kind, {}).items()
    ]
    told = [
        f"At {names[kind]}: {', '.join(f'{mark} {shown_duration(ms)}' for mark, ms in marks[kind].items())}."
        for kind in names
        if kind in marks
    ]
    layers = [
        _limit({"ms": bound, "says": f"bound of the settings: {bound / 1000:g} s"}),
        _layer({"type": "line", "interpolate": "step-after", "strokeWidth": 2.5}, colours=colours),
        # what the pointer finds: a curve is thin
        _layer({**_DOT, "size": 90, "opacity": 0}, colours=colours, tooltip=_TIP),
        _layer({**_DOT, "size": 80}, colours=colours, rows=dots, tooltip=_TIP),
    ]
    return Chart(
        title="How long stale routes lasted",
        description=" ".join([*told, f"The settings bound it to {shown_duration(bound)}."]),
        spec=_spec(
            points,
            330,
            (
                _staleness_axis(low, high),
                Axis("share", "quantitative", None, {"domain": [0, 1]}, {"format": ".0%", "tickCount": 4}),
            ),
            layers,
        ),
    )


def _span(values: Iterable[float]) -> tuple[float, float]:
    """Round durations around all of these."""
    positive = [ms for ms in values if ms > 0]
    longest = max(positive, default=1000) * 1.02
    high = min((tick for tick in _DURATIONS if tick >= longest), default=math.ceil(longest))
    low = max(min(positive, default=100), high / _MOST_SPAN)
    return min(max((tick for tick in _DURATIONS if tick <= low), default=1), high / 10), high


def _staleness_axis(low: float, high: float) -> Axis:
    """Round durations, on a logarithmic scale."""
    ticks = [ms for ms in _DURATIONS if low <= ms <= high]
    axis = {"values": {"expr": f"zoom ? null : {ticks}"}, "labelExpr": _AXIS_DURATION}
    return Axis("ms", "quantitative", "time since the last heartbeat", {"type": "log", "domain": [low, high]}, axis)


def where(row: Row) -> str:
    """A row of the time line."""
    return printable(f"{row['broker']} on {row['nameserver']}")


def timeline(brokers: Sequence[Row], timeline: Row) -> Chart:
    """These rows of the time line from top to bottom, over one time axis; each shows when its server was down.

    The page sets the parameter `mark` to the interval that it points at, and `most` to the letters there is room for.
    """
    bars = [bar for row in brokers for bar in _bars(row, timeline["down"].get(row["nameserver"], ()))]
    ended = sum(1 for row in brokers for life in row["lives"] if life["reason"] is not None)
    rows = [where(row) for row in brokers]
    # names differ at the end: beginning and end of a long one are kept
    shortened = "slice(datum.label, 0, floor(most / 3)) + '…' + slice(datum.label, -ceil(most * 2 / 3))"
    until = {"field": "to"}
    # a tail of two minutes in a day is a tenth of a pixel; it is what the reader looks for
    tail = {"condition": {"test": "datum.kind == 'stale'", "value": 2}, "value": 0}
    marked = {"type": "bar", "height": 20, "filled": False, "color": "var(--ink)", "strokeWidth": 2}
    pointed = [{"filter": "mark && datum.where == mark.where && datum.from == mark.from"}]
    layers = [
        _layer(
            {"type": "bar", "height": 13, "stroke": "var(--stale)"},
            colours={"down": "rule", "alive": "alive", "stale": "stale"},
            x2=until,
            strokeWidth=tail,
            tooltip=_TIP,
        ),
        {**_layer(marked, x2=until), "transform": pointed},
    ]
    across = {"type": "utc", "domain": [timeline["from_ms"], timeline["to_ms"]]}
    names = {
        "labelExpr": f"length(datum.label) > most ? {shortened} : datum.label",
        "labelLimit": 400,
        "minExtent": {"expr": f"min(most, {max(map(len, rows))}) * {_LETTER}"},
    }
    plain = {"domain": False, "ticks": False, "grid": False, "labelColor": "var(--ink)"}
    return Chart(
        title="Lives of brokers, and how long their routes were stale",
        description=f"{len(brokers)} brokers; {ended} of their lives ended. The same is in the table of intervals.",
        spec=_spec(
            bars,
            _ROW_HEIGHT * len(rows),
            (
                Axis("from", "temporal", None, across, {"orient": "top", "domain": False, "labelExpr": _AXIS_MOMENT}),
                Axis("where", "nominal", None, {"domain": rows}, {**names, **plain}),
            ),
            layers,
            most=_MOST_LETTERS,
            mark=None,
        ),
    )


def _bars(row: Row, down: Iterable[Sequence[int]]) -> list[Row]:
    place, server = where(row), printable(row["nameserver"])

    def bar(kind: str, begin: int, end: int, says: str) -> Row:
        return {"where": place, "kind": kind, "from": begin, "to": end, "says": says}

    was_down = f"{server} was not running, or its log is missing, for"
    found = [bar("down", begin, end, f"{was_down} {shown_duration(end - begin)}") for begin, end in down]
    for life in row["lives"]:
        reason, stale_ms, ended = life["reason"], life["stale_ms"], life["to_ms"]
        alive_until = ended - (stale_ms or 0)
        until = shown_moment(life["last_ok_ms" if stale_ms else "to_ms"]) if reason else "the end of the server's log"
        goodbye = f" ({printable(reason)})" if reason and not stale_ms else ""
        found.append(
            bar(
                "alive", life["from_ms"], alive_until, f"alive from {shown_moment(life['from_ms'])} to {until}{goodbye}"
            )
        )
        if stale_ms:
            removed = f"removed {shown_duration(stale_ms)} later ({printable(reason)})"
            found.append(bar("stale", alive_until, ended, f"last heard {shown_moment(life['last_ok_ms'])}, {removed}"))
    return found


def gaps(bins: Sequence[Row]) -> Chart:
    """One bar for each bin; what comes near to a removal is red."""

    def says(item: Row) -> str:
        to = "more" if item["to_pct"] is None else f"{item['to_pct']:g} %"
        return f"{item['from_pct']:g} % to {to} of the expiry: {item['count']:,} gaps"

    bars = [
        {
            "kind": "late" if item["from_pct"] >= _NEAR_MISS_PERCENT else "usual",
            # the last bin may have no end
            "from": item["from_pct"],
            "to": item["from_pct"] + 10 if item["to_pct"] is None else item["to_pct"],
            "count": item["count"],
            "says": says(item),
        }
        for item in bins
        if item["count"]
    ]
    most, end = max(item["count"] for item in bars), max(item["to"] for item in bars)
    near = sum(item["count"] for item in bars if item["kind"] == "late")
    layers = [
        _layer(
            {"type": "bar", "stroke": "var(--card)"},
            colours={"usual": "registry", "late": "stale"},
            x2={"field": "to"},
            y2={"datum": 0.5},
            tooltip=_TIP,
        ),
        _limit({"from": 100, "says": "expiry"}),
    ]
    counts = {"values": [10**power for power in range(math.ceil(math.log10(max(most, 10))) + 1)], "format": "~s"}
    percent = {"grid": False, "labelExpr": "datum.label + ' %'"}
    total = sum(item["count"] for item in bars)
    return Chart(
        title="Gaps between the heartbeats of brokers",
        description=f"{total:,} gaps; {near:,} of them are in bins beyond two thirds of the broker's expiry.",
        spec=_spec(
            bars,
            230,
            (
                Axis("from", "quantitative", "gap, in percent of the expiry", {"domain": [0, end]}, percent),
                Axis("count", "quantitative", None, {"type": "log", "domain": [0.5, max(most, 10)]}, counts),
            ),
            layers,
        ),
    )


class Setting(NamedTuple):
    """One point of the chart of other settings."""

    # short: 120/10/30
    label: str
    # fixed, phi or logged
    kind: str
    false_evictions: int
    staleness_ms: float


def what_if(settings: Sequence[Setting]) -> Chart:
    """False evictions to the right, staleness upwards: the best is at the bottom on the left, and has a letter."""
    most, highest = _extent(settings)
    is_logarithmic = most > _MOST_LINEAR

    def row(one: Setting) -> dict[str, Any]:
        says = f"{one.label}: p99 {shown_duration(one.staleness_ms)}, {one.false_evictions:,} false evictions"
        return {"kind": one.kind, "false": one.false_evictions, "ms": one.staleness_ms, "says": says}

    front, named = best(settings), lettered(settings)
    dots = [row(one) for one in sorted(settings, key=lambda one: one.kind == "logged")]
    colours = {"logged": "stale", "fixed": "registry", "phi": "client"}
    layers = [
        _layer({"type": "line", "color": "var(--registry)", "opacity": 0.45}, rows=[row(one) for one in front]),
        {
            **_layer({"type": "point", "size": 330, "color": "var(--stale)"}),
            "transform": [{"filter": "datum.kind == 'logged'"}],
        },
        _layer({**_DOT, "size": 110}, colours=colours, tooltip=_TIP),
        _layer(
            {"type": "text", "fontSize": 12, "fontWeight": "bold", "dx": -10, "dy": 10, "color": "var(--ink)"},
            rows=[{**row(one), "letter": letter} for letter, one in named.items()],
            text={"field": "letter"},
        ),
    ]
    choices = "; ".join(
        f"{one.label}: {shown_duration(one.staleness_ms)}, {one.false_evictions} false" for one in front
    )
    counting: Spec = {"type": "symlog", "constant": 1} if is_logarithmic else {"type": "linear"}
    powers = [0, *(10**power for power in range(math.ceil(math.log10(most + 1)) + 1))]
    ticks = {"values": {"expr": f"zoom ? null : {powers}"}} if is_logarithmic else {"tickMinStep": 1}
    counts = {"labelExpr": "datum.value < 0 ? '' : format(datum.value, ',')", **ticks}
    # room on the left for a dot and its letter: to the left of the best, and below them, there is nothing else
    edges = [-math.expm1(0.1 * math.log1p(most)), most * 1.3] if is_logarithmic else [-0.1 * most, 1.05 * most]
    return Chart(
        title="Staleness against false evictions",
        description=f"{len(settings)} settings. The best ones, staleness and false evictions: {choices}.",
        spec=_spec(
            dots,
            380,
            (
                Axis("false", "quantitative", "false evictions", {**counting, "domain": edges}, counts),
                Axis("ms", "quantitative", None, {"domain": [0, highest]}, {"labelExpr": _AXIS_DURATION}),
            ),
            layers,
        ),
    )


def _extent(settings: Sequence[Setting]) -> tuple[int, float]:
    """The most false evictions, and the longest staleness with some room above it."""
    return (
        max((1, *(one.false_evictions for one in settings))),
        max((1000, *(one.staleness_ms * 1.08 for one in settings))),
    )


def best(settings: Iterable[Setting]) -> list[Setting]:
    """Those to choose from: no other one is better in one way without being worse in the other."""
    front: list[Setting] = []
    for one in sorted(settings, key=lambda one: (one.false_evictions, one.staleness_ms)):
        if not front or one.staleness_ms < front[-1].staleness_ms:
            front.append(one)
    return front


def lettered(settings: Sequence[Setting]) -> dict[str, Setting]:
    """The best ones by letters, from the left; one that lies upon another has none, since nobody could read both."""
    most, highest = _extent(settings)
    width, height = _LEAST_PLOT

    def place(one: Setting) -> tuple[float, float]:
        share = (
            math.log1p(one.false_evictions) / math.log1p(most) if most > _MOST_LINEAR else one.false_evictions / most
        )
        return share * width, one.staleness_ms / highest * height

    chosen: list[Setting] = []
    for one in best(settings):
        x, y = place(one)
        if all(max(abs(x - left), abs(y - top)) >= _LETTER_ROOM for left, top in map(place, chosen)):
            chosen.append(one)
    return dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", chosen, strict=False))


def percentiles(title: str, before: Mapping[str, Any], after: Mapping[str, Any], colour: str) -> Chart:
    """Percentiles of one measure in two reports, A and B: a dot for each, and between them how far it moved."""
    shown = {"p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9", "max": "max"}
    low, high = _span([stats[name] for stats in (before, after) for name in shown])
    dots = [
        {
            "kind": kind,
            "of": words,
            "ms": max(stats[name], low),
            "says": f"{words} in {kind}: {shown_duration(stats[name])}",
        }
        for name, words in shown.items()
        for kind, stats in (("A", before), ("B", after))
    ]
    ways = [
        {"of": one["of"], "ms": one["ms"], "to": other["ms"]} for one, other in zip(dots[::2], dots[1::2], strict=True)
    ]
    moved = "; ".join(
        f"{words} {shown_duration(before[name])} to {shown_duration(after[name])}" for name, words in shown.items()
    )
    return Chart(
        title=title,
        description=f"From A to B: {moved}.",
        spec=_spec(
            dots,
            30 * len(shown),
            (
                _staleness_axis(low, high),
                Axis("of", "nominal", None, {"domain": list(shown.values())}, {"domain": False, "ticks": False}),
            ),
            [
                _layer({"type": "rule", "color": "var(--rule)", "strokeWidth": 3}, rows=ways, x2={"field": "to"}),
                _layer({**_DOT, "size": 130}, colours={"A": "soft", "B": colour}, tooltip=_TIP),
            ],
        ),
    )
