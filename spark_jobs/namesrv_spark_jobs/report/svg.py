"""SVG drawings for the page, and the axes they are drawn on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Final

from namesrv_spark_jobs.report.shown import printable

# a screen and a phone: a picture that is only made smaller has letters that nobody can read
WIDE: Final = 920
NARROW: Final = 380

# round numbers of milliseconds, as people say them
_DURATIONS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 20_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 1_800_000),
    *(3_600_000, 7_200_000, 21_600_000, 43_200_000),
    *(86_400_000, 172_800_000, 604_800_000, 2_592_000_000),
)
# for clocks: seconds to weeks
_STEPS: Final = (
    *(1_000, 2_000, 5_000, 10_000, 15_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000),
    *(3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000),
    *(86_400_000, 172_800_000, 604_800_000, 1_209_600_000, 2_592_000_000),
)


def number(value: float) -> str:
    """A coordinate: one decimal is finer than any screen."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


# left, top, right, bottom
Box = tuple[float, float, float, float]
# of a letter of a label, at most: bold ones of DejaVu are wide
_LETTER: Final = 9.0


@dataclass
class Picture:
    """A drawing of this size; text in it is always escaped, colours are the page's, by class."""

    width: int
    height: int
    # what it shows, and what is to be seen in it: for those who cannot see it
    title: str
    description: str
    parts: list[str] = field(default_factory=list)

    def line(self, start: tuple[float, float], end: tuple[float, float], *, kind: str) -> None:
        """A straight line."""
        (x1, y1), (x2, y2) = start, end
        self.parts.append(
            f'<line class="{escape(kind)}" x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"/>'
        )

    def box(self, corner: tuple[float, float], size: tuple[float, float], *, kind: str, tip: str = "") -> None:
        """A rectangle, at least half a unit wide and high, so that it can be seen."""
        (x, y), (width, height) = corner, size
        self.parts.append(
            f'<rect class="{escape(kind)}" x="{number(x)}" y="{number(y)}" width="{number(max(width, 0.5))}"'
            f' height="{number(max(height, 0.5))}" rx="1.5">{_tip(tip)}</rect>'
        )

    def dot(self, centre: tuple[float, float], radius: float, *, kind: str, tip: str = "") -> None:
        """A circle."""
        self.parts.append(
            f'<circle class="{escape(kind)}" cx="{number(centre[0])}" cy="{number(centre[1])}"'
            f' r="{number(radius)}">{_tip(tip)}</circle>'
        )

    def curve(self, points: Sequence[tuple[float, float]], *, kind: str) -> None:
        """Straight lines from point to point."""
        path = "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.parts.append(f'<path class="{escape(kind)}" d="M{path}"/>')

    def text(self, at: tuple[float, float], words: str, *, kind: str = "label", anchor: str = "start") -> None:
        """Words, beginning, centred (`middle`) or ending (`end`) there."""
        self.parts.append(
            f'<text class="{escape(kind)}" x="{number(at[0])}" y="{number(at[1])}"'
            f' text-anchor="{escape(anchor)}">{_text(words)}</text>'
        )

    def label(
        self, words: str, places: Sequence[tuple[tuple[float, float], str]], taken: list[Box], *, kind: str
    ) -> None:
        """Words at the first of these places (point and anchor) where nothing else stands; nowhere if there is none."""
        length = len(words) * _LETTER
        for (x, y), anchor in places:
            left = x - length if anchor == "end" else x
            box = (left, y - 12, left + length, y + 4)
            is_free = all(box[2] <= t[0] or t[2] <= box[0] or box[3] <= t[1] or t[3] <= box[1] for t in taken)
            if is_free and left >= 0 and box[2] <= self.width:
                taken.append(box)
                self.text((x, y), words, kind=kind, anchor=anchor)
                return

    def render(self, name: str, *, kind: str) -> str:
        """The element; `name` is unique in the page."""
        ids = f"{name}-title", f"{name}-description"
        return (
            f'<svg class="{escape(kind)}" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
            f' role="img" aria-labelledby="{escape(ids[0])} {escape(ids[1])}">'
            f'<title id="{escape(ids[0])}">{_text(self.title)}</title>'
            f'<desc id="{escape(ids[1])}">{_text(self.description)}</desc>'
            f"{''.join(self.parts)}</svg>"
        )


def _tip(tip: str) -> str:
    """What a browser shows under the pointer."""
    return f"<title>{_text(tip)}</title>" if tip else ""


def _text(words: str) -> str:
    return escape(printable(words))


@dataclass(frozen=True)
class Scale:
    """From values in [low, high] to places in [start, end]."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """The place of a value; what is outside lies on the edge."""
        value = min(max(value, self.low), self.high)
        low, high = self._turn(self.low), self._turn(self.high)
        share = (self._turn(value) - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def _turn(self, value: float) -> float:
        return math.log(max(value, 1e-9)) if self.logarithmic else value


def duration_ticks(scale: Scale, *, apart: float) -> list[int]:
    """Round durations on a logarithmic axis, at least so far apart."""
    ticks: list[int] = []
    for value in _DURATIONS:
        if scale.low <= value <= scale.high and (not ticks or abs(scale.at(value) - scale.at(ticks[-1])) >= apart):
            ticks.append(value)
    return ticks


def duration_floor(value: float) -> int:
    """The next round duration at or below."""
    return max((tick for tick in _DURATIONS if tick <= value), default=_DURATIONS[0])


def duration_ceiling(value: float) -> int:
    """The next round duration at or above."""
    return min((tick for tick in _DURATIONS if tick >= value), default=math.ceil(value))


def duration_name(ms: float) -> str:
    """A round duration, as it is written on an axis."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:g} {unit}"
    return f"{ms:g} ms"


def clock_ticks(low: int, high: int, most: int) -> tuple[list[int], int]:
    """Round moments between two, in milliseconds, and the step between them."""
    step = next((step for step in _STEPS if (high - low) / step <= most), _STEPS[-1])
    first = -(-low // step) * step
    return list(range(first, high + 1, step)), step


def count_ticks(high: float, most: int) -> list[int]:
    """Round whole numbers from 0 to beyond `high`, or to it."""
    rough = max(high, 1) / most
    power = 10 ** math.floor(math.log10(rough)) if rough >= 1 else 1
    step = next(int(power * factor) for factor in (1, 2, 5, 10) if power * factor >= rough)
    return list(range(0, math.ceil(max(high, 1) / step) * step + 1, step))


def apart(wanted: list[float], distance: float, low: float, high: float) -> list[float]:
    """Places for labels, in the given (rising) order, near where they are wanted and not over each other."""
    placed: list[float] = []
    for place in wanted:
        placed.append(max(place, placed[-1] + distance) if placed else max(place, low))
    if placed and placed[-1] > high:
        placed[-1] = high
        for index in range(len(placed) - 2, -1, -1):
            placed[index] = min(placed[index], placed[index + 1] - distance)
    assert all(after >= before for before, after in pairwise(placed))  # noqa: S101  # says what the loop does
    return placed
