"""Is the report good enough? What --fail-if and --max-bad-ratio say."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from namesrv_spark_jobs.command.measures import COUNTS, DURATIONS, measured
from namesrv_spark_jobs.times import duration_ms, shown_duration

_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_GATE: Final = re.compile(r"\s*(?P<measure>[a-z_0-9.]+)\s*(?P<comparison>>=|<=|>|<)\s*(?P<limit>[\w.\s]+?)\s*")


@dataclass(frozen=True)
class Gate:
    """One condition under which the run fails, such as `client.p95>2m`."""

    # as it was written
    text: str
    measure: str
    comparison: str
    # milliseconds, or a count
    limit: float


@dataclass(frozen=True)
class Verdict:
    """What a gate found."""

    gate: str
    failed: bool
    # one line for people
    says: str


def parse_gate(text: str) -> Gate:
    """Read one --fail-if.

    Raises:
        ValueError: it is none, with what is wrong.
    """
    match = _GATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no condition; say MEASURE>LIMIT, as in p99>45 or false>0")
    name = _full_name(match["measure"])
    if name in DURATIONS:
        limit = duration_ms(match["limit"])
    elif name in COUNTS:
        limit = _count(match["limit"], text)
    else:
        raise ValueError(f"{match['measure']!r} is no measure; there are {', '.join([*DURATIONS, *COUNTS])}")
    return Gate(text=text.strip(), measure=name, comparison=match["comparison"], limit=limit)


def _full_name(measure: str) -> str:
    """`p99` is the registry's."""
    known = measure.replace("p999", "p99.9")
    return f"registry.{known}" if f"registry.{known}" in DURATIONS else known


def _count(limit: str, text: str) -> float:
    try:
        return float(limit)
    except ValueError:
        raise ValueError(f"{text!r}: {limit!r} is no number") from None


def judge(summary: Mapping[str, Any], gates: Iterable[Gate], max_bad_ratio: float | None) -> list[Verdict]:
    """What every gate says about these numbers."""
    verdicts = [_judge(gate, measured(summary, gate.measure)) for gate in gates]
    return verdicts if max_bad_ratio is None else [*verdicts, _bad_ratio(summary, max_bad_ratio)]


def _judge(gate: Gate, value: float | None) -> Verdict:
    if value is None:
        return Verdict(gate.text, failed=False, says=f"{gate.text}: nothing to measure")
    failed = _COMPARISONS[gate.comparison](value, gate.limit)
    shown = f"{value / 1000:g} s ({shown_duration(value)})" if gate.measure in DURATIONS else f"{value:g}"
    return Verdict(gate.text, failed=failed, says=f"{gate.text}: {gate.measure} is {shown}")


def _bad_ratio(summary: Mapping[str, Any], limit: float) -> Verdict:
    lines, bad = measured(summary, "lines") or 0, measured(summary, "bad") or 0
    ratio = bad / lines if lines else 0.0
    text = f"max-bad-ratio {limit:g}"
    return Verdict(text, failed=ratio > limit, says=f"{text}: {bad:g} of {lines:g} lines are bad ({ratio:.4%})")
