"""A measured figure: its median, its spread and its target."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

Unit = Literal[
    "times", "percent", "count", "per_second", "seconds", "milliseconds", "microseconds", "megabytes", "kibibytes"
]
Sign = Literal[">=", "<="]

# unit -> how a value is written, and what stands behind it
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
    """Where a figure should be."""

    sign: Sign
    bound: float

    def is_met(self, value: float) -> bool:
        """Whether the value is on the right side; the bound itself is."""
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

    # for programs: the name stays when the wording changes
    name: str
    what: str
    unit: Unit
    # one of each round; never empty
    values: Sequence[float]
    target: Target | None = None
    # The absolute figures behind a ratio, of this machine and this minute.
    behind: str = ""
    # heading of a column: figures of one section with the same `what` are one row of a page
    column: str = ""

    @property
    def label(self) -> str:
        """What was measured, with the column."""
        return f"{self.what}: {self.column}" if self.column else self.what

    @property
    def value(self) -> float:
        """The middle round: other work on the machine in one of five does not move it."""
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


def figure_of(members: Mapping[str, Any]) -> Figure:
    """The figure of `Figure.members`, read from JSON."""
    given = {name: members[name] for name in ("name", "what", "unit", "values", "behind")}
    return Figure(**given, target=members["target"] and Target(**members["target"]), column=members.get("column", ""))


# -- figures that are made from others --------------------------------------------------------------------------------


def ratios(subject: Iterable[float], reference: Iterable[float]) -> tuple[float, ...]:
    """Round by round, how many times the reference the subject is.

    Of two things measured in turn the neighbours are compared: the machine was most alike then.

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
    """The ratio of two samples in that unit, of the subject and of its reference, with both medians behind it."""
    subject, reference = samples
    return Figure(name, what, "times", ratios(subject, reference), target, medians(unit, subject, reference))


def none_of(name: str, what: str, count: float, behind: str = "") -> Figure:
    """The count of something that must not happen."""
    return Figure(name, what, "count", (count,), at_most(0), behind)


def percentile(values: Iterable[float], part: float) -> float:
    """The smallest value that this part of all does not exceed; 0 of no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0


def latest(  # noqa: PLR0913 - a figure has so many fields
    name: str, what: str, unit: Unit, values: Sequence[float], *, target: Target, part: float = 1.0
) -> Figure:
    """What this part of all values does not exceed, with their middle and their greatest behind it."""
    middle, greatest = (spelt(percentile(values, each), unit) for each in (0.5, 1.0))
    behind = f"p50 {middle}, max {greatest}, of {len(values):,}"
    return Figure(name, what, unit, (percentile(values, part),), target, behind)


# -- as people read them ----------------------------------------------------------------------------------------------


def spelt(value: float, unit: Unit) -> str:
    """A value with its unit."""
    number, behind = _FORMATS[unit]
    return number.format(value) + behind


def medians(unit: Unit, *samples: Sequence[float]) -> str:
    """The median of each sample, which a ratio is made of."""
    return " / ".join(spelt(statistics.median(sample), unit) for sample in samples)


def spelt_spread(values: Sequence[float], unit: Unit) -> str:
    """The lowest and the highest round; empty when there was one."""
    if len(values) < 2:
        return ""
    number, _ = _FORMATS[unit]
    return f"{number.format(min(values))}-{number.format(max(values))}"


def spelt_target(target: Target | None, unit: Unit) -> str:
    """A target without needless zeros."""
    if target is None:
        return ""
    _, behind = _FORMATS[unit]
    return f"{target.sign} {target.bound:,g}{behind}"
