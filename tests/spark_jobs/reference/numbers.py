"""Times: how they are counted, rounded and summed up.

Times are whole microseconds, so that nothing is lost when they are added and compared.
"""

import math
from collections.abc import Sequence

MICROSECONDS = 1000


def microseconds(milliseconds: float) -> int:
    """A time of the log, which has at most three decimals."""
    return round(milliseconds * MICROSECONDS)


def milliseconds(time: int) -> float:
    """The same time as the log would write it."""
    return time / MICROSECONDS


def whole(value: float) -> int:
    """The nearest whole number, halves up."""
    return math.floor(value + 0.5)


def whole_milliseconds(time: float) -> int:
    """A time as reports have it, halves up."""
    return int((time + 500) // MICROSECONDS)


def lower_median(values: Sequence[int]) -> int:
    """The one in the middle; the lower of two."""
    return sorted(values)[(len(values) - 1) // 2]


def percentile(values: Sequence[float], part: float) -> float:
    """The value at `part` of the way, linear between neighbours; values are sorted, and there is one."""
    position = part * (len(values) - 1)
    below, above = math.floor(position), math.ceil(position)
    if below == above:
        return values[below]
    # both weights by subtraction, as Spark has it: the last bit decides on which side of a half it falls
    return (above - position) * values[below] + (position - below) * values[above]
