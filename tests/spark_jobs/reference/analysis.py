"""The whole analysis: the definitions of docs/staleness.md, the report's rows, and summary.json, in plain Python."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.percentiles import PERCENTILE_FIELDS, PERCENTILES
from tests.spark_jobs.reference import lines
from tests.spark_jobs.reference.registration_periods import (
    Broker,
    ClientStaleness,
    RegistrationPeriod,
    Routes,
    Span,
    episodes,
    near_misses,
    periods,
)
from tests.spark_jobs.reference.replay import as_logged, client_staleness, evictions_by_setting, replay_as_logged

# Largest number of groups in the summary; the worst groups are kept.
MOST = 100
# Parts of the bound if no boot has its settings in the log.
EXPIRY_MS, SCAN_MS = 120_000, 10_000

Row = dict[str, Any]
Stats = dict[str, int | None]


class Analysis:
    """The analysis of the files, ordered by boot, broker and time; replays are computed on demand."""

    def __init__(self, files: Mapping[str, Iterable[str | bytes]], options: Options = lines.EVERYTHING) -> None:
        self.options = options
        self.lines, self.files = lines.read(files, options)
        self.boots = lines.boots(self.lines, options)
        self.periods = [period for boot in self.boots for period in periods(boot)]
        self.intervals = [period for period in self.periods if period.evict is not None]
        self.false_evictions = [period for period in self.periods if period.is_false_eviction]
        self.near_misses = [miss for period in self.periods for miss in near_misses(period)]
        self.episodes = episodes(self.boots, self.periods)
        routes = {boot: Routes(boot) for boot in self.boots}
        of_unannounced = [(period, routes[period.boot]) for period in self.periods if period.is_unannounced]
        self.clients = [staleness for period, route in of_unannounced for staleness in route.exposed(period)]
        # pulls of routes with a dead broker, by topic
        self.exposed_pulls = [(period, route.pulls(period)) for period, route in of_unannounced]
        self.unknown_revisions = sum(route.unknown_revisions for route in routes.values())

    @cached_property
    def as_logged(self) -> dict[str, int | bool]:
        """The comparison of the log with the replay under the logged settings."""
        return as_logged(self.boots, replay_as_logged(self.boots))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json, without findings and worst rows, which repeat other parts."""
        settings = [_settings(boot) for boot in self.boots]
        limits = {"broker_expiry_ms": EXPIRY_MS, "scan_interval_ms": SCAN_MS}
        longest = [max((b[x] for b in settings if b[x] is not None), default=usual) for x, usual in limits.items()]
        return {
            "schema": 1,
            "input": _input(self, settings),
            "settings": settings,
            "bound_ms": sum(longest) + self.options.poll_ms,
            "registry": _registry(self.intervals),
            "client": {**_client(self.clients), "unknown_revisions": self.unknown_revisions},
            "false_evictions": _counted("count", Counter(period.broker.label for period in self.false_evictions)),
            "exposed_pulls": _exposed_pulls(self.exposed_pulls),
            "near_misses": {
                **_counted("count", Counter(Broker.of(heartbeat).label for heartbeat, _ in self.near_misses)),
                "longest_ms": max((lines.whole_milliseconds(silence) for _, silence in self.near_misses), default=None),
            },
            "divergence": _divergence(self.episodes),
            "as_logged": self.as_logged,
            "what_if": _what_if(self),
        }

    def interval_rows(self) -> list[Row]:
        """The report's rows of registration periods with an eviction."""
        exposed = Counter((client.period, is_seen) for client in self.clients for is_seen in {client.outcome == "seen"})
        pulls = {period: by_topic.total() for period, by_topic in self.exposed_pulls}
        return [
            {
                "date": f"{datetime.fromtimestamp(period.boot.wall_ms(period.last_line.at) // 1000, UTC):%Y-%m-%d}",
                **_names(period),
                "agent_id": period.last_line.get("agent_id"),
                "reason": period.reason,
                "first_ok_ms": None if period.first_ok is None else period.boot.wall_ms(period.first_ok),
                "last_ok_ms": period.boot.wall_ms(period.last_ok),
                "removed_ms": period.boot.wall_ms(period.last_line.at),
                "heartbeats": len(period.heartbeats),
                "interval_ms": period.usual_interval / lines.MICROSECONDS,
                "expiry_ms": None if period.expiry is None else period.expiry / lines.MICROSECONDS,
                "upper_ms": period.upper / lines.MICROSECONDS,
                "lower_ms": period.lower / lines.MICROSECONDS,
                "over_bound": period.is_over_bound,
                "false_eviction": period.is_false_eviction,
                "scan": period.last_line.get("scan"),
                "evict_seq": period.last_line.seq,
                "clients_exposed": exposed[period, True] + exposed[period, False],
                "clients_seen": exposed[period, True],
                "exposed_pulls": pulls.get(period, 0),
            }
            for period in self.intervals
        ]


