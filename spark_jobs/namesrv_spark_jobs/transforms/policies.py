"""By when has a broker to be heard again, and which scan looks at it first?"""

import math
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

# before that many gaps are known, the accrual detector goes by the logged expiry
EARLIEST_GAPS: Final = 10
# of the mean, the least deviation: what is as regular as a clock would have none
_LEAST_DEVIATION: Final = 10
# of the logistic approximation of the normal distribution
_LINEAR, _CUBIC = 1.5976, 0.070566


def next_tick(deadline: Column, scan: Column) -> Column:
    """The first scan strictly after a deadline, with one each `scan` since `start_live`; null without one."""
    since = deadline - F.col("start_live")
    # greatest takes no notice of null
    return F.when(deadline.isNotNull(), F.greatest(deadline - F.pmod(since, scan) + scan, F.col("start_live")))


def deviations(threshold: float) -> float:
    """How many deviations over its mean a gap has to be for a threshold of the accrual detector."""
    wanted = math.log(math.pow(10.0, threshold) - 1)
    low, high = -100.0, 100.0
    while low < (middle := (low + high) / 2) < high:
        if middle * (_LINEAR + _CUBIC * middle * middle) < wanted:
            low = middle
        else:
            high = middle
    return low


def phi_deadline(y: Column) -> Column:
    """The deadline of the accrual detector, once there are enough gaps; rounded down, as no scan is in between."""
    count = F.col("earlier")
    mean = (F.col("live") - F.col("born")) / count
    variance = F.greatest((F.col("squares") - F.col("squares_born")) / count - mean * mean, F.lit(0.0))
    away = mean + y * F.greatest(F.sqrt(variance), mean / _LEAST_DEVIATION)
    return F.col("live") + F.floor(away)
