"""Content of summary.json and of the charts: collected rows put in order as plain values."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from namesrv_spark_jobs.report.findings import findings
from namesrv_spark_jobs.transforms.distributions import CURVE_STEPS, NO_STATS, Stats, stats, whole_ms
from namesrv_spark_jobs.transforms.line_counts import summed
from namesrv_spark_jobs.transforms.replay import LOGGED, Policy
from namesrv_spark_jobs.transforms.silences import BINS_PER_EXPIRY, MOST_BINS

SCHEMA: Final = 1
# of groups that may be many, so many are shown: the worst
MOST: Final = 100
DEFAULT_EXPIRY_MS: Final = 120_000
DEFAULT_SCAN_MS: Final = 10_000

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the tables say, collected; each a few rows, however long the log is."""

    files: Sequence[Row]
    truncated: int
    poll_ms: int
    events: Sequence[Row]
    boots: Sequence[Row]
    distributions: Sequence[Row]
    flags: Row
    exposed: Sequence[Row]
    false_evictions: Sequence[Row]
    pulls_by_broker: Sequence[Row]
    pulls_by_topic: Sequence[Row]
    near_misses: Sequence[Row]
    # one, if any
    worst_near_miss: Sequence[Row]
    episodes: Sequence[Row]
    replay: Row
    what_if: Sequence[Row]
    what_if_clients: Sequence[Row]
    policies: Sequence[Policy]
    polls_ms: Sequence[int]
    worst: Sequence[Row]


def summary(found: Found) -> dict[str, Any]:
    """All of it."""
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "input": _input(found),
        "settings": [_settings(boot) for boot in found.boots],
        "bound_ms": bound_ms(found.boots, found.poll_ms),
        "registry": _registry(found),
        "client": _client(found),
        "false_evictions": _counted(found.false_evictions, "count"),
        "exposed_pulls": {
            **_counted(found.pulls_by_broker, "total"),
            "by_topic": _of_keys(found.pulls_by_topic),
        },
        "near_misses": {
            **_counted(found.near_misses, "count"),
            "longest_ms": max((whole_ms(row["longest"]) for row in found.near_misses), default=None),
            "worst": next((_near_miss(row) for row in found.worst_near_miss), None),
        },
        "divergence": _divergence(found.episodes),
        "as_logged": _replay(found.replay),
        "what_if": _what_if(found),
        "worst": [dict(row) for row in found.worst],
    }
    return {**made, "findings": findings(made)}


def _input(found: Found) -> dict[str, Any]:
    wall = [(boot["first"], boot["last"], boot["offset_ms"] * 1000) for boot in found.boots]
    return {
        **summed(found.files),
        "files": len(found.files),
        "events": {row["event"]: row["lines"] for row in found.events},
        "truncated_files": found.truncated,
        "from_ms": min((whole_ms(first + offset) for first, _, offset in wall), default=None),
        "until_ms": max((whole_ms(last + offset) for _, last, offset in wall), default=None),
        "nameservers": sorted({boot["nameserver"] or "" for boot in found.boots}),
        "per_file": list(found.files),
    }


def _settings(boot: Row) -> dict[str, Any]:
    return {
        "nameserver": boot["nameserver"],
        "boot_id": boot["boot_id"],
        "version": boot["version"],
        "scan_interval_ms": _maybe_ms(boot["scan_interval"]),
        "broker_expiry_ms": _maybe_ms(boot["broker_expiry"]),
        "from_ms": whole_ms(boot["first"] + boot["offset_ms"] * 1000),
        "until_ms": whole_ms(boot["last"] + boot["offset_ms"] * 1000),
    }


def _maybe_ms(value: int | None) -> int | None:
    return None if value is None else whole_ms(value)


def bound_ms(boots: Iterable[Row], poll_ms: int) -> int:
    """How long a client may have a dead broker's route, by the settings: expiry, then a scan, then a poll."""
    known = list(boots)
    expiry = max((whole_ms(boot["broker_expiry"]) for boot in known if boot["broker_expiry"] is not None), default=None)
    scan = max((whole_ms(boot["scan_interval"]) for boot in known if boot["scan_interval"] is not None), default=None)
    return (DEFAULT_EXPIRY_MS if expiry is None else expiry) + (DEFAULT_SCAN_MS if scan is None else scan) + poll_ms


