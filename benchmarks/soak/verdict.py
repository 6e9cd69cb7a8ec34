"""What a soak found: samples of a server at rest, how they grow, and the bounds."""

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

_MIB: Final = 1024 * 1024
# Memory is judged by its slope, which means nothing in half an hour: caches fill, and the allocator settles.
LEAST_SLOPE_SECONDS: Final = 2700.0
# the first part of the samples is the warm-up
_WARM_UP_SHARE: Final = 0.4
MOST_MIB_PER_HOUR: Final = 1.0
# Descriptors and tasks that come and go by themselves: a file of the log that is just closed, a client that changes its
# connection, the scrape.
SLACK: Final = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """A server at rest: all brokers and clients are there, and no stranger."""

    # since the beginning
    seconds: float
    resident_bytes: float
    # of Python's own allocator: every object that is kept is one, and unlike pages they are given back
    blocks: float
    descriptors: float
    tasks: float

    def members(self) -> dict[str, float]:
        """By their names."""
        return asdict(self)


@dataclass(slots=True)
class Found:
    """All that a soak observes."""

    samples: list[Sample] = field(default_factory=list)
    # where the tables, or the routes of a client, are not the truth, in words
    untrue: list[str] = field(default_factory=list)
    # warnings and errors in the server's log that nothing here explains, and lines that are no log lines
    unexpected: list[str] = field(default_factory=list)
    # Number of changes, by name.
    done: dict[str, int] = field(default_factory=dict)
    exit_code: int | None = None
    # memory of the requests that a server remembers
    remembered_bytes: float = 0.0

    def warm(self) -> list[Sample]:
        """The samples after the warm-up, at least the last two."""
        return self.samples[min(int(len(self.samples) * _WARM_UP_SHARE), max(0, len(self.samples) - 2)) :]

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        warm = self.warm()
        return {
            "seconds": round(self.samples[-1].seconds) if self.samples else 0,
            "samples": len(self.samples),
            "rss_mib": round(warm[-1].resident_bytes / _MIB, 1) if warm else None,
            "remembered_mib": round(self.remembered_bytes / _MIB, 1),
            "rss_mib_per_hour": _rounded(slope(warm, lambda sample: sample.resident_bytes / _MIB)),
            "blocks_per_hour": _rounded(slope(warm, lambda sample: sample.blocks)),
            "descriptors_grown": grown(warm, lambda sample: sample.descriptors),
            "tasks_grown": grown(warm, lambda sample: sample.tasks),
            "unexpected_log_lines": len(self.unexpected),
            "untrue_tables": len(self.untrue),
            "exit_code": self.exit_code,
            "done": dict(sorted(self.done.items())),
        }

    def missed(self) -> list[str]:
        """The bounds that are broken, in words."""
        figures, warm = self.figures(), self.warm()
        is_long = bool(warm) and warm[-1].seconds - warm[0].seconds >= LEAST_SLOPE_SECONDS * (1 - _WARM_UP_SHARE)
        bounds = {
            "no sample": not self.samples,
            f"memory grows by more than {MOST_MIB_PER_HOUR:g} MiB/h": is_long
            and figures["rss_mib_per_hour"] > MOST_MIB_PER_HOUR,
            f"more than {SLACK} descriptors left": figures["descriptors_grown"] > SLACK,
            f"more than {SLACK} tasks left": figures["tasks_grown"] > SLACK,
            "unexpected log lines": bool(self.unexpected),
            "the tables are not the truth": bool(self.untrue),
            f"exit code {self.exit_code}": self.exit_code != 0,
        }
        return [bound for bound, is_broken in bounds.items() if is_broken]


def slope(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """Growth per hour: the median of the slopes of all pairs, which a single outlier does not move."""
    slopes = [
        (value(after) - value(before)) / (after.seconds - before.seconds)
        for before, after in itertools.combinations(samples, 2)
    ]
    return 3600 * statistics.median(slopes) if slopes else 0.0


def grown(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """By how much the later half exceeds the earlier one, in the middle."""
    half = len(samples) // 2
    earlier, later = samples[:half], samples[half:]
    return statistics.median(map(value, later)) - statistics.median(map(value, earlier)) if earlier else 0.0


def _rounded(number: float) -> float:
    return round(number, 2)
