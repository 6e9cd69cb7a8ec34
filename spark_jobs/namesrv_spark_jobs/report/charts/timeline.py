"""How are the lives of brokers drawn? One row each, with the time in which it was stale at the end."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from namesrv_spark_jobs.report.charts.scales import Scale, clock_ticks
from namesrv_spark_jobs.report.charts.svg import NARROW, Picture
from namesrv_spark_jobs.times import shown_duration, shown_moment

Row = Mapping[str, Any]
_BAR: Final = 13
# a tail of two minutes in a day is a tenth of a pixel; it is what the reader looks for
_LEAST_TAIL: Final = 2.5
_TOP: Final = 30
_LABELS: Final = 250
_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000


def draw_timeline(rows: Sequence[Row], span: tuple[int, int], width: int) -> Picture:
    """The rows from top to bottom, over one time axis."""
    is_narrow = width <= NARROW
    row_height = 38 if is_narrow else 24
    height = _TOP + row_height * len(rows) + 8
    picture = Picture(width, height, "Lives of brokers, and how long their routes were stale", _description(rows))
    across = Scale(*span, 2 if is_narrow else _LABELS, width - 12)
    _draw_axis(picture, across, height, most=4 if is_narrow else 8)
    for index, row in enumerate(rows):
        top = _TOP + row_height * index
        where = f"{row['broker']} on {row['nameserver']}"
        if is_narrow:
            picture.text((2, top + 13), shortened(where, 52), kind="row small")
        else:
            picture.text((_LABELS - 10, top + 15), shortened(where, 37), kind="row small", anchor="end")
        _draw_lives(picture, across, row, where, top + (18 if is_narrow else 5))
    return picture


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a long name: names differ at the end."""
    if len(text) <= most:
        return text
    return f"{text[: most // 3]}…{text[-(most - most // 3 - 1) :]}"


def _description(rows: Sequence[Row]) -> str:
    ended = sum(1 for row in rows for life in row["lives"] if life["reason"] is not None)
    return f"{len(rows)} brokers; {ended} of their lives ended. The same is in the table of intervals."


def _draw_axis(picture: Picture, across: Scale, height: int, *, most: int) -> None:
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
        begin, last_ok, end = (across.at(life[key]) for key in ("from_ms", "last_ok_ms", "to_ms"))
        is_open = life["reason"] is None
        alive_until = end if is_open else last_ok
        picture.box((begin, top), (alive_until - begin, _BAR), kind="alive", tip=f"{where}: {_alive(life)}")
        if not is_open:
            size = max(end - last_ok, _LEAST_TAIL), _BAR
            picture.box((last_ok, top), size, kind="stale", tip=f"{where}: {_stale(life)}")


def _alive(life: Row) -> str:
    if life["reason"] is None:
        return f"alive since {shown_moment(life['from_ms'])}, to the end of the log"
    return f"alive from {shown_moment(life['from_ms'])} to {shown_moment(life['last_ok_ms'])}"


def _stale(life: Row) -> str:
    lasted = shown_duration(life["to_ms"] - life["last_ok_ms"])
    return f"last heard {shown_moment(life['last_ok_ms'])}, removed {lasted} later ({life['reason']})"
