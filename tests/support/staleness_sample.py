"""A sample of an analysis for the report, with an entry of every kind."""

import json
from pathlib import Path
from typing import Any, Final

from namesrv_spark_jobs.percentiles import PERCENTILE_FIELDS
from tests.support.heartbeat_lines import MIDNIGHT_MS

MINUTE_MS: Final = 60_000
END_MS: Final = MIDNIGHT_MS + 240 * MINUTE_MS
_SUMMARY: Final = Path(__file__).with_suffix(".json")
NOTHING: Final[dict[str, int | None]] = {
    "count": 0,
    **dict.fromkeys((*PERCENTILE_FIELDS, "max", "mean")),
    "total_ms": 0,
}


def stats(count: int, p50: int, p99: int) -> dict[str, int | None]:
    """A distribution."""
    rest = {"p90": p99 - 4_000, "p95": p99 - 2_000, "p999": p99 + 100, "max": p99 + 200, "mean": p50 + 1_000}
    every = dict.fromkeys(PERCENTILE_FIELDS, p99)
    return {"count": count, **every, "p50": p50, "p99": p99, "total_ms": count * (p50 + 1_000), **rest}


def sample_summary(*, topic: str = "orders", broker: str = "c1/broker-a/0") -> dict[str, Any]:
    """The content of summary.json after a bad morning."""
    text = _SUMMARY.read_text(encoding="utf-8")
    for name, value in (("TOPIC", topic), ("BROKER", broker)):
        text = text.replace(f'"{name}"', json.dumps(value))
    summary: dict[str, Any] = json.loads(text, object_hook=_with_percentiles)
    worst = [_interval(broker, number) for number in range(6)]
    return {**summary, "worst": worst, "what_if": [*_logged(), *_fixed()]}


def _with_percentiles(read: dict[str, Any]) -> dict[str, Any]:
    """Give every distribution a value of each percentile in the report."""
    return {**dict.fromkeys(PERCENTILE_FIELDS, read["p99"]), **read} if "p99" in read else read


def sample_charts(*, broker: str = "c1/broker-a/0") -> dict[str, Any]:
    """The chart data of the sample."""
    return {
        "registry_cdf": [[91_000 + 187 * step, step / 200] for step in range(201)],
        "client_cdf": [[96_000 + 308 * step, step / 200] for step in range(201)],
        "timeline": {
            "from_ms": MIDNIGHT_MS,
            "to_ms": MIDNIGHT_MS + 240 * MINUTE_MS,
            "brokers": [_timeline(f"c1/broker-{number}/0" if number else broker, number) for number in range(21)],
            "down": {"ns-1": [[MIDNIGHT_MS + 30 * MINUTE_MS, MIDNIGHT_MS + 40 * MINUTE_MS]], "ns-2": []},
        },
        "heartbeat_intervals": [
            {"from_pct": float(start), "to_pct": None if start == 140 else start + 10.0, "count": _count(start)}
            for start in range(0, 150, 10)
        ],
    }


def _timeline(broker: str, number: int) -> dict[str, Any]:
    first, second = MIDNIGHT_MS + number * MINUTE_MS, MIDNIGHT_MS + (90 + 3 * number) * MINUTE_MS
    died = MIDNIGHT_MS + (60 + 2 * number) * MINUTE_MS
    periods = [
        {"from_ms": first, "last_ok_ms": died, "to_ms": died + 118_000, "reason": "silent", "stale_ms": 118_000},
        {"from_ms": second, "last_ok_ms": END_MS, "to_ms": END_MS, "reason": None, "stale_ms": None},
    ]
    return {"broker": broker, "nameserver": f"ns-{number % 2 + 1}", "periods": periods}


def _count(start: int) -> int:
    return {10: 800, 20: 110_000, 30: 9_000, 40: 120, 50: 31, 60: 9, 70: 4, 140: 1}.get(start, 0)


def _interval(broker: str, number: int) -> dict[str, Any]:
    cluster, name, broker_id = broker.rsplit("/", 2) if broker.count("/") >= 2 else ("c1", broker, "0")
    return {
        "nameserver": "ns-1",
        "boot_id": "boot-1",
        "cluster": cluster,
        "broker_name": name,
        "broker_id": broker_id,
        "broker_addr": "10.0.0.1:10911",
        "agent_id": None,
        "reason": "silent",
        "last_ok_ms": MIDNIGHT_MS + number * 7 * MINUTE_MS,
        "removed_ms": MIDNIGHT_MS + number * 7 * MINUTE_MS + 128_200 - number,
        "upper_ms": 128_200.0 - number,
        "lower_ms": 98_200.0 - number,
        "over_bound": number == 0,
        "false_eviction": number == 1,
        "clients_exposed": 4,
        "clients_seen": 3,
        "exposed_pulls": 11,
    }


def _row(policy: str, poll_ms: int, *, false: int, p99: int | None, **cell: Any) -> dict[str, Any]:
    distribution = stats(40, p99 - 20_000, p99) if p99 is not None else NOTHING
    settings = {"expiry_ms": None, "scan_ms": None, **cell}
    return {
        "policy": policy, "poll_ms": poll_ms, "evictions": 40 + false, "false": false,
        "registry": distribution, "client": distribution, **settings,
    }  # fmt: skip


def _logged() -> list[dict[str, Any]]:
    return [_row("logged", poll, false=2, p99=128_000 + poll) for poll in (5_000, 30_000)]


def _fixed() -> list[dict[str, Any]]:
    false = {30_000: 180, 60_000: 7, 120_000: 2}
    return [
        _row("fixed", poll, false=false[expiry], p99=expiry + scan + poll, expiry_ms=expiry, scan_ms=scan)
        for expiry in false
        for scan in (5_000, 10_000)
        for poll in (5_000, 30_000)
    ]


def empty_summary() -> dict[str, Any]:
    """The summary of a quiet hour without removals and clients."""
    quiet = sample_summary()
    quiet["registry"] = {
        "all": NOTHING, "lower": NOTHING, "by_reason": {}, "by_nameserver": {}, "by_cluster": {}, "by_broker": {},
        "over_bound": 0,
    }  # fmt: skip
    quiet["client"] |= {"all": NOTHING, "by_reason": {}, "by_topic": {}, "by_client": {}, "exposed": 0, "seen": 0}
    quiet["client"]["censored"] = {"returned": 0, "client_gone": 0, "log_end": 0}
    quiet["false_evictions"] = {"count": 0, "by_broker": {}}
    quiet["exposed_pulls"] = {"total": 0, "by_broker": {}, "by_topic": {}}
    quiet["near_misses"] = {"count": 0, "by_broker": {}, "worst": None}
    quiet |= {"worst": [], "what_if": []}
    quiet["divergence"] = {"total_ms": 0, "episodes": 0, "longest_ms": 0, "by_broker": {}}
    quiet["findings"] = [{"severity": "info", "code": "no_evictions", "text": "No broker was removed in this time."}]
    return quiet


def empty_charts() -> dict[str, Any]:
    """The chart data of a quiet hour: all empty."""
    timeline: dict[str, Any] = {"from_ms": None, "to_ms": None, "brokers": [], "down": {}}
    return {**{name: [] for name in ("registry_cdf", "client_cdf", "heartbeat_intervals")}, "timeline": timeline}
