"""Observations of a soak, and the figures with bounds that are made from them."""

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.harness.figures import Figure, at_most, format_value, none_of

# The growth of memory has a bound only in longer soaks: in the first half hour caches and the heap fill.
_LEAST_SLOPE_SECONDS: Final = 2700.0
# share of the samples that is the warm-up, in which caches and the heap fill
_WARM_UP_SHARE: Final = 0.4
_MOST_MB_PER_HOUR: Final = 1.048576
# Descriptors and tasks that exist for a moment, such as a closing log file, a client that changes its connection,
# or the scrape of metrics.
_SLACK: Final = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources of a server at rest, with all brokers and clients and no stranger."""

    # since the start of the soak
    seconds: float
    resident_bytes: float
    descriptors: float
    tasks: float


@dataclass(slots=True)
class Observations:
    """All observations of a soak."""

    samples: list[Sample] = field(default_factory=list)
    # Descriptions of wrong table entries and wrong routes of clients.
    untrue: list[str] = field(default_factory=list)
    # Warnings, errors and tracebacks in the server's log that no fault of the soak explains.
    unexpected: list[str] = field(default_factory=list)
    # Number of changes and faults, by name.
    done: Counter[str] = field(default_factory=Counter)
    exit_code: int | None = None

    def figures(self) -> list[Figure]:
        """The figures of the soak."""
        # Growth needs at least two samples after the warm-up.
        first = min(int(len(self.samples) * _WARM_UP_SHARE), max(0, len(self.samples) - 2))
        warm = self.samples[first:]
        is_long = self.samples[-1].seconds >= _LEAST_SLOPE_SECONDS if self.samples else False
        resident = format_value(warm[-1].resident_bytes / 1e6, "megabytes") if warm else "no sample"
        rate = slope(warm, lambda sample: sample.resident_bytes / 1e6)
        bound = at_most(_MOST_MB_PER_HOUR) if is_long else None
        done = ", ".join(f"{count:,} {name}" for name, count in sorted(self.done.items()))
        descriptors = grown(warm, lambda sample: sample.descriptors)
        tasks = grown(warm, lambda sample: sample.tasks)
        return [
            Figure("soak.memory", "memory grown in an hour", "megabytes", (rate,), bound, f"{resident} in the end"),
            Figure("soak.descriptors", "descriptors left", "count", (descriptors,), at_most(_SLACK)),
            Figure("soak.tasks", "tasks left", "count", (tasks,), at_most(_SLACK)),
            none_of("soak.untrue", "times the tables were wrong", len(self.untrue), done),
            none_of("soak.unexpected", "unexpected log lines", len(self.unexpected)),
            none_of("soak.end", "ends with another exit code than 0", self.exit_code != 0),
        ]


def slope(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """Growth per hour: the median of the slopes of all pairs, which a single outlier does not move."""
    slopes = [
        (value(after) - value(before)) / (after.seconds - before.seconds)
        for before, after in itertools.combinations(samples, 2)
    ]
    return 3600 * statistics.median(slopes) if slopes else 0.0


def grown(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """By how much the median of the later half exceeds that of the earlier half."""
    half = len(samples) // 2
    earlier, later = samples[:half], samples[half:]
    return statistics.median(map(value, later)) - statistics.median(map(value, earlier)) if earlier else 0.0
