"""Gates: what --fail-if and --max-bad-ratio say about the numbers of a summary."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any, Final

from namesrv_spark_jobs.report.shown import shown_duration

Summary = Mapping[str, Any]
# what a duration may end with, in milliseconds; none means seconds
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_DURATION: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h)?")
_STATISTICS: Final = ("p50", "p90", "p95", "p99", "p99.9", "max", "mean")
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_GATE: Final = re.compile(r"\s*(?P<measure>[a-z_0-9.]+)\s*(?P<comparison>>=|<=|>|<)\s*(?P<limit>[\w.\s]+?)\s*")


# where a measure is in the summary; several places are added up
_GROUPS: Final = {"registry": "registry all", "lower": "registry lower", "client": "client all"}
# milliseconds; None when there is nothing to measure
DURATIONS: Final[Mapping[str, Sequence[str]]] = {
    **{f"{name}.{part}": [f"{at} {part.replace('.', '')}"] for name, at in _GROUPS.items() for part in _STATISTICS},
    "divergence.longest": ["divergence longest_ms"],
    "divergence.total": ["divergence total_ms"],
}
COUNTS: Final[Mapping[str, Sequence[str]]] = {
    "evictions": ["registry all count"],
    "over_bound": ["registry over_bound"],
    "false": ["false_evictions count"],
    "near_misses": ["near_misses count"],
    "exposed": ["client exposed"],
    "censored": [f"client censored {outcome}" for outcome in ("returned", "client_gone", "log_end")],
    "exposed_pulls": ["exposed_pulls total"],
    "divergence": ["divergence episodes"],
    "replay": ["as_logged missing", "as_logged extra", "as_logged other_scan"],
    "lines": ["input lines"],
    "bad": ["input bad"],
    "truncated": ["input truncated_files"],
    "duplicates": ["input duplicates"],
    "dropped": ["input dropped_by_writers"],
    "clock_steps": ["input clock_steps"],
}


def measured(summary: Summary, measure: str) -> float | None:
    """The value of a measure: milliseconds or a count."""
    values: list[Any] = [reduce(getitem, place.split(), summary) for place in {**DURATIONS, **COUNTS}[measure]]
    return None if None in values else sum(values)


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
    """Parse one --fail-if; a ValueError says what is wrong."""
    match = _GATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a condition; write MEASURE>LIMIT, for example p99>45 or false>0")
    measure = match["measure"].replace("p999", "p99.9")
    # `p99` is the registry's
    name = f"registry.{measure}" if f"registry.{measure}" in DURATIONS else measure
    if name not in {**DURATIONS, **COUNTS}:
        raise ValueError(f"{match['measure']!r} is not a measure; choose from {', '.join([*DURATIONS, *COUNTS])}")
    try:
        limit = duration_ms(match["limit"]) if name in DURATIONS else float(match["limit"])
    except ValueError as error:
        problem = error if name in DURATIONS else f"{text!r}: {match['limit']!r} is not a number"
        raise ValueError(problem) from None
    return Gate(text=text.strip(), measure=name, comparison=match["comparison"], limit=limit)


def duration_ms(text: str) -> float:
    """`45`, `45s`, `1500ms`, `2m`, `1.5h` in milliseconds; a ValueError when it is none of these."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a valid duration: {text} (for example 45, 45s, 1500ms, 2m or 1h)")
    return float(match["number"]) * _UNITS[match["unit"] or "s"]


def judge(summary: Mapping[str, Any], gates: Iterable[Gate], max_bad_ratio: float | None) -> list[Verdict]:
    """What every gate says about these numbers."""
    verdicts = [_judge(gate, measured(summary, gate.measure)) for gate in gates]
    if max_bad_ratio is not None:
        lines, bad = summary["input"]["lines"], summary["input"]["bad"]
        ratio, text = bad / max(lines, 1), f"max-bad-ratio {max_bad_ratio:g}"
        says = f"{text}: {bad:g} of {lines:g} lines are bad ({ratio:.4%})"
        verdicts.append(Verdict(text, failed=ratio > max_bad_ratio, says=says))
    return verdicts


def _judge(gate: Gate, value: float | None) -> Verdict:
    if value is None:
        return Verdict(gate.text, failed=False, says=f"{gate.text}: nothing to measure")
    failed = _COMPARISONS[gate.comparison](value, gate.limit)
    shown = f"{value / 1000:g} s ({shown_duration(value)})" if gate.measure in DURATIONS else f"{value:g}"
    return Verdict(gate.text, failed=failed, says=f"{gate.text}: {gate.measure} is {shown}")
