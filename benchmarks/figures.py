"""A measured figure: its median, its spread and its target."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Unit = Literal[
    "times", "percent", "count", "per_second", "seconds", "milliseconds", "microseconds", "megabytes", "kibibytes"
]
Sign = Literal[">=", "<="]

# unit -> how a value is written, and what stands behind it
_SPELLINGS: Final[dict[Unit, tuple[str, str]]] = {
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
    """Something cannot be measured; the message says what and why."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a figure should be."""

    sign: Sign
    bound: float

    def is_met(self, value: float) -> bool:
        """Whether the value is on the right side; the bound itself is."""
        return value >= self.bound if self.sign == ">=" else value <= self.bound


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report."""

    # for programs: it stays when the wording changes
    name: str
    what: str
    unit: Unit
    # one of each round; never empty
    values: tuple[float, ...]
    target: Target | None = None
    # what stands behind a ratio: the absolute figures, of this machine and this minute
    behind: str = ""

    @property
    def value(self) -> float:
        """The middle round: somebody else's work in one of five does not move it."""
        return statistics.median(self.values)

    @property
    def verdict(self) -> Literal["met", "missed", ""]:
        """Whether the target is met; empty when there is none."""
        if self.target is None:
            return ""
        return "met" if self.target.is_met(self.value) else "missed"


def ratios(subject: Iterable[float], reference: Iterable[float]) -> tuple[float, ...]:
    """Round by round, how many times the reference the subject is.

    Of two things measured in turn the neighbours are compared: the machine was most alike then.

    Raises:
        BenchError: a reference is not positive, so that nothing can be said.
    """
    pairs = list(zip(subject, reference, strict=True))
    for _, below in pairs:
        if below <= 0:
            raise BenchError(f"reference {below:g} is not positive")
    return tuple(above / below for above, below in pairs)


def spelt(value: float, unit: Unit) -> str:
    """A value as people read it."""
    number, behind = _SPELLINGS[unit]
    return number.format(value) + behind


def spelt_medians(unit: Unit, *samples: Sequence[float]) -> str:
    """The middle of each sample: what stands behind a ratio."""
    return " / ".join(spelt(statistics.median(sample), unit) for sample in samples)


def spelt_spread(values: Sequence[float], unit: Unit) -> str:
    """From where to where the rounds went; empty when there was one."""
    if len(values) < 2:
        return ""
    number, _ = _SPELLINGS[unit]
    return f"{number.format(min(values))} - {number.format(max(values))}"


def spelt_target(target: Target | None, unit: Unit) -> str:
    """A target as people read it, without zeros that say nothing."""
    if target is None:
        return ""
    _, behind = _SPELLINGS[unit]
    return f"{target.sign} {target.bound:,g}{behind}"
