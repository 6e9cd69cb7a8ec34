"""A histogram with fixed bounds, which allocates nothing per value."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

# bounds for waits, in seconds: from unnoticeable to harmful
WAIT_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Histogram:
    """Counts of values by upper bound, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        # upper bounds, inclusive
        self.bounds = tuple(bounds)
        # the count of each bound, and the count above the last bound
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def __repr__(self) -> str:
        return f"<Histogram [{self.count} values | sum {self.sum:g}]>"
