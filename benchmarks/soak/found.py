"""What a soak observed, and the figures and bounds that follow from it."""

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.harness.figures import Figure, at_most, none_of, spelt

# Memory is judged by its slope, which means nothing in half an hour: caches fill, and the allocator settles.
_LEAST_SLOPE_SECONDS: Final = 2700.0
# the first part of the samples is the warm-up
_WARM_UP_SHARE: Final = 0.4
_MOST_MB_PER_HOUR: Final = 1.048576
# Descriptors and tasks that come and go by themselves: a file of the log that is just closed, a client that changes its
# connection, the scrape.
_SLACK: Final = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """A server at rest: all brokers and clients are there, and no stranger."""

    # since the beginning
    seconds: float
    resident_bytes: float
    descriptors: float
    tasks: float


@dataclass(slots=True)
class Found:
    """All that a soak observes."""

    samples: list[Sample] = field(default_factory=list)
    # Differences between the truth and the tables or the routes of clients, in words.
    untrue: list[str] = field(default_factory=list)
    # Warnings, errors and tracebacks in the server's log that no fault of the soak explains.
    unexpected: list[str] = field(default_factory=list)
    # Number of changes and faults, by name.
    done: Counter[str] = field(default_factory=Counter)
    exit_code: int | None = None

    def figures(self) -> list[Figure]:
        """The figures with their bounds."""
        # At least the last two samples.
        first = min(int(len(self.samples) * _WARM_UP_SHARE), max(0, len(self.samples) - 2))
        warm = self.samples[first:]
        is_long = self.samples[-1].seconds >= _LEAST_SLOPE_SECONDS if self.samples else False
        resident = spelt(warm[-1].resident_bytes / 1e6, "megabytes") if warm else "no sample"
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
