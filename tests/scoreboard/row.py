"""A row of the scoreboard: a promise, its target, and the experiment that gives its figures."""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from benchmarks.figures import Figure, Target, Unit, spelt


@dataclass(frozen=True, slots=True)
class Row:
    """What is measured, how, and how much of it."""

    what: str
    target: str
    # how it is measured here; {size} is how much of it
    how: str
    # runs the experiment at that size; raises BenchError when it cannot
    measure: Callable[[int], Sequence[Figure]]
    size: int
    _: KW_ONLY
    # the size in the short form; None: it is not part of it
    short: int | None = None
    # a busy machine makes its figures worse
    is_timed: bool = False
    # takes so long that it runs only when it is named
    is_long: bool = False
    # why its target is missed; shown while it is
    why: str = ""


def none_of(name: str, what: str, count: int, behind: str = "") -> Figure:
    """Something of which there must be none."""
    return Figure(name, what, "count", (count,), Target("<=", 0), behind)


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that this part of all does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def latest(name: str, what: str, values: Sequence[float], unit: Unit, part: float, target: Target) -> Figure:
    """What this part of all values does not exceed, with their middle and their greatest behind it."""
    middle, greatest = (spelt(percentile(values, each), unit) for each in (0.5, 1.0))
    behind = f"p50 {middle}, max {greatest}, of {len(values):,}"
    return Figure(name, what, unit, (percentile(values, part),), target, behind)
