"""The heartbeat strip of a broker as a separate picture, which a page shows as soon as the logs are read."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from namesrv_console.past.timeline_rows import Cell, cells, removal_of, ticks
from namesrv_runtime.log import printable
from namesrv_spark_jobs.history.model import STRIP_BINS, Strip, StripRow
from namesrv_spark_jobs.history.spans import written

# Colours that differ on a light page as well as on a dark one.
_COLOURS: Final = {"regular": "#3a9a63", "late": "#c98a1b", "overdue": "#d2453a", "removed": "#d2453a"}
_WORDS: Final = "#7b858c"
_ROW_HEIGHT: Final = 34
_BAR_HEIGHT: Final = 14
_LINE_HEIGHT: Final = 16


def strip_picture(strip: Strip, t: Callable[..., str], *, label: str, remarks: Sequence[str] = ()) -> str:
    """An SVG without script or style, as the Content-Security-Policy requires; `t` returns texts by their keys.

    `remarks` are lines below the picture.
    """
    axis_y = _ROW_HEIGHT * max(1, len(strip.rows)) + 14
    height = axis_y + 4 + _LINE_HEIGHT * len(remarks)
    lines = [line for number, row in enumerate(strip.rows) for line in _row(strip, row, number * _ROW_HEIGHT, t)]
    if not lines:
        lines = [_text(0, 14, t("past.no_heartbeat"))]
    lines += [_text(tick.x, axis_y, tick.text, tick.anchor) for tick in ticks(strip.span)]
    lines += [_text(0, axis_y + _LINE_HEIGHT * number, remark) for number, remark in enumerate(remarks, 1)]
    spoken = quoteattr(printable(". ".join((label, *remarks))))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" role="img" '
        f'aria-label={spoken} font-family="sans-serif" font-size="11">{"".join(lines)}</svg>\n'
    )


def _row(strip: Strip, row: StripRow, y: int, t: Callable[..., str]) -> Iterator[str]:
    name = t("past.strip_row", broker=str(row.broker), server=row.nameserver, address=row.broker.broker_addr)
    yield _text(0, y + 12, name)
    for cell in cells(strip, row):
        if cell.kind in _COLOURS:
            yield (
                f'<rect x="{cell.x}%" y="{y + 16}" width="{0.9 * 100 / STRIP_BINS:.3f}%" height="{_BAR_HEIGHT}" '
                f'fill="{_COLOURS[cell.kind]}"><title>{escape(_title(cell, t))}</title></rect>'
            )


def _title(cell: Cell, t: Callable[..., str]) -> str:
    heartbeats, longest_ms = (cell.bin.heartbeats, cell.bin.longest_ms) if cell.bin else (0, 0)
    at, seconds = written(cell.from_ms, precise=False), f"{longest_ms / 1000:.1f}"
    title = t("past.strip_cell", at=at, heartbeats=heartbeats, seconds=seconds)
    if cell.bin is None or cell.kind != "removed":
        return title
    return t("past.strip_removal", cell=title, removal=t(f"past.{removal_of(cell.bin.reason)}"))


def _text(x: float, y: int, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}%" y="{y}" text-anchor="{anchor}" fill="{_WORDS}">{escape(printable(text))}</text>'
