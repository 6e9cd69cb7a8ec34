"""A sample of what an analysis hands to the report, with something of everything."""

from typing import Any, Final

from tests.support.heartbeat_lines import MIDNIGHT_MS

MINUTE_MS: Final = 60_000
END_MS: Final = MIDNIGHT_MS + 240 * MINUTE_MS
NOTHING: Final[dict[str, int | None]] = {
    "count": 0,
    **dict.fromkeys(("p50", "p90", "p95", "p99", "p999", "max", "mean")),
    "total_ms": 0,
}


def stats(count: int, p50: int, p99: int) -> dict[str, int | None]:
    """A distribution."""
    rest = {"p90": p99 - 4_000, "p95": p99 - 2_000, "p999": p99 + 100, "max": p99 + 200, "mean": p50 + 1_000}
    return {"count": count, "p50": p50, "p99": p99, "total_ms": count * (p50 + 1_000), **rest}


def sample_summary(*, topic: str = "orders", broker: str = "c1/broker-a/0") -> dict[str, Any]:
    """The content of summary.json after a bad morning."""
    return {
        "schema": 1,
        "input": {
            "lines": 120_345,
            "bad": 3,
            "duplicates": 12,
            "newer_version": 0,
            "unknown_events": 1,
            "left_out": 0,
            "dropped_by_writers": 7,
            "clock_steps": 1,
            "files": 2,
            "events": {"heartbeat": 120_000, "evict": 42},
            "truncated_files": 1,
            "from_ms": MIDNIGHT_MS,
            "until_ms": MIDNIGHT_MS + 240 * MINUTE_MS,
            "nameservers": ["ns-1", "ns-2"],
            "per_file": [_file("a.jsonl.gz", bad=3, truncated=True), _file("b.jsonl.gz")],
        },
        "settings": [
            {
                "nameserver": "ns-1",
                "boot_id": "boot-1",
                "version": "0.1.0",
                "scan_interval_ms": 10_000,
                "broker_expiry_ms": 120_000,
                "from_ms": MIDNIGHT_MS,
                "until_ms": MIDNIGHT_MS + 240 * MINUTE_MS,
            }
        ],
        "bound_ms": 160_000,
        "registry": {
            "all": stats(42, 109_700, 128_000),
            "lower": stats(42, 75_000, 98_000),
            "by_reason": {"silent": stats(40, 106_000, 128_000), "disconnected": stats(2, 3_000, 9_000)},
            "by_nameserver": {"ns-1": stats(22, 105_000, 128_000), "ns-2": stats(20, 104_000, 127_000)},
            "by_cluster": {"c1": stats(42, 105_000, 128_000)},
            "by_broker": {broker: stats(3, 105_000, 128_000)},
            "over_bound": 1,
        },
        "client": {
            "all": stats(180, 126_800, 157_000),
            "by_reason": {"silent": stats(180, 121_000, 157_000)},
            "by_topic": {topic: stats(180, 121_000, 157_000)},
            "by_client": {"10.0.9.1:40000#7": stats(9, 121_000, 157_000)},
            "exposed": 192,
            "seen": 180,
            "censored": {"returned": 2, "client_gone": 7, "log_end": 3},
            "unknown_revisions": 0,
        },
        "false_evictions": {"count": 2, "by_broker": {broker: 2}},
        "exposed_pulls": {"total": 431, "by_broker": {broker: 431}, "by_topic": {topic: 431}},
        "near_misses": {"count": 5, "by_broker": {broker: 5}, "worst": None},
        "divergence": {
            "total_ms": 63_000,
            "episodes": 9,
            "longest_ms": 9_800,
            "by_broker": {broker: {"total_ms": 63_000, "episodes": 9, "longest_ms": 9_800}},
        },
        "as_logged": {"logged": 40, "replayed": 40, "missing": 0, "extra": 0, "other_scan": 0, "exact": True},
        "what_if": [],
        "worst": [],
        "findings": [
            {
                "severity": "critical",
                "code": "over_bound",
                "text": "1 brokers stayed registered longer than explained.",
            },
            {"severity": "warning", "code": "false_evictions", "text": "2 brokers were evicted although alive."},
            {"severity": "info", "code": "exposed_pulls", "text": "431 answers still had a broker that was dead."},
        ],
    }


