"""Which numbers of a summary have a name that a gate can use?"""

from collections.abc import Callable, Mapping
from typing import Any, Final

Summary = Mapping[str, Any]
_STATISTICS: Final = ("p50", "p90", "p95", "p99", "p99.9", "max", "mean")


def _statistic(part: str, group: str, name: str) -> Callable[[Summary], float | None]:
    key = name.replace(".", "")
    return lambda summary: summary[part][group][key]


def _input(name: str) -> Callable[[Summary], float | None]:
    return lambda summary: summary["input"][name]


# milliseconds; None when there is nothing to measure
DURATIONS: Final[Mapping[str, Callable[[Summary], float | None]]] = {
    **{f"registry.{name}": _statistic("registry", "all", name) for name in _STATISTICS},
    **{f"lower.{name}": _statistic("registry", "lower", name) for name in _STATISTICS},
    **{f"client.{name}": _statistic("client", "all", name) for name in _STATISTICS},
    "divergence.longest": lambda summary: summary["divergence"]["longest_ms"],
    "divergence.total": lambda summary: summary["divergence"]["total_ms"],
}
COUNTS: Final[Mapping[str, Callable[[Summary], float | None]]] = {
    "evictions": lambda summary: summary["registry"]["all"]["count"],
    "over_bound": lambda summary: summary["registry"]["over_bound"],
    "false": lambda summary: summary["false_evictions"]["count"],
    "near_misses": lambda summary: summary["near_misses"]["count"],
    "exposed": lambda summary: summary["client"]["exposed"],
    "censored": lambda summary: sum(summary["client"]["censored"].values()),
    "exposed_pulls": lambda summary: summary["exposed_pulls"]["total"],
    "divergence": lambda summary: summary["divergence"]["episodes"],
    "replay": lambda summary: sum(summary["as_logged"][name] for name in ("missing", "extra", "other_scan")),
    "lines": _input("lines"),
    "bad": _input("bad"),
    "truncated": _input("truncated_files"),
    "duplicates": _input("duplicates"),
    "dropped": _input("dropped_by_writers"),
    "clock_steps": _input("clock_steps"),
}


def measured(summary: Summary, measure: str) -> float | None:
    """The value of a measure: milliseconds or a count."""
    return {**DURATIONS, **COUNTS}[measure](summary)