def _scopes(found: Found, measure: str) -> dict[str, list[Row]]:
    """The rows of a measure by scope, the worst first."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(found.distributions, key=lambda row: (row["scope"], row["rank"])):
        if row["measure"] == measure:
            rows[row["scope"]].append(row)
    return rows


def _stats_of(rows: Sequence[Row], most: int | None = None) -> dict[str, Stats]:
    return {row["key"]: stats(row) for row in sorted(rows[:most], key=lambda row: str(row["key"]))}


def _all(scopes: Mapping[str, Sequence[Row]]) -> Stats:
    rows = scopes.get("all")
    return stats(rows[0]) if rows else dict(NO_STATS)


def _registry(found: Found) -> dict[str, Any]:
    scopes = _scopes(found, "registry")
    return {
        "all": _all(scopes),
        "lower": _all(_scopes(found, "registry_lower")),
        "by_reason": _stats_of(scopes["reason"]),
        "by_nameserver": _stats_of(scopes["nameserver"]),
        "by_cluster": _stats_of(scopes["cluster"]),
        "by_broker": _stats_of(scopes["broker"], MOST),
        "over_bound": found.flags["over_bound"],
    }


def _client(found: Found) -> dict[str, Any]:
    scopes = _scopes(found, "client")
    outcomes = {row["outcome"]: row["count"] for row in found.exposed}
    return {
        "all": _all(scopes),
        "by_reason": _stats_of(scopes["reason"]),
        "by_topic": _stats_of(scopes["topic"]),
        "by_client": _stats_of(scopes["client"], MOST),
        "exposed": sum(outcomes.values()),
        "seen": outcomes.get("seen", 0),
        "censored": {name: outcomes.get(name, 0) for name in ("returned", "client_gone", "log_end")},
        "unknown_revisions": found.flags["unknown_revisions"],
    }


def _counted(rows: Sequence[Row], name: str) -> dict[str, Any]:
    """The sum of all, and the brokers with the most."""
    return {name: sum(row["count"] for row in rows), "by_broker": _of_keys(rows)}


def _of_keys(rows: Sequence[Row]) -> dict[str, int]:
    most = sorted(rows, key=lambda row: (-row["count"], str(row["key"])))[:MOST]
    return {row["key"]: row["count"] for row in sorted(most, key=lambda row: str(row["key"]))}


def _near_miss(row: Row) -> dict[str, Any]:
    told = {"broker": row["broker"], "boot_id": row["boot_id"], "nameserver": row["nameserver"]}
    return {**told, "silent_ms": whole_ms(row["silence"]), "expiry_ms": whole_ms(row["expiry"])}


def _divergence(rows: Sequence[Row]) -> dict[str, Any]:
    most = sorted(rows, key=lambda row: (-row["total"], str(row["key"])))[:MOST]
    return {
        "total_ms": whole_ms(sum(row["total"] for row in rows)),
        "episodes": sum(row["count"] for row in rows),
        "longest_ms": whole_ms(max((row["longest"] for row in rows), default=0)),
        "by_broker": {
            row["key"]: {
                "total_ms": whole_ms(row["total"]),
                "episodes": row["count"],
                "longest_ms": whole_ms(row["longest"]),
            }
            for row in sorted(most, key=lambda row: str(row["key"]))
        },
    }


def _replay(row: Row) -> dict[str, Any]:
    numbers = {name: row[name] for name in ("logged", "replayed", "missing", "extra", "other_scan")}
    return {**numbers, "exact": not (row["missing"] or row["extra"] or row["other_scan"])}


def _what_if(found: Found) -> list[dict[str, Any]]:
    """One row for each policy and poll; the logged settings come first."""
    registry = {row["policy"]: row for row in found.what_if}
    client = {(row["policy"], row["poll"]): row for row in found.what_if_clients}
    logged = {"policy": "logged", "expiry_ms": None, "phi": None, "scan_ms": None}
    cells = [(LOGGED, logged), *((policy.number, _cell(policy)) for policy in found.policies)]
    return [
        {
            **cell,
            "poll_ms": poll,
            "evictions": registry[number]["evictions"] if number in registry else 0,
            "false": registry[number]["false"] if number in registry else 0,
            "registry": stats(registry.get(number)),
            "client": stats(client.get((number, poll))),
        }
        for number, cell in cells
        for poll in found.polls_ms
    ]


def _cell(policy: Policy) -> dict[str, Any]:
    kind = "fixed" if policy.phi is None else "phi"
    return {"policy": kind, "expiry_ms": policy.expiry_ms, "phi": policy.phi, "scan_ms": policy.scan_ms}


def timeline_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each broker and server, the stalest first."""
    ordered = sorted(rows, key=lambda row: (-row["in_all"], row["broker"], row["nameserver"] or "", -row["rank"]))
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for row in ordered:
        place = row["broker"], row["nameserver"]
        entry = found.setdefault(place, {"broker": row["broker"], "nameserver": row["nameserver"] or "", "lives": []})
        moments = {
            f"{name}_ms": whole_ms(row[of]) for name, of in (("from", "began"), ("last_ok", "last_ok"), ("to", "ended"))
        }
        stale = None if row["stale"] is None else whole_ms(row["stale"])
        entry["lives"].append({**moments, "reason": row["reason"], "stale_ms": stale})
    return list(found.values())


def downtimes(boots: Iterable[Row]) -> dict[str, list[list[int]]]:
    """The times between the first and the last moment of the log in which each server says nothing: [from, to]."""
    runs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for boot in boots:
        offset = boot["offset_ms"] * 1000
        runs[boot["nameserver"] or ""].append((whole_ms(boot["first"] + offset), whole_ms(boot["last"] + offset)))
    begin, end = (
        choose(run[edge] for own in runs.values() for run in own) if runs else 0
        for edge, choose in ((0, min), (1, max))
    )
    found: dict[str, list[list[int]]] = {}
    for nameserver, own in runs.items():
        found[nameserver], known = [], begin
        for first, last in [*sorted(own), (end, end)]:
            if first > known:
                found[nameserver].append([known, first])
            known = max(known, last)
    return found


def gap_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The bins from the first to the last one that has any, in percent; the very last one has no end."""
    counts = {int(row["bin"]): int(row["count"]) for row in rows}
    width = 100 / BINS_PER_EXPIRY
    return [
        {
            "from_pct": number * width,
            "to_pct": None if number == MOST_BINS else (number + 1) * width,
            "count": counts.get(number, 0),
        }
        for number in (range(min(counts), max(counts) + 1) if counts else ())
    ]


def curve(points: Sequence[float] | None) -> list[list[float]]:
    """A distribution as points (milliseconds, share), ascending."""
    return [[whole_ms(value), step / CURVE_STEPS] for step, value in enumerate(points or ())]
