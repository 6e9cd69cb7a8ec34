"""Measured figures: their values in each round, units and targets."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

Unit = Literal[
    "times", "percent", "count", "per_second", "seconds", "milliseconds", "microseconds", "megabytes", "kibibytes"
]
Sign = Literal[">=", "<="]

# unit -> format of a value, and the text behind the number
_FORMATS: Final[dict[Unit, tuple[str, str]]] = {
    "times": ("{:.2f}", ""),
    "percent": ("{:.2f}", " %"),
    "count": ("{:,.0f}", ""),
    "per_second": ("{:,.0f}", "/s"),
    "seconds": ("{:.2f}", " s"),
    "milliseconds": ("{:.2f}", " ms"),
    "microseconds": ("{:.2f}", " µs"),
    "megabytes": ("{:.1f}", " MB"),
    "kibibytes": ("{:.2f}", " KiB"),
}


class BenchError(Exception):
    """A measurement is impossible; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Target:
    """The bound of a figure."""

    sign: Sign
    bound: float

    def is_met(self, value: float) -> bool:
        """True for a value within the bound; the bound itself meets the target."""
        return value >= self.bound if self.sign == ">=" else value <= self.bound


def at_least(bound: float) -> Target:
    """The target of a figure of which more is better."""
    return Target(">=", bound)


def at_most(bound: float) -> Target:
    """The target of a figure of which less is better."""
    return Target("<=", bound)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a report."""

    # Identifies the figure for programs; `what` is for people, and its wording may change.
    name: str
    what: str
    unit: Unit
    # one value for each round; never empty
    values: Sequence[float]
    target: Target | None = None
    # Further figures that explain the value, such as the absolute values of a ratio.
    details: str = ""
    # Heading of a column; figures of a section with the same `what` are then one row of a table.
    column: str = ""

    @property
    def label(self) -> str:
        """`what` and the column."""
        return f"{self.what}: {self.column}" if self.column else self.what

    @property
    def value(self) -> float:
        """The median of the rounds, which one disturbed round does not change."""
        return statistics.median(self.values)

    @property
    def verdict(self) -> Literal["met", "missed", ""]:
        """Whether the target is met; empty without a target."""
        if self.target is None:
            return ""
        return "met" if self.target.is_met(self.value) else "missed"

    def members(self) -> dict[str, Any]:
        """The figure for JSON, with its value and verdict."""
        return {**asdict(self), "values": list(self.values), "value": self.value, "verdict": self.verdict or None}


class Column:
    """A column of a table: its figures, whose names begin with the same prefix."""

    def __init__(self, prefix: str, heading: str) -> None:
        self._prefix = prefix
        self._heading = heading
        self.figures: list[Figure] = []

    def add(
        self, key: str, what: str, unit: Unit, *values: float, target: Target | None = None, details: str = ""
    ) -> None:
        """Add a figure whose name ends with `key`."""
        self.figures.append(Figure(f"{self._prefix}.{key}", what, unit, values, target, details, self._heading))


# -- figures that are made from others --------------------------------------------------------------------------------


def ratios(subject: Iterable[float], reference: Iterable[float]) -> tuple[float, ...]:
    """Divide the subject by its reference, round by round.

    Values of the same round are compared, because the machine was in the most similar state then.

    Raises:
        BenchError: a reference is not positive.
    """
    pairs = list(zip(subject, reference, strict=True))
    for _, below in pairs:
        if below <= 0:
            raise BenchError(f"reference {below:g} is not positive")
    return tuple(above / below for above, below in pairs)


def compared(
    name: str, what: str, unit: Unit, samples: Sequence[Sequence[float]], target: Target | None = None
) -> Figure:
    """A figure with the ratios of a subject's samples to its reference's, explained by the medians of both."""
    subject, reference = samples
    return Figure(name, what, "times", ratios(subject, reference), target, medians(unit, subject, reference))


def none_of(name: str, what: str, count: float, details: str = "") -> Figure:
    """The count of something that must not happen."""
    return Figure(name, what, "count", (count,), at_most(0), details)


def percentile(values: Iterable[float], part: float) -> float:
    """The smallest value that is at least as large as this share of all values; 0 for no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0


def latest(  # noqa: PLR0913 - a figure has so many fields
    name: str, what: str, unit: Unit, values: Sequence[float], *, target: Target, part: float = 1.0
) -> Figure:
    """A figure with a percentile of the values (by default the largest), explained by their median and maximum."""
    middle, greatest = (format_value(percentile(values, each), unit) for each in (0.5, 1.0))
    details = f"p50 {middle}, max {greatest}, of {len(values):,}"
    return Figure(name, what, unit, (percentile(values, part),), target, details)


# -- text -------------------------------------------------------------------------------------------------------------


def format_value(value: float, unit: Unit) -> str:
    """A value with its unit."""
    number, suffix = _FORMATS[unit]
    return number.format(value) + suffix


def medians(unit: Unit, *samples: Sequence[float]) -> str:
    """The medians of the samples, as text."""
    return " / ".join(format_value(statistics.median(sample), unit) for sample in samples)


def format_spread(values: Sequence[float], unit: Unit) -> str:
    """The lowest and the highest round as text; empty for a single round."""
    if len(values) < 2:
        return ""
    number, _ = _FORMATS[unit]
    return f"{number.format(min(values))}-{number.format(max(values))}"


def format_target(target: Target | None, unit: Unit) -> str:
    """A target as text, without trailing zeros."""
    if target is None:
        return ""
    _, suffix = _FORMATS[unit]
    return f"{target.sign} {target.bound:,g}{suffix}"
