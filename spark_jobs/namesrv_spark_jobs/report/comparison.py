"""Comparison of two reports: the measures that changed, and whether for better or for worse."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from namesrv_spark_jobs.report.measures import DURATIONS, has_heartbeats, measured

Summary = Mapping[str, Any]

SCHEMA: Final = 1
# durations that decide the verdict, each with the least number of values that it needs: few values have no p99
_JUDGED: Final = {"registry.p50": 10, "registry.p99": 50, "client.p50": 10, "client.p99": 50}
# smaller changes of a duration count as none: a twentieth, and a second
_LEAST_SHARE: Final = 0.05
_LEAST_MS: Final = 1_000
# counts that decide the verdict; fewer are always better
_RATES: Final = ("over_bound", "false", "near_misses", "exposed_pulls", "divergence")
# the standard deviation of a count is its square root; a change of more than two of them is rarely chance
_DEVIATIONS: Final = 2
# measures that are shown and do not decide the verdict
_NEUTRAL: Final = ("registry.max", "client.max", "evictions", "exposed", "censored", "lines", "bad")
_SCOPES: Final = (
    ("NameServer", "registry", "by_nameserver"),
    ("cluster", "registry", "by_cluster"),
    ("broker", "registry", "by_broker"),
    ("topic", "client", "by_topic"),
)
_MOST_GROUPS: Final = 50
_SAYS: Final = {
    "better": "Better: {better}.",
    "worse": "Worse: {worse}.",
    "mixed": "Mixed: {better} better, {worse} worse.",
    "same": "No difference that matters.",
    "unknown": "Too few brokers were removed in A or in B to say which is better.",
}


def comparison(before: Summary, after: Summary) -> dict[str, Any]:
    """The content of comparison.json for two summaries: plain values, equal for equal summaries."""
    days = [_days(summary) for summary in (before, after)]
    measures = [
        *(_duration(name, before, after) for name in _JUDGED),
        *(_rate(name, before, after, days) for name in _RATES),
        *(_row(name, before, after, "neutral") for name in _NEUTRAL),
    ]
    judged = {
        kind: [row["measure"] for row in measures if row["judged"] == kind] for kind in ("better", "worse", "few")
    }
    verdict = _verdict(judged)
    named = {kind: ", ".join(names) for kind, names in judged.items()}
    return {
        "schema": SCHEMA,
        "verdict": verdict,
        "says": _SAYS[verdict].format(**named),
        "a": _about(before),
        "b": _about(after),
        "measures": measures,
        "groups": _groups(before, after),
        "settings": _settings(before, after),
        "findings": _findings(before, after),
        "percentiles": {
            name: {side: summary[name]["all"] for side, summary in (("a", before), ("b", after))}
            for name in ("registry", "client")
        },
    }


def _days(summary: Summary) -> float:
    """The length of the analysed time in days; at least a second."""
    read = summary["input"]
    return max((read["until_ms"] or 0) - (read["from_ms"] or 0), 1000) / 86_400_000


def _about(summary: Summary) -> dict[str, Any]:
    about = {name: summary["input"][name] for name in ("from_ms", "until_ms", "nameservers", "bad")}
    return {**about, "lines": measured(summary, "lines")}


def _row(name: str, before: Summary, after: Summary, judged: str) -> dict[str, Any]:
    old, new = measured(before, name), measured(after, name)
    return {"measure": name, "unit": "ms" if name in DURATIONS else "", "a": old, "b": new, "judged": judged}


def _duration(name: str, before: Summary, after: Summary) -> dict[str, Any]:
    made, of = _row(name, before, after, "same"), name.partition(".")[0]
    if min(summary[of]["all"]["count"] for summary in (before, after)) < _JUDGED[name]:
        return {**made, "judged": "few"}
    change = made["b"] - made["a"]
    if abs(change) > max(_LEAST_MS, _LEAST_SHARE * made["a"]):
        return {**made, "judged": "worse" if change > 0 else "better"}
    return made


def _rate(name: str, before: Summary, after: Summary, days: Sequence[float]) -> dict[str, Any]:
    """A row for a count, judged by the rate per day, since the reports may cover times of different length."""
    if not (has_heartbeats(before) and has_heartbeats(after)):
        return _row(name, before, after, "few")
    made, ratio = _row(name, before, after, "same"), days[1] / days[0]
    old, new = made["a"] * ratio, made["b"]
    if name == "over_bound":
        # Staleness over the bound should never happen: a single case more is worse. Half a case is allowed for the
        # lengths of the two times, which always differ a little.
        matters = abs(new - old) > 1 / 2
    else:
        chance = _DEVIATIONS * math.sqrt(new + old * ratio)
        matters = abs(new - old) > chance and not math.isclose(new, old, rel_tol=_LEAST_SHARE)
    if matters:
        return {**made, "judged": "worse" if new > old else "better"}
    return made


def _verdict(judged: Mapping[str, Sequence[str]]) -> str:
    if judged["better"] and judged["worse"]:
        return "mixed"
    if judged["better"] or judged["worse"]:
        return "better" if judged["better"] else "worse"
    return "unknown" if set(_JUDGED) <= set(judged["few"]) else "same"


def _groups(before: Summary, after: Summary) -> list[dict[str, Any]]:
    """The groups of all scopes whose p99 changed most; groups that only one report has come last."""
    groups = []
    for scope, measure, by in _SCOPES:
        old, new = before[measure][by], after[measure][by]
        for key in sorted({*old, *new}):
            a, b = old.get(key), new.get(key)
            stats = {"a": a and a["p99"], "b": b and b["p99"], "a_count": a["count"] if a else 0}
            groups.append({"scope": scope, "key": key, **stats, "b_count": b["count"] if b else 0})

    def order(row: Mapping[str, Any]) -> tuple[bool, float, str, str]:
        is_alone = row["a"] is None or row["b"] is None
        return is_alone, 0.0 if is_alone else -abs(row["b"] - row["a"]), row["scope"], row["key"]

    return sorted(groups, key=order)[:_MOST_GROUPS]


def _settings(before: Summary, after: Summary) -> list[dict[str, Any]]:
    """The settings that differ, each with all values that the boots of the servers had."""
    names = ("version", "broker_expiry_ms", "scan_interval_ms")
    old, new = ({name: _values(summary["settings"], name) for name in names} for summary in (before, after))
    bounds = {"bound_ms": ([before["bound_ms"]], [after["bound_ms"]])}
    pairs = {**{name: (old[name], new[name]) for name in names}, **bounds}
    return [{"setting": name, "a": a, "b": b} for name, (a, b) in pairs.items() if a != b]


def _values(boots: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    return sorted({boot[name] for boot in boots if boot[name] is not None})


def _findings(before: Summary, after: Summary) -> dict[str, list[Mapping[str, str]]]:
    """The findings that only one report has."""
    old, new = ({one["code"]: one for one in summary["findings"]} for summary in (before, after))
    return {
        "new": [one for code, one in new.items() if code not in old],
        "gone": [one for code, one in old.items() if code not in new],
    }
