"""Policies of eviction: deadlines, and the scans that look at them."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Protocol

from tests.spark_jobs.reference.boots import Boot
from tests.spark_jobs.reference.lines import Line

# before that many gaps are known, the phi policy goes by the logged expiry
FIRST_GAPS = 10
# of the mean; what is as regular as a clock would have no deviation at all
LEAST_DEVIATION = 10
# of the logistic approximation of the normal distribution
LOGISTIC_LINEAR, LOGISTIC_CUBIC = 1.5976, 0.070566


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps of a life so far, as much of them as a policy needs: how many, their sum, and that of their squares."""

    count: int = 0
    total: int = 0
    squares: int = 0

    def and_one(self, gap: int) -> "Gaps":
        """With one more."""
        return Gaps(self.count + 1, self.total + gap, self.squares + gap * gap)

    @property
    def mean(self) -> float:
        """Of them all; there is one."""
        return self.total / self.count

    @property
    def deviation(self) -> float:
        """That of a population; from whole numbers, so that nothing is lost."""
        return math.sqrt(self.count * self.squares - self.total * self.total) / self.count


class Policy(Protocol):
    """When a broker that is not heard any more is evicted; all in liveness time."""

    def deadline(self, boot: Boot, beat: Line, earlier: Gaps) -> float | None:
        """Until when it may be silent after this beat; None when nothing says so."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """So long after each beat. None: what each beat says."""

    expiry: int | None = None

    def deadline(self, boot: Boot, beat: Line, _earlier: Gaps) -> float | None:
        """Who asked for a time of its own keeps it."""
        said = beat.time("expiry_ms")
        if said is None:
            return None
        is_usual = said == boot.expiry
        return boot.live[beat.seq] + (self.expiry if self.expiry is not None and is_usual else said)


@dataclass(frozen=True)
class Phi:
    """An accrual detector: so long that, going by the gaps so far, it would be a surprise of this threshold."""

    threshold: float

    @cached_property
    def deviations(self) -> float:
        """How many deviations over the mean that is: where the logistic curve meets the threshold."""
        wanted = math.log(math.pow(10.0, self.threshold) - 1)
        low, high = -100.0, 100.0
        while low < (middle := (low + high) / 2) < high:
            if middle * (LOGISTIC_LINEAR + LOGISTIC_CUBIC * middle * middle) < wanted:
                low = middle
            else:
                high = middle
        return low

    def deadline(self, boot: Boot, beat: Line, earlier: Gaps) -> float | None:
        """Mean and deviation are those of all gaps of this life so far."""
        if earlier.count < FIRST_GAPS:
            return Fixed().deadline(boot, beat, earlier)
        deviation = max(earlier.deviation, earlier.mean / LEAST_DEVIATION)
        return boot.live[beat.seq] + earlier.mean + self.deviations * deviation


@dataclass(frozen=True, slots=True)
class Scan:
    """One look at all deadlines, in liveness time."""

    at: int
    # as logged
    number: int | None = None


class Scans(Protocol):
    """The moments at which deadlines are looked at, in liveness time."""

    def first_after(self, deadline: float, key: tuple[str, str]) -> Scan | None:
        """The first one strictly after a deadline that counts for this broker; None when there is none."""
        ...


class EvenScans:
    """One after every interval since the boot's start, until its last line."""

    def __init__(self, boot: Boot, interval: int) -> None:
        self._start = boot.live[next(iter(boot.of("start") or boot.of("scan") or boot.lines)).seq]
        self._end = boot.live[boot.last.seq]
        self._interval = interval

    def first_after(self, deadline: float, _key: tuple[str, str]) -> Scan | None:
        """The end counts still."""
        number = max(0, math.floor((deadline - self._start) / self._interval) + 1)
        scan = self._start + number * self._interval
        return Scan(scan) if scan <= self._end else None


class LoggedScans:
    """Those of the log, without those whose finding was given up."""

    def __init__(self, boot: Boot) -> None:
        self._boot = boot
        self._fenced = {
            (line.get("cluster"), line.get("broker_addr"), line.get("scan"))
            for line in boot.of("fenced")
            if line.get("reason") == "silent"
        }
        # liveness time never runs backwards, but a log may say anything
        self._scans = sorted(boot.of("scan"), key=lambda line: (boot.live[line.seq], line))
        self._times = [boot.live[line.seq] for line in self._scans]

    def first_after(self, deadline: float, key: tuple[str, str]) -> Scan | None:
        """The number is the line's."""
        later = islice(self._scans, bisect_right(self._times, deadline), None)
        line = next((scan for scan in later if (*key, scan.get("scan")) not in self._fenced), None)
        return None if line is None else Scan(self._boot.live[line.seq], line.get("scan"))
