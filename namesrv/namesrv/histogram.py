"""Histogram that needs no object per value."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

# for waits: from what nobody notices to what breaks things
WAIT_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Histogram:
    """Counts by upper bound, and their sum; cheap enough for whatever happens often."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        # a value belongs to the first bound that is not below it
        self.bounds = tuple(bounds)
        # one for each bound, and one for what is above the last
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def __repr__(self) -> str:
        return f"<Histogram [{self.count} values | sum {self.sum:g}]>"
