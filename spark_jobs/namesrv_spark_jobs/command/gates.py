"""Gates: the conditions of --fail-if and --max-bad-ratio on the numbers of a summary."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.percentiles import PERCENTILE_FIELDS
from namesrv_spark_jobs.report.measures import COUNTS, DURATIONS, has_heartbeats, measured
from namesrv_spark_jobs.report.shown import printable, shown_duration, shown_moment
from namesrv_spark_jobs.transforms.schema import TOPIC_EVENTS

Summary = Mapping[str, Any]
_ALL: Final = Options()
# units of durations in milliseconds; a duration without a unit is in seconds
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_DURATION: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h)?")
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_GATE: Final = re.compile(
    r"\s*(?P<measure>[a-z_0-9.]+)\s*(?P<comparison>>=|<=|>|<)\s*(?P<change>\+?)\s*(?P<limit>[\w.\s]+?)\s*(?P<percent>%?)\s*"
)


@dataclass(frozen=True)
class Gate:
    """One condition under which the run fails, such as `client.p95>2m`."""

    # the condition as the user wrote it
    text: str
    measure: str
    comparison: str
    # milliseconds or a count; for a relative change, percent of the earlier value
    limit: float
    # the limit is for the increase over another report, and in percent of that report's value
    is_change: bool = False
    is_percent: bool = False


@dataclass(frozen=True)
class Verdict:
    """The result of a gate."""

    gate: str
    failed: bool
    # one line for people
    says: str


def parse_gate(text: str, *, changes: bool = False) -> Gate:
    """Parse one --fail-if; with `changes` it may limit a change (`client.p99>+10%`). Raises ValueError."""
    match = _GATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a condition; write MEASURE>LIMIT, for example p99>45 or false>0")
    # `p999`, the field of the summary, is another name for `p99.9`
    of, dot, field = match["measure"].rpartition(".")
    measure = f"{of}{dot}{PERCENTILE_FIELDS.get(field, field)}"
    # `p99` is short for `registry.p99`
    name = f"registry.{measure}" if f"registry.{measure}" in DURATIONS else measure
    if name not in {**DURATIONS, **COUNTS}:
        raise ValueError(f"{match['measure']!r} is not a measure; choose from {', '.join([*DURATIONS, *COUNTS])}")
    is_change, is_percent = bool(match["change"]), bool(match["percent"])
    if is_percent and not is_change:
        raise ValueError(f"{text!r}: percentages need a +; write {name}{match['comparison']}+{match['limit']}%")
    if is_change and not changes:
        raise ValueError(f"{text!r}: limits of a change need `compare`")
    is_duration = name in DURATIONS and not is_percent
    try:
        limit = duration_ms(match["limit"]) if is_duration else float(match["limit"])
        if not math.isfinite(limit):
            raise ValueError(f"{text!r}: {match['limit']!r} is not a number")
    except ValueError as error:
        problem = error if is_duration else f"{text!r}: {match['limit']!r} is not a number"
        raise ValueError(problem) from None
    return Gate(
        text=text.strip(),
        measure=name,
        comparison=match["comparison"],
        limit=limit,
        is_change=is_change,
        is_percent=is_percent,
    )


def duration_ms(text: str) -> float:
    """Parse a duration (`45`, `45s`, `1500ms`, `2m`, `1.5h`) into milliseconds. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a valid duration: {text} (for example 45, 45s, 1500ms, 2m or 1h)")
    return float(match["number"]) * _UNITS[match["unit"] or "s"]


def judge(
    summary: Summary,
    gates: Iterable[Gate],
    max_bad_ratio: float | None = None,
    *,
    before: Summary | None = None,
    options: Options = _ALL,
) -> list[Verdict]:
    """The verdict of every gate on a summary, and on its change from `before` if that is given.

    Without a line that the options select, no gate can fail; one more verdict fails instead.
    """
    verdicts = [_judge(gate, *_value(gate, summary, before)) for gate in gates]
    if max_bad_ratio is not None:
        lines, bad = summary["input"]["lines"], summary["input"]["bad"]
        ratio, text = bad / max(lines, 1), f"max-bad-ratio {max_bad_ratio:g}"
        says = f"{text}: {bad:,} of {lines:,} lines are bad ({ratio:.4%})"
        verdicts.append(Verdict(text, failed=ratio > max_bad_ratio, says=says))
    if verdicts and (missing := _missing(summary, options)):
        read = summary["input"]
        says = f"selection: no {missing}; the options leave out {read['left_out']:,} of {read['lines']:,} lines"
        verdicts.append(Verdict("selection", failed=True, says=says))
    return verdicts


def _missing(summary: Summary, options: Options) -> str:
    """The lines that the options select and the log does not have; empty when it has some."""
    if not summary["input"]["left_out"]:
        return ""
    if not has_heartbeats(summary):
        chosen = [_named("cluster", options.clusters), _named("NameServer", options.nameservers)]
        of = " and ".join(text for text in chosen if text)
        times = (("since", options.since_ms), ("until", options.until_ms))
        when = [f" {word} {shown_moment(ms)} UTC" for word, ms in times if ms is not None]
        return f"heartbeat{of and ' of '}{of}{''.join(when)}"
    if options.topics and not summary["input"]["events"].keys() & TOPIC_EVENTS:
        return f"line of {_named('topic', options.topics)}"
    return ""


def _named(noun: str, names: Sequence[str]) -> str:
    return f"{noun} {' or '.join(map(printable, names))}" if names else ""


def _value(gate: Gate, summary: Summary, before: Summary | None) -> tuple[float | None, str]:
    """The value that a gate compares with its limit, and its text; None when there is nothing to measure."""
    value = measured(summary, gate.measure)
    if not gate.is_change:
        return value, f"is {_shown(gate, value)}"
    old = None if before is None else measured(before, gate.measure)
    if value is None or old is None:
        return None, ""
    change, says = value - old, f"went from {_shown(gate, old)} to {_shown(gate, value)}"
    if not gate.is_percent:
        return change, says
    # an increase from 0 exceeds any percentage
    return (100 * change / old if old else math.inf if change > 0 else 0.0), says


def _shown(gate: Gate, value: float | None) -> str:
    if value is None:
        return ""
    # twelve digits: milliseconds of a thousand years
    return f"{value / 1000:,.12g} s ({shown_duration(value)})" if gate.measure in DURATIONS else f"{value:,}"


def _judge(gate: Gate, value: float | None, says: str) -> Verdict:
    if value is None:
        return Verdict(gate.text, failed=False, says=f"{gate.text}: nothing to measure")
    failed = _COMPARISONS[gate.comparison](value, gate.limit)
    return Verdict(gate.text, failed=failed, says=f"{gate.text}: {gate.measure} {says}")
