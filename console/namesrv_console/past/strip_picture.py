"""The heartbeat strip of a broker as a separate picture, which a page shows as soon as the logs are read."""

from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from namesrv_client.ctl.output import counted
from namesrv_console.past.timeline_rows import Cell, cells, place
from namesrv_runtime.log import printable
from namesrv_spark_jobs.history.model import STRIP_BINS, Strip, StripRow
from namesrv_spark_jobs.history.spans import tick_texts, written

# Colours that differ on a light page as well as on a dark one.
_COLOURS: Final = {"regular": "#3a9a63", "late": "#c98a1b", "overdue": "#d2453a", "removed": "#d2453a"}
_WORDS: Final = "#7b858c"
_ROW_HEIGHT: Final = 34
_BAR_HEIGHT: Final = 14


def strip_picture(strip: Strip) -> str:
    """An SVG without script or style, as the Content-Security-Policy requires."""
    height = _ROW_HEIGHT * max(1, len(strip.rows)) + 18
    lines = [line for number, row in enumerate(strip.rows) for line in _row(strip, row, number * _ROW_HEIGHT)]
    if not lines:
        lines = [_text(0, 14, "no heartbeat")]
    lines += [_text(place(at, strip.span), height - 4, text) for at, text in tick_texts(strip.span)]
    says = "; ".join(_summary(strip, row) for row in strip.rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" role="img" '
        f'aria-label={quoteattr(printable(says))} font-family="sans-serif" font-size="11">{"".join(lines)}</svg>\n'
    )


def _row(strip: Strip, row: StripRow, y: int) -> Iterator[str]:
    yield _text(0, y + 12, f"{_name(row)} {row.broker.broker_addr}")
    for cell in cells(strip, row):
        if cell.kind in _COLOURS:
            yield (
                f'<rect x="{cell.x}%" y="{y + 16}" width="{0.9 * 100 / STRIP_BINS:.3f}%" height="{_BAR_HEIGHT}" '
                f'fill="{_COLOURS[cell.kind]}"><title>{escape(_title(cell))}</title></rect>'
            )


def _title(cell: Cell) -> str:
    heartbeats, longest = (cell.bin.heartbeats, cell.bin.longest_ms / 1000) if cell.bin else (0, 0)
    removed = f", removed ({cell.bin.reason or 'reason unknown'})" if cell.bin and cell.kind == "removed" else ""
    received = counted(heartbeats, "heartbeat")
    return f"{written(cell.from_ms, precise=False)}: {received}, longest silence {longest:.1f} s{removed}"


def _summary(strip: Strip, row: StripRow) -> str:
    kinds = [cell.kind for cell in cells(strip, row)]
    return f"{_name(row)}: " + ", ".join(f"{kinds.count(kind)} {kind}" for kind in (*_COLOURS, "none"))


def _name(row: StripRow) -> str:
    return f"{row.broker} on {row.nameserver}"


def _text(x: float, y: int, text: str) -> str:
    return f'<text x="{x}%" y="{y}" fill="{_WORDS}">{escape(printable(text))}</text>'