def _file(name: str, *, bad: int = 0, truncated: bool = False) -> dict[str, Any]:
    numbers = dict.fromkeys(("duplicates", "newer_version", "unknown_events", "left_out", "dropped_by_writers"), 0)
    return {"file": name, "truncated": truncated, "lines": 60_000, "bad": bad, "clock_steps": 0, **numbers}


def sample_charts(*, broker: str = "c1/broker-a/0") -> dict[str, Any]:
    """What the pictures show of it."""
    return {
        "bound_ms": 160_000,
        "registry_cdf": [[91_000 + 187 * step, step / 200] for step in range(201)],
        "client_cdf": [[96_000 + 308 * step, step / 200] for step in range(201)],
        "timeline": {
            "from_ms": MIDNIGHT_MS,
            "to_ms": MIDNIGHT_MS + 240 * MINUTE_MS,
            "brokers": [_timeline(f"c1/broker-{number}/0" if number else broker, number) for number in range(21)],
            "down": {"ns-1": [[MIDNIGHT_MS + 30 * MINUTE_MS, MIDNIGHT_MS + 40 * MINUTE_MS]], "ns-2": []},
        },
        "gaps": [
            {"from_pct": float(start), "to_pct": None if start == 140 else start + 10.0, "count": _count(start)}
            for start in range(0, 150, 10)
        ],
        "worst": [_interval(broker, number) for number in range(6)],
        "what_if": [*_logged(), *_fixed(), *_phi()],
    }


def _timeline(broker: str, number: int) -> dict[str, Any]:
    first, second = MIDNIGHT_MS + number * MINUTE_MS, MIDNIGHT_MS + (90 + 3 * number) * MINUTE_MS
    died = MIDNIGHT_MS + (60 + 2 * number) * MINUTE_MS
    lives = [
        {"from_ms": first, "last_ok_ms": died, "to_ms": died + 118_000, "reason": "silent", "stale_ms": 118_000},
        {"from_ms": second, "last_ok_ms": END_MS, "to_ms": END_MS, "reason": None, "stale_ms": None},
    ]
    return {"broker": broker, "nameserver": f"ns-{number % 2 + 1}", "lives": lives}


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
    settings = {"expiry_ms": None, "phi": None, "scan_ms": None, **cell}
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


def _phi() -> list[dict[str, Any]]:
    cells = [
        _row("phi", poll, false=round(200 / phi**2), p99=round(phi * 4_000) + 30_000 + poll, phi=phi, scan_ms=5_000)
        for phi in (5.0, 8.0, 12.0)
        for poll in (5_000, 30_000)
    ]
    return [*cells, _row("phi", 5_000, false=0, p99=None, phi=20.0, scan_ms=5_000)]


def empty_summary() -> dict[str, Any]:
    """A quiet hour: nobody went away, no client was there."""
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
    quiet["divergence"] = {"total_ms": 0, "episodes": 0, "longest_ms": 0, "by_broker": {}}
    quiet["findings"] = [{"severity": "info", "code": "no_evictions", "text": "No broker was removed in this time."}]
    return quiet


def empty_charts() -> dict[str, Any]:
    """The pictures of a quiet hour: there are none."""
    timeline: dict[str, Any] = {"from_ms": None, "to_ms": None, "brokers": [], "down": {}}
    empty: dict[str, Any] = {name: [] for name in ("registry_cdf", "client_cdf", "gaps", "worst", "what_if")}
    return {**empty, "bound_ms": 160_000, "timeline": timeline}