def comparable(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without the worst near miss, which the reference does not compute."""
    return {**summary, "near_misses": {x: value for x, value in summary["near_misses"].items() if x != "worst"}}


def _names(period: RegistrationPeriod) -> Row:
    return {"nameserver": period.boot.nameserver, "boot_id": period.boot.boot, **period.broker._asdict()}


def _stats(values: Iterable[float]) -> Stats:
    """Percentiles and sums of times, in whole milliseconds."""
    ordered = sorted(values)
    if not ordered:
        return {"count": 0, **dict.fromkeys((*PERCENTILE_FIELDS, "max", "mean")), "total_ms": 0}
    total = round(sum(ordered))
    return {
        "count": len(ordered),
        **{
            field: lines.whole_milliseconds(lines.percentile(ordered, PERCENTILES[name]))
            for field, name in PERCENTILE_FIELDS.items()
        },
        "max": lines.whole_milliseconds(ordered[-1]),
        # Round half up, in integers.
        "mean": (2 * total + 1000 * len(ordered)) // (2000 * len(ordered)),
        "total_ms": lines.whole_milliseconds(total),
    }


def _input(analysis: Analysis, settings: Sequence[Row]) -> Row:
    counts = {name: {what: count[what] for what in lines.NUMBERS} for name, count in analysis.files.items()}
    # The reference gets lines, and does not detect truncated files.
    per_file = [{"file": name, "truncated": False, **count} for name, count in counts.items()]
    return {
        **{what: sum(count[what] for count in analysis.files.values()) for what in lines.NUMBERS},
        "files": len(per_file),
        "truncated_files": 0,
        "events": dict(Counter(line.event for line in analysis.lines if line.event in lines.KNOWN)),
        "from_ms": min((boot["from_ms"] for boot in settings), default=None),
        "until_ms": max((boot["until_ms"] for boot in settings), default=None),
        "nameservers": sorted({boot["nameserver"] or "" for boot in settings}),
        "per_file": per_file,
    }


def _settings(boot: lines.Boot) -> Row:
    return {
        "nameserver": boot.nameserver,
        "boot_id": boot.boot,
        "version": boot.version,
        "scan_interval_ms": None if boot.scan_interval is None else lines.whole_milliseconds(boot.scan_interval),
        "broker_expiry_ms": None if boot.expiry is None else lines.whole_milliseconds(boot.expiry),
        "from_ms": boot.wall_ms(boot.first.at),
        "until_ms": boot.wall_ms(boot.last.at),
    }


def _registry(intervals: Sequence[RegistrationPeriod]) -> Row:
    return {
        "all": _stats(period.upper for period in intervals),
        "lower": _stats(period.lower for period in intervals),
        "by_reason": _grouped((period.reason, period.upper) for period in intervals),
        "by_nameserver": _grouped((period.boot.nameserver, period.upper) for period in intervals),
        "by_cluster": _grouped((period.broker.cluster, period.upper) for period in intervals),
        "by_broker": _grouped(((period.broker.label, period.upper) for period in intervals), MOST),
        "over_bound": sum(period.is_over_bound for period in intervals),
    }


def _client(clients: Sequence[ClientStaleness]) -> Row:
    seen = [client for client in clients if client.outcome == "seen"]
    outcomes = Counter(client.outcome for client in clients)
    return {
        "all": _stats(client.staleness for client in seen),
        "by_reason": _grouped((client.period.reason, client.staleness) for client in seen),
        "by_topic": _grouped((client.topic, client.staleness) for client in seen),
        "by_client": _grouped(((client.client, client.staleness) for client in seen), MOST),
        "exposed": outcomes.total(),
        "seen": outcomes["seen"],
        "censored": {name: outcomes[name] for name in ("returned", "client_gone", "log_end")},
    }


def _grouped(pairs: Iterable[tuple[str | None, int]], most: int | None = None) -> dict[str, Stats]:
    """The numbers of each group; above the limit, of the groups with the longest total time."""
    values: dict[str, list[int]] = defaultdict(list)
    for key, value in pairs:
        values[key or ""].append(value)
    worst = sorted(values, key=lambda key: (-sum(values[key]), key))[:most]
    return {key: _stats(values[key]) for key in worst}


def _counted(name: str, by_broker: Mapping[str, int]) -> Row:
    return {name: sum(by_broker.values()), "by_broker": _most(by_broker)}


def _most(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST])


def _exposed_pulls(exposed: Iterable[tuple[RegistrationPeriod, Counter[str]]]) -> Row:
    by_broker: Counter[str] = Counter()
    by_topic: Counter[str] = Counter()
    for period, pulls in exposed:
        by_topic.update(pulls)
        by_broker.update({period.broker.label: pulls.total()} if pulls else {})
    return {**_counted("total", by_broker), "by_topic": _most(by_topic)}


def _divergence(episodes: Mapping[Broker, Sequence[Span]]) -> Row:
    lengths: dict[str, list[int]] = defaultdict(list)
    for broker, spans in episodes.items():
        for began, ended in spans:
            lengths[broker.label].append(ended - began)
    worst = _most({label: sum(found) for label, found in lengths.items()})
    return {
        **_lengths([length for found in lengths.values() for length in found]),
        "by_broker": {label: _lengths(lengths[label]) for label in worst},
    }


def _lengths(lengths: Sequence[int]) -> dict[str, int]:
    longest = lines.whole_milliseconds(max(lengths, default=0))
    return {"total_ms": lines.whole_milliseconds(sum(lengths)), "episodes": len(lengths), "longest_ms": longest}


def _what_if(analysis: Analysis) -> list[dict[str, Any]]:
    rows = []
    is_known = not analysis.boots or any(boot.expiry is not None for boot in analysis.boots)
    for cell, evictions in evictions_by_setting(analysis.boots, analysis.options.what_if):
        true = [eviction for eviction in evictions if not eviction.is_false]
        is_replayed = is_known or cell["policy"] == "logged"
        rows += [
            {
                **cell,
                "poll_ms": poll_ms,
                "evictions": len(evictions) if is_replayed else None,
                "false": len(evictions) - len(true) if is_replayed else None,
                "registry": _stats(eviction.staleness for eviction in true),
                "client": _stats(
                    value for one in true for value in client_staleness(one, poll_ms * lines.MICROSECONDS)
                ),
            }
            for poll_ms in analysis.options.what_if.poll_ms
        ]
    return rows
