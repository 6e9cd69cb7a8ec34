"""The measures: names that gates and comparisons use for the numbers of a summary."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any, Final

from namesrv_spark_jobs.percentiles import PERCENTILE_FIELDS
from namesrv_spark_jobs.transforms.schema import HEARTBEATS

_STATISTICS: Final = {**PERCENTILE_FIELDS, "max": "max", "mean": "mean"}
# Paths into the summary. A measure with several paths is their sum; a path with a minus sign is subtracted.
_GROUPS: Final = {"registry": "registry all", "lower": "registry lower", "client": "client all"}
# measures in milliseconds; None when there are no values
DURATIONS: Final[Mapping[str, Sequence[str]]] = {
    **{f"{name}.{part}": [f"{at} {field}"] for name, at in _GROUPS.items() for field, part in _STATISTICS.items()},
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
    # lines that the options select
    "lines": ["input lines", "-input left_out"],
    "bad": ["input bad"],
    "truncated": ["input truncated_files"],
    "duplicates": ["input duplicates"],
    "dropped": ["input dropped_by_writers"],
    "clock_steps": ["input clock_steps"],
}


def measured(summary: Mapping[str, Any], measure: str) -> float | None:
    """The value of a measure: milliseconds or a count."""
    values = [_value(summary, place) for place in {**DURATIONS, **COUNTS}[measure]]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def has_heartbeats(summary: Mapping[str, Any]) -> bool:
    """False for a report without any heartbeat, whose zeros mean nothing."""
    return any(name in summary["input"]["events"] for name in HEARTBEATS)


def _value(summary: Mapping[str, Any], place: str) -> float | None:
    value: Any = reduce(getitem, place.removeprefix("-").split(), summary)
    return None if value is None else -value if place.startswith("-") else value
