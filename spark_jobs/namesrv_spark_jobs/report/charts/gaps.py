"""How are the gaps between heartbeats drawn? As a histogram, in shares of the time after which a broker is removed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from namesrv_spark_jobs.report.charts.scales import Scale
from namesrv_spark_jobs.report.charts.svg import NARROW, Picture

Bin = Mapping[str, Any]
# two thirds of the expiry: as docs/staleness.md has it
NEAR_MISS_PERCENT: Final = 200 / 3


def draw_gaps(bins: Sequence[Bin], width: int) -> Picture:
    """One bar for each bin; what comes near to a removal is red."""
    height = 250 if width <= NARROW else 270
    picture = Picture(width, height, "Gaps between the heartbeats of brokers", _description(bins))
    most = max(item["count"] for item in bins)
    across = Scale(0, max(_end(item) for item in bins), 52, width - 14)
    up = Scale(0.5, max(most, 10), height - 46, 14, logarithmic=True)
    _draw_axes(picture, across, up, most)
    for item in bins:
        if item["count"]:
            _draw_bar(picture, across, up, item)
    _draw_expiry(picture, across, up)
    return picture


def _end(item: Bin) -> float:
    """The last bin may have no end."""
    return float(item["to_pct"] if item["to_pct"] is not None else item["from_pct"] + 10)


def _description(bins: Sequence[Bin]) -> str:
    total = sum(item["count"] for item in bins)
    near = sum(item["count"] for item in bins if item["from_pct"] >= NEAR_MISS_PERCENT)
    return f"{total:,} gaps; {near:,} of them are in bins beyond two thirds of the broker's expiry."


def _draw_axes(picture: Picture, across: Scale, up: Scale, most: int) -> None:
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
