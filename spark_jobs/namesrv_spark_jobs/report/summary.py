"""The content of summary.json and of the charts: plain values from collected rows."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.report.findings import findings
from namesrv_spark_jobs.transforms.extract import summed
from namesrv_spark_jobs.transforms.output_rows import CURVE_STEPS, NO_STATS, Stats, stats, whole_ms
from namesrv_spark_jobs.transforms.replay import LOGGED, policies
from namesrv_spark_jobs.transforms.silences import BINS_PER_EXPIRY, MOST_BINS

SCHEMA: Final = 1
# the most groups of a scope that may have many; the worst ones are shown
MOST: Final = 100
_MANY: Final = ("broker", "client")
DEFAULT_EXPIRY_MS: Final = 120_000
DEFAULT_SCAN_MS: Final = 10_000

Row = Mapping[str, Any]


def summary(collected: Mapping[str, Sequence[Row]], options: Options) -> dict[str, Any]:
    """The content of summary.json. `collected` has a bounded number of rows of each table, however long the log is."""
    boots, (replay,) = [_boot(row) for row in collected["boots"]], collected["replay"]
    distributed: dict[tuple[str, str], dict[str, Stats]] = defaultdict(dict)
    for row in collected["distributions"]:
        if row["scope"] not in _MANY or row["rank"] <= MOST:
            distributed[row["measure"], row["scope"]][row["key"]] = stats(row)
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "input": _input(collected, boots),
        "settings": boots,
        "bound_ms": _longest(boots, "broker_expiry_ms", DEFAULT_EXPIRY_MS)
        + _longest(boots, "scan_interval_ms", DEFAULT_SCAN_MS)
        + options.poll_ms,
        "registry": {
            **_of_measure(distributed, "registry", "reason", "nameserver", "cluster", "broker"),
            "lower": distributed["registry_lower", "all"].get("", NO_STATS),
            **collected["over_bound"][0],
        },
        "client": {**_of_measure(distributed, "client", "reason", "topic", "client"), **_exposed(collected)},
        "false_evictions": _counted(collected["false_evictions"], "count"),
        "exposed_pulls": {
            **_counted(collected["pulls_by_broker"], "total"),
            "by_topic": _most(collected["pulls_by_topic"]),
        },
        "near_misses": {
            **_counted(collected["near_misses"], "count"),
            "longest_ms": max((whole_ms(row["longest"]) for row in collected["near_misses"]), default=None),
            "worst": next((_near_miss(row) for row in collected["worst_near_miss"]), None),
        },
        "divergence": {
            **_divergence(collected["episodes"]),
            "by_broker": _most(collected["episodes"], lambda row: _divergence([row]), by="total"),
        },
        "as_logged": {**replay, "exact": not (replay["missing"] or replay["extra"] or replay["other_scan"])},
        "what_if": _what_if(collected, boots, options),
        "worst": [
            # a summary contains no fractions
            {name: whole_ms(value * 1000) if isinstance(value, float) else value for name, value in row.items()}
            for row in collected["worst"]
        ],
    }
    return {**made, "findings": findings(made)}


def _input(collected: Mapping[str, Sequence[Row]], boots: Sequence[Row]) -> dict[str, Any]:
    return {
        **summed(collected["files"]),
        "files": len(collected["files"]),
        "events": {row["event"]: row["lines"] for row in collected["events"]},
        "truncated_files": sum(row["truncated"] for row in collected["files"]),
        "from_ms": min((boot["from_ms"] for boot in boots), default=None),
        "until_ms": max((boot["until_ms"] for boot in boots), default=None),
        "nameservers": sorted({boot["nameserver"] or "" for boot in boots}),
        "per_file": list(collected["files"]),
    }


def _boot(row: Row) -> dict[str, Any]:
    """The settings of one boot, and its start and end in wall time."""
    times = {"scan_interval_ms": row["scan_interval"], "broker_expiry_ms": row["broker_expiry"]}
    return {
        **{name: row[name] for name in ("nameserver", "boot_id", "version")},
        **{name: None if value is None else whole_ms(value) for name, value in times.items()},
        "from_ms": whole_ms(row["first"] + row["offset_ms"] * 1000),
        "until_ms": whole_ms(row["last"] + row["offset_ms"] * 1000),
    }


def _longest(boots: Iterable[Row], setting: str, usual: int) -> int:
    return max((boot[setting] for boot in boots if boot[setting] is not None), default=usual)


def _of_measure(
    distributed: Mapping[tuple[str, str], Mapping[str, Stats]], measure: str, *scopes: str
) -> dict[str, Any]:
    everything = distributed.get((measure, "all"), {}).get("", NO_STATS)
    return {"all": everything, **{f"by_{scope}": distributed.get((measure, scope), {}) for scope in scopes}}


def _exposed(collected: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    outcomes = {row["outcome"]: row["count"] for row in collected["exposed"]}
    return {
        "exposed": sum(outcomes.values()),
        "seen": outcomes.get("seen", 0),
        "censored": {name: outcomes.get(name, 0) for name in ("returned", "client_gone", "log_end")},
        **collected["unknown_revisions"][0],
    }


def _counted(rows: Sequence[Row], name: str) -> dict[str, Any]:
    """The sum over all brokers, and the brokers with the most."""
    return {name: sum(row["count"] for row in rows), "by_broker": _most(rows)}


def _most(
    rows: Sequence[Row], shown: Callable[[Row], Any] = lambda row: row["count"], *, by: str = "count"
) -> dict[str, Any]:
    most = sorted(rows, key=lambda row: (-row[by], str(row["key"])))[:MOST]
    return {row["key"]: shown(row) for row in most}


def _near_miss(row: Row) -> dict[str, Any]:
    near_miss = {name: row[name] for name in ("broker", "boot_id", "nameserver")}
    near_miss["from_ms"] = whole_ms(row["mono"] + row["offset_ms"] * 1000)
    return {**near_miss, "silent_ms": whole_ms(row["silence"]), "expiry_ms": whole_ms(row["expiry"])}


def _divergence(rows: Sequence[Row]) -> dict[str, int]:
    return {
        "total_ms": whole_ms(sum(row["total"] for row in rows)),
        "episodes": sum(row["count"] for row in rows),
        "longest_ms": whole_ms(max((row["longest"] for row in rows), default=0)),
    }


def _what_if(collected: Mapping[str, Sequence[Row]], boots: Sequence[Row], options: Options) -> list[dict[str, Any]]:
    """One row for each policy and poll; the logged settings come first.

    The number of evictions under other settings is None when no boot's own settings are known.
    """
    is_known = not boots or any(boot["broker_expiry_ms"] is not None for boot in boots)
    unlogged = 0 if is_known else None
    registry = {row["policy"]: row for row in collected["what_if"]}
    client = {(row["policy"], row["poll"]): row for row in collected["what_if_clients"]}
    cells: list[tuple[int, Row]] = [(LOGGED, {"policy": "logged", "expiry_ms": None, "scan_ms": None})]
    for number, expiry_ms, scan_ms in policies(options.what_if):
        cells.append((number, {"policy": "fixed", "expiry_ms": expiry_ms, "scan_ms": scan_ms}))
    return [
        {
            **cell,
            "poll_ms": poll,
            **{
                count: registry[number][count] if number in registry else 0 if number == LOGGED else unlogged
                for count in ("evictions", "false")
            },
            "registry": stats(registry.get(number)),
            "client": stats(client.get((number, poll))),
        }
        for number, cell in cells
        for poll in options.what_if.poll_ms
    ]


def charts(collected: Mapping[str, Sequence[Row]], made: Mapping[str, Any]) -> dict[str, Any]:
    """The data of the charts; the comment in `analysis` lists its fields."""
    points = {row["measure"]: row["points"] for row in collected["curves"]}
    return {
        # points (milliseconds, share), ascending
        **{
            f"{measure}_cdf": [[whole_ms(ms), step / CURVE_STEPS] for step, ms in enumerate(points.get(measure) or ())]
            for measure in ("registry", "client")
        },
        "timeline": {
            "from_ms": made["input"]["from_ms"] or 0,
            "to_ms": made["input"]["until_ms"] or 0,
            "brokers": _timeline_rows(collected["timeline"]),
            "down": _downtimes(made["settings"]),
        },
        "heartbeat_intervals": _interval_rows(collected["heartbeat_intervals"]),
    }


def _timeline_rows(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """One entry for each broker and server; those with the longest staleness first."""
    ordered = sorted(rows, key=lambda row: (-row["in_all"], row["broker"], row["nameserver"] or "", -row["rank"]))
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for row in ordered:
        place = {"broker": row["broker"], "nameserver": row["nameserver"] or ""}
        moments = {
            "from_ms": row["began"],
            "last_ok_ms": row["last_ok"],
            "to_ms": row["ended"],
            "stale_ms": row["stale"],
        }
        period = {name: None if value is None else whole_ms(value) for name, value in moments.items()}
        entry = entries.setdefault((place["broker"], place["nameserver"]), {**place, "periods": []})
        entry["periods"].append({**period, "reason": row["reason"]})
    return list(entries.values())


def _downtimes(boots: Iterable[Row]) -> dict[str, list[list[int]]]:
    """For each server, the times [from, to] between the first and last moment of the log without a boot of it."""
    runs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for boot in boots:
        runs[boot["nameserver"] or ""].append((boot["from_ms"], boot["until_ms"]))
    every = [run for own in runs.values() for run in own]
    by_nameserver: dict[str, list[list[int]]] = {}
    for nameserver, own in runs.items():
        end = max(last for _, last in every)
        by_nameserver[nameserver], known = [], min(first for first, _ in every)
        for first, last in [*sorted(own), (end, end)]:
            if first > known:
                by_nameserver[nameserver].append([known, first])
            known = max(known, last)
    return by_nameserver


def _interval_rows(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The bins from the first to the last one that has intervals, in percent; the last possible bin is open."""
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
