"""The charts of the pages, each with a description in words."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from namesrv_spark_jobs.percentiles import PERCENTILE_FIELDS
from namesrv_spark_jobs.report.shown import counted, printable, shown_duration, shown_moment
from namesrv_spark_jobs.report.vega_lite import (
    AXIS_DURATION,
    DOT,
    TIP,
    Axis,
    Chart,
    Row,
    Spec,
    layer,
    limit,
    rounded_span,
    spec_of,
    staleness_axis,
)

_ROW_HEIGHT: Final = 24
# a near miss, as in docs/staleness.md: two thirds of the expiry
_NEAR_MISS_PERCENT: Final = 200 / 3
# the label of a moment at an axis: 02 Mar, 07:30, 07:30:05
_AXIS_MOMENT: Final = (
    "utchours(datum.value) || utcminutes(datum.value) || utcseconds(datum.value)"
    " ? utcFormat(datum.value, utcseconds(datum.value) ? '%H:%M:%S' : '%H:%M') : utcFormat(datum.value, '%d %b')"
)
# the largest width of a letter in a name: the program that draws for paper does not know the reader's font
_LETTER: Final = 7.5
# letters of a name for which the timeline has room
_MOST_LETTERS: Final = 37
# more false evictions than that need a logarithmic axis
_MOST_LINEAR: Final = 20
# the smallest plot in which the letters of settings must not overlap, and the room that a letter takes
_LEAST_PLOT: Final = (250, 300)
_LETTER_ROOM: Final = 15


def staleness(charts: Row, marks: Mapping[str, Mapping[str, float]], bound: float) -> Chart:
    """The staleness curves over a logarithmic time axis, with the percentiles in `marks`, and the `bound` in ms."""
    names, colours = {"registry": "NameServers", "client": "clients"}, {"registry": "registry", "client": "client"}
    curves = {kind: charts[f"{kind}_cdf"] for kind in names if charts[f"{kind}_cdf"]}
    low, high = rounded_span([bound, *(ms for curve in curves.values() for ms, _ in curve)])

    def point(kind: str, ms: float, share: float, says: str) -> Row:
        # a logarithmic axis has no 0
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
    sentences = [
        f"At {names[kind]}: {', '.join(f'{mark} {shown_duration(ms)}' for mark, ms in marks[kind].items())}."
        for kind in names
        if kind in marks
    ]
    layers = [
        limit({"ms": bound, "says": f"bound of the settings: {bound / 1000:g} s"}),
        layer({"type": "line", "interpolate": "step-after", "strokeWidth": 2.5}, colours=colours),
        # large invisible dots for the pointer, since a curve is thin
        layer({**DOT, "size": 90, "opacity": 0}, colours=colours, tooltip=TIP),
        layer({**DOT, "size": 80}, colours=colours, rows=dots, tooltip=TIP),
    ]
    return Chart(
        title="How long stale routes lasted",
        description=" ".join([*sentences, f"The settings bound it to {shown_duration(bound)}."]),
        spec=spec_of(
            points,
            330,
            (
                staleness_axis(low, high),
                Axis("share", "quantitative", None, {"domain": [0, 1]}, {"format": ".0%", "tickCount": 4}),
            ),
            layers,
        ),
    )


def where(row: Row) -> str:
    """The name of a timeline row."""
    return printable(f"{row['broker']} on {row['nameserver']}")


def timeline(brokers: Sequence[Row], timeline: Row) -> Chart:
    """Timeline rows from top to bottom over one time axis; each row shows when its server was down.

    The page sets the parameter `mark` to the interval to highlight, and `most` to the number of letters that fit.
    """
    bars = [bar for row in brokers for bar in _bars(row, timeline["down"].get(row["nameserver"], ()))]
    ended = sum(1 for row in brokers for period in row["periods"] if period["reason"] is not None)
    rows = [where(row) for row in brokers]
    # long names keep their beginning and most of their end, where names differ
    shortened = "slice(datum.label, 0, floor(most / 3)) + '…' + slice(datum.label, -ceil(most * 2 / 3))"
    until = {"field": "to"}
    # A stale end of two minutes in a day is a tenth of a pixel, but readers look for it: it gets a stroke.
    tail = {"condition": {"test": "datum.kind == 'stale'", "value": 2}, "value": 0}
    marked = {"type": "bar", "height": 20, "filled": False, "color": "var(--ink)", "strokeWidth": 2}
    pointed = [{"filter": "mark && datum.where == mark.where && datum.from == mark.from"}]
    layers = [
        layer(
            {"type": "bar", "height": 13, "stroke": "var(--stale)"},
            colours={"down": "rule", "alive": "alive", "stale": "stale"},
            x2=until,
            strokeWidth=tail,
            tooltip=TIP,
        ),
        {**layer(marked, x2=until), "transform": pointed},
    ]
    across = {"type": "utc", "domain": [timeline["from_ms"], timeline["to_ms"]]}
    names = {
        "labelExpr": f"length(datum.label) > most ? {shortened} : datum.label",
        "labelLimit": 400,
        "minExtent": {"expr": f"min(most, {max(map(len, rows))}) * {_LETTER}"},
    }
    plain = {"domain": False, "ticks": False, "grid": False, "labelColor": "var(--ink)"}
    return Chart(
        title="Registration periods of brokers, and how long their routes were stale",
        description=(
            f"{counted(len(brokers), 'row')}, each for a broker on a NameServer; "
            f"registration periods that ended: {ended}. The table of registration periods has the same."
        ),
        spec=spec_of(
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
    bars = [bar("down", begin, end, f"{was_down} {shown_duration(end - begin)}") for begin, end in down]
    for period in row["periods"]:
        reason, stale_ms, ended = period["reason"], period["stale_ms"], period["to_ms"]
        alive_until = ended - (stale_ms or 0)
        began, last_seen = shown_moment(period["from_ms"]), shown_moment(period["last_ok_ms"])
        if reason is None:
            says = f"registered from {began} to the end of the server's log, last seen {last_seen}"
        elif stale_ms:
            says = f"alive from {began} to {last_seen}"
        else:
            says = f"alive from {began} to {shown_moment(ended)} ({printable(reason)})"
        bars.append(bar("alive", period["from_ms"], alive_until, says))
        if stale_ms:
            removed = f"removed {shown_duration(stale_ms)} later ({printable(reason)})"
            bars.append(bar("stale", alive_until, ended, f"last seen {last_seen}, {removed}"))
    return bars


def heartbeat_intervals(bins: Sequence[Row]) -> Chart:
    """One bar for each bin of intervals; near misses are red."""

    def says(item: Row) -> str:
        to = "more" if item["to_pct"] is None else f"{item['to_pct']:g} %"
        return f"{item['from_pct']:g} % to {to} of the expiry: {counted(item['count'], 'interval')}"

    bars = [
        {
            "kind": "late" if item["from_pct"] >= _NEAR_MISS_PERCENT else "usual",
            # the last bin may be open
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
        layer(
            {"type": "bar", "stroke": "var(--card)"},
            colours={"usual": "registry", "late": "stale"},
            x2={"field": "to"},
            y2={"datum": 0.5},
            tooltip=TIP,
        ),
        limit({"from": 100, "says": "expiry"}),
    ]
    counts = {"values": [10**power for power in range(math.ceil(math.log10(max(most, 10))) + 1)], "format": "~s"}
    percent = {"grid": False, "labelExpr": "datum.label + ' %'"}
    total = sum(item["count"] for item in bars)
    return Chart(
        title="Intervals between the heartbeats of brokers",
        description=f"{counted(total, 'interval')}; {near:,} of them in bins beyond two thirds of the broker's expiry.",
        spec=spec_of(
            bars,
            230,
            (
                Axis("from", "quantitative", "interval, in percent of the expiry", {"domain": [0, end]}, percent),
                Axis("count", "quantitative", None, {"type": "log", "domain": [0.5, max(most, 10)]}, counts),
            ),
            layers,
        ),
    )


class Setting(NamedTuple):
    """One point of the chart of other settings."""

    # expiry/scan/poll in seconds, such as 120/10/30
    label: str
    # fixed or logged
    kind: str
    false_evictions: int
    staleness_ms: float


def what_if(settings: Sequence[Setting]) -> Chart:
    """False evictions to the right, staleness upwards: the best settings are at the bottom left, and have letters."""
    most, highest = _extent(settings)
    is_logarithmic = most > _MOST_LINEAR

    def row(one: Setting) -> dict[str, Any]:
        false = counted(one.false_evictions, "false eviction")
        says = f"{one.label}: p99 {shown_duration(one.staleness_ms)}, {false}"
        return {"kind": one.kind, "false": one.false_evictions, "ms": one.staleness_ms, "says": says}

    front, named = best(settings), lettered(settings)
    dots = [row(one) for one in sorted(settings, key=lambda one: one.kind == "logged")]
    colours = {"logged": "stale", "fixed": "registry"}
    layers = [
        layer({"type": "line", "color": "var(--registry)", "opacity": 0.45}, rows=[row(one) for one in front]),
        {
            **layer({"type": "point", "size": 330, "color": "var(--stale)"}),
            "transform": [{"filter": "datum.kind == 'logged'"}],
        },
        layer({**DOT, "size": 110}, colours=colours, tooltip=TIP),
        layer(
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
    # room on the left for a dot and its letter: no other dot is to the left of the best ones, or below them
    edges = [-math.expm1(0.1 * math.log1p(most)), most * 1.3] if is_logarithmic else [-0.1 * most, 1.05 * most]
    return Chart(
        title="Staleness against false evictions",
        description=(f"{counted(len(settings), 'setting')}. The best ones, staleness and false evictions: {choices}."),
        spec=spec_of(
            dots,
            380,
            (
                Axis("false", "quantitative", "false evictions", {**counting, "domain": edges}, counts),
                Axis("ms", "quantitative", None, {"domain": [0, highest]}, {"labelExpr": AXIS_DURATION}),
            ),
            layers,
        ),
    )


def _extent(settings: Sequence[Setting]) -> tuple[int, float]:
    """The ends of both axes: the most false evictions, and the longest staleness with some room above it."""
    return (
        max((1, *(one.false_evictions for one in settings))),
        max((1000, *(one.staleness_ms * 1.08 for one in settings))),
    )


def best(settings: Iterable[Setting]) -> list[Setting]:
    """The settings to choose from: for none of them is another setting at least as good in both numbers.

    Of settings that are equal in both, the first is chosen.
    """
    front: list[Setting] = []
    for one in sorted(settings, key=lambda one: (one.false_evictions, one.staleness_ms)):
        if not front or one.staleness_ms < front[-1].staleness_ms:
            front.append(one)
    return front


def lettered(settings: Sequence[Setting]) -> dict[str, Setting]:
    """The best settings by letters, from the left; a setting has no letter where it would overlap another one."""
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
    """The percentiles of one measure in two reports, A and B: a dot for each, with a line from A to B."""
    shown = {**PERCENTILE_FIELDS, "max": "max"}
    low, high = rounded_span([stats[name] for stats in (before, after) for name in shown])
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
        spec=spec_of(
            dots,
            30 * len(shown),
            (
                staleness_axis(low, high),
                Axis("of", "nominal", None, {"domain": list(shown.values())}, {"domain": False, "ticks": False}),
            ),
            [
                layer({"type": "rule", "color": "var(--rule)", "strokeWidth": 3}, rows=ways, x2={"field": "to"}),
                layer({**DOT, "size": 130}, colours={"A": "soft", "B": colour}, tooltip=TIP),
            ],
        ),
    )
