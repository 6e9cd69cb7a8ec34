"""Where on an axis does a value lie, and which values are written there?"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

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
