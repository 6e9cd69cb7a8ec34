"""Timeline rows: the position of each bar and mark, in per cent of the width. Pure functions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from namesrv_spark_jobs.history.model import STRIP_BINS, RegistrationPeriod, Run, Strip, StripBin, StripRow, TimelineRow
from namesrv_spark_jobs.history.spans import Span, tick_texts

# Reason of a removal -> the kind of its mark.
_REMOVALS: Final = {
    "silent": "evicted",
    "disconnected": "disconnected",
    "unregistered": "unregistered",
    "superseded": "superseded",
}
# Two bars of one kind that are nearer than this are drawn as one, since no screen shows the gap.
_FINEST: Final = 0.05
# The text of a tick beyond this position, in per cent, ends at the tick: to the right of it, a date would not fit.
_ENDS_BEYOND: Final = 85


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a timeline row, or a moment if its width is 0."""

    # One of registered, late, down, evicted, disconnected, unregistered, superseded, removed, fenced.
    kind: str
    # Position and width in per cent.
    x: float
    width: float
    from_ms: int
    to_ms: int


class Tick(NamedTuple):
    """A tick of the axis above or below timeline rows."""

    # Position in per cent.
    x: float
    text: str
    # Value of SVG's text-anchor: the end of the text that is at the tick.
    anchor: Literal["start", "end"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """One timeline row: bars, from left to right, and marks on top of them."""

    row: TimelineRow
    bars: Sequence[Bar]
    marks: Sequence[Bar]

    @property
    def removals(self) -> list[tuple[str, int]]:
        """Kind and time of each removal, for the label of the row."""
        return [(mark.kind, mark.from_ms) for mark in self.marks if mark.kind != "fenced"]


def drawn(row: TimelineRow, span: Span) -> Drawn:
    """The timeline row of a broker in a span."""
    stretches = [stretch for period in row.periods for stretch in _stretches(period, span)]
    stretches += [("late", silence.from_ms, silence.to_ms) for silence in row.silences]
    marks = [
        (removal_of(period.reason), period.end_ms, period.end_ms) for period in row.periods if period.reason is not None
    ]
    marks += [("fenced", at, at) for at in row.fenced_ms]
    # Late bars are drawn on top of the others.
    order = sorted(_placed(stretches, span), key=lambda bar: (bar.kind == "late", bar.x))
    return Drawn(row, _merged(order), _merged(sorted(_placed(marks, span), key=lambda bar: (bar.kind, bar.x))))


def _stretches(period: RegistrationPeriod, span: Span) -> Iterator[tuple[str, int, int]]:
    """A registered stretch until the next heartbeat was due, then a late one.

    A broker that unregistered, or whose place another one took, was registered until then.
    """
    began = span.from_ms if period.first_ok_ms is None else period.first_ok_ms
    died = min(period.end_ms, period.due_ms) if period.reason in ("silent", "disconnected", None) else period.end_ms
    yield "registered", began, died
    if died < period.end_ms:
        yield "late", died, period.end_ms


def removal_of(reason: str | None) -> str:
    """The kind of a removal: `removed` for a reason that this console does not know."""
    return _REMOVALS.get(reason or "", "removed")


def downtimes(runs: Iterable[Run], nameserver: str, span: Span, *, read_until_ms: int) -> list[Bar]:
    """The stretches in which a server was down: before, between and after its boots, as far as its log was read."""
    own = [run for run in runs if run.nameserver == nameserver]
    up = sorted((run.from_ms, run.to_ms) for run in own)
    if not any(run.up_until_ms >= read_until_ms for run in own):
        end = min(span.to_ms, read_until_ms)
        up.append((end, end))
    down, known = [], span.from_ms
    for began, ended in up:
        if known < began:
            down.append(("down", known, began))
        # A clock that was set back makes boots overlap.
        known = max(known, ended)
    return _merged(_placed(down, span))


def place(at_ms: int, span: Span) -> float:
    """Position of a moment, in per cent of the width."""
    return round(100 * (at_ms - span.from_ms) / span.length_ms, 3)


def ticks(span: Span) -> list[Tick]:
    """The ticks of a span's axis."""
    positions = [(place(at_ms, span), text) for at_ms, text in tick_texts(span)]
    return [Tick(x, text, "end" if x > _ENDS_BEYOND else "start") for x, text in positions]


def _placed(stretches: Iterable[tuple[str, int, int]], span: Span) -> list[Bar]:
    """Bars of the stretches that overlap the span, cut at its ends."""
    found = []
    for kind, began, ended in stretches:
        from_ms, to_ms = max(began, span.from_ms), min(ended, span.to_ms)
        if from_ms < to_ms or (began == ended and began in span):
            x = place(from_ms, span)
            found.append(Bar(kind, x, round(place(to_ms, span) - x, 3), began, ended))
    return found


def _merged(bars: Iterable[Bar]) -> list[Bar]:
    """The bars, with those merged that are too narrow to be seen."""
    found: list[Bar] = []
    for bar in bars:
        last = found[-1] if found else None
        if last and last.kind == bar.kind and _is_fine(last, bar):
            width = round(max(last.x + last.width, bar.x + bar.width) - last.x, 3)
            found[-1] = Bar(bar.kind, last.x, width, last.from_ms, max(last.to_ms, bar.to_ms))
        else:
            found.append(bar)
    return found


def _is_fine(last: Bar, bar: Bar) -> bool:
    return bar.x - (last.x + last.width) < _FINEST and bar.width < _FINEST


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a strip."""

    # A StripKind, or none for a cell without heartbeat.
    kind: str
    bin: StripBin | None
    x: float
    from_ms: int


def cells(strip: Strip, row: StripRow) -> list[Cell]:
    """All cells of a strip's row, also those without a heartbeat."""
    known = {one.number: one for one in row.bins}
    length_ms = strip.span.length_ms / STRIP_BINS
    return [
        Cell(
            found.kind if (found := known.get(number)) else "none",
            found,
            round(100 * number / STRIP_BINS, 3),
            strip.span.from_ms + round(number * length_ms),
        )
        for number in range(STRIP_BINS)
    ]
