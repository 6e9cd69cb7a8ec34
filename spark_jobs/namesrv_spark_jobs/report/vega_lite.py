"""Building blocks of Vega-Lite charts, as plain values."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

Row = Mapping[str, Any]
Spec = dict[str, Any]

# the width of a drawing for paper; in a browser a chart is as wide as its card
_WIDTH: Final = 920
# the largest ratio of the ends of an axis; a longer curve loses its left part, since the right one matters
_MOST_SPAN: Final = 100_000
# round durations in milliseconds: 1 ms to 30 days
_DURATIONS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000),
    *(86_400_000, 172_800_000, 604_800_000, 2_592_000_000),
)
# the label of a duration at an axis: 500 ms, 90 s, 2.5 min
AXIS_DURATION: Final = " : ".join(
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
# colours are variables of the page's style sheet, which has values for light, dark and paper
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
TIP: Final = {"field": "says"}
DOT: Final = {"type": "point", "filled": True, "opacity": 1, "stroke": "var(--card)"}


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart."""

    title: str
    # the content in words, for readers who cannot see the chart
    description: str
    spec: Spec


class Axis(NamedTuple):
    """One axis of a chart."""

    field: str
    type: str
    title: str | None
    scale: Spec
    axis: Spec


def spec_of(
    rows: Sequence[Row], height: int, axes: tuple[Axis, Axis], layers: Sequence[Spec], **parameters: Any
) -> Spec:
    """The specification of a chart: layers over two axes, to the right and upwards. Most layers show `rows`.

    The page sets the parameter `zoom` to the part to show: from and to on the first axis, then on the second.
    """
    encoding = {name: axis._asdict() for name, axis in zip("xy", axes, strict=True)}
    for place, axis in zip((0, 2), encoding.values(), strict=True):
        if axis["type"] != "nominal":
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


def layer(
    mark: Spec, *, colours: Mapping[str, str] | None = None, rows: Sequence[Row] | None = None, **encoding: Any
) -> Spec:
    """A layer of marks, coloured by the `kind` of their rows; it shows `rows` if given, or else those of the chart."""
    made: Spec = {"mark": {"clip": True, **mark}, "encoding": encoding}
    if rows is not None:
        made["data"] = {"values": rows}
    if colours is not None:
        scale = {"domain": list(colours), "range": [f"var(--{colour})" for colour in colours.values()]}
        made["encoding"]["color"] = {"field": "kind", "type": "nominal", "scale": scale, "legend": None}
    return made


def limit(row: Row) -> Spec:
    """A vertical line, for a limit."""
    line = {"type": "rule", "color": "var(--bound)", "strokeDash": [6, 4], "strokeWidth": 2}
    return layer(line, rows=[row], tooltip=TIP, y={"value": 0}, y2={"value": {"expr": "height"}})


def rounded_span(values: Iterable[float]) -> tuple[float, float]:
    """The round durations below and above all of the values; values below a 100,000th of the upper end are cut off."""
    positive = [ms for ms in values if ms > 0]
    longest = max(positive, default=1000) * 1.02
    high = min((tick for tick in _DURATIONS if tick >= longest), default=math.ceil(longest))
    low = max(min(positive, default=100), high / _MOST_SPAN)
    return min(max((tick for tick in _DURATIONS if tick <= low), default=1), high / 10), high


def staleness_axis(low: float, high: float) -> Axis:
    """A logarithmic axis of staleness with round durations as ticks."""
    ticks = [ms for ms in _DURATIONS if low <= ms <= high]
    axis = {"values": {"expr": f"zoom ? null : {ticks}"}, "labelExpr": AXIS_DURATION}
    return Axis("ms", "quantitative", "time since the last heartbeat", {"type": "log", "domain": [low, high]}, axis)
