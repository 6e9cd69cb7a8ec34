"""The whole analysis: the definitions of docs/staleness.md, the report's rows, and summary.json, in plain Python."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.percentiles import PERCENTILE_FIELDS, PERCENTILES
from tests.spark_jobs.reference import lines
from tests.spark_jobs.reference.lives import Broker, ClientStaleness, Life, Routes, Span, episodes, lives, near_misses
from tests.spark_jobs.reference.replay import as_logged, client_staleness, replay_as_logged, trials

# of groups that may be many, so many are shown: the worst
MOST = 100
# what the bound is made of when no boot says more
EXPIRY_MS, SCAN_MS = 120_000, 10_000

Row = dict[str, Any]
Stats = dict[str, int | None]


class Analysis:
    """All that the files say, in the order of boots, brokers and time; replays are made when they are asked for."""

    def __init__(self, files: Mapping[str, Iterable[str | bytes]], options: Options = lines.EVERYTHING) -> None:
        self.options = options
        self.lines, self.files = lines.read(files, options)
        self.boots = lines.boots(self.lines, options)
        for boot in self.boots:
            for file in boot.clock_steps:
                self.files[file]["clock_steps"] += 1
        self.lives = [life for boot in self.boots for life in lives(boot)]
        self.intervals = [life for life in self.lives if life.evict is not None]
        self.false_evictions = [life for life in self.lives if life.is_false_eviction]
        self.near_misses = [miss for life in self.lives for miss in near_misses(life)]
        self.episodes = episodes(self.boots, self.lives)
        routes = {boot.boot: Routes(boot) for boot in self.boots}
        of_unannounced = [(life, routes[life.boot.boot]) for life in self.lives if life.is_unannounced]
        self.clients = [staleness for life, route in of_unannounced for staleness in route.exposed(life)]
        # how often the route of a broker that was gone was given out, by topic
        self.exposed_pulls = [(life, route.pulls(life)) for life, route in of_unannounced]
        self.unknown_revisions = sum(route.unknown_revisions for route in routes.values())

    @cached_property
    def as_logged(self) -> dict[str, int | bool]:
        """Whether the replay under the logged settings came out as the log did."""
        return as_logged(self.boots, replay_as_logged(self.boots))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json, without findings and worst rows, which only say again what is in the others."""
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
            "false_evictions": _counted("count", Counter(life.broker.label for life in self.false_evictions)),
            "exposed_pulls": _exposed_pulls(self.exposed_pulls),
            "near_misses": {
                **_counted("count", Counter(Broker.of(beat).label for beat, _ in self.near_misses)),
                "longest_ms": max((lines.whole_milliseconds(silence) for _, silence in self.near_misses), default=None),
            },
            "divergence": _divergence(self.episodes),
            "as_logged": self.as_logged,
            "what_if": _what_if(self),
        }

    def interval_rows(self) -> list[Row]:
        """The report's rows of lives that ended."""
        exposed = Counter((client.life, is_seen) for client in self.clients for is_seen in {client.outcome == "seen"})
        pulls = {life: by_topic.total() for life, by_topic in self.exposed_pulls}
        return [
            {
                "date": f"{datetime.fromtimestamp(life.boot.wall_ms(life.said.at) // 1000, UTC):%Y-%m-%d}",
                **_names(life),
                "agent_id": life.said.get("agent_id"),
                "reason": life.reason,
                "first_ok_ms": None if life.first_ok is None else life.boot.wall_ms(life.first_ok),
                "last_ok_ms": life.boot.wall_ms(life.last_ok),
                "removed_ms": life.boot.wall_ms(life.said.at),
                "beats": len(life.beats),
                "period_ms": life.period / lines.MICROSECONDS,
                "expiry_ms": None if life.expiry is None else life.expiry / lines.MICROSECONDS,
                "upper_ms": life.upper / lines.MICROSECONDS,
                "lower_ms": life.lower / lines.MICROSECONDS,
                "over_bound": life.is_over_bound,
                "false_eviction": life.is_false_eviction,
                "scan": life.said.get("scan"),
                "evict_seq": life.said.seq,
                "clients_exposed": exposed[life, True] + exposed[life, False],
                "clients_seen": exposed[life, True],
                "exposed_pulls": pulls.get(life, 0),
            }
            for life in self.intervals
        ]

    def client_rows(self) -> list[Row]:
        """The report's rows of exposed clients."""
        return [
            {
                **_names(client.life),
                "reason": client.life.reason,
                "evict_seq": client.life.said.seq,
                "client": client.client,
                "topic": client.topic,
                "outcome": client.outcome,
                "staleness_ms": client.staleness / lines.MICROSECONDS,
            }
            for client in self.clients
        ]

    def replayed_rows(self) -> list[Row]:
        """The report's rows of evictions that the replay makes under the logged settings."""
        return [
            {
                "boot_id": one.boot.boot,
                **Broker.of(one.beat)._asdict(),
                "scan": one.scan,
                "staleness_ms": one.staleness / lines.MICROSECONDS,
            }
            for one in replay_as_logged(self.boots)
        ]


def comparable(summary: dict[str, Any]) -> dict[str, Any]:
    """Without what the reference does not say: which near miss was the worst."""
    return {**summary, "near_misses": {x: value for x, value in summary["near_misses"].items() if x != "worst"}}


def _names(life: Life) -> Row:
    return {"nameserver": life.boot.nameserver, "boot_id": life.boot.boot, **life.broker._asdict()}


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
        # halves up, of whole numbers
        "mean": (2 * total + 1000 * len(ordered)) // (2000 * len(ordered)),
        "total_ms": lines.whole_milliseconds(total),
    }


def _input(analysis: Analysis, settings: Sequence[Row]) -> Row:
    counts = {name: {what: count[what] for what in lines.NUMBERS} for name, count in analysis.files.items()}
    # it is given lines, and knows nothing of files that end too early
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


def _registry(intervals: Sequence[Life]) -> Row:
    return {
        "all": _stats(life.upper for life in intervals),
        "lower": _stats(life.lower for life in intervals),
        "by_reason": _grouped((life.reason, life.upper) for life in intervals),
        "by_nameserver": _grouped((life.boot.nameserver, life.upper) for life in intervals),
        "by_cluster": _grouped((life.broker.cluster, life.upper) for life in intervals),
        "by_broker": _grouped(((life.broker.label, life.upper) for life in intervals), MOST),
        "over_bound": sum(life.is_over_bound for life in intervals),
    }


def _client(clients: Sequence[ClientStaleness]) -> Row:
    seen = [client for client in clients if client.outcome == "seen"]
    outcomes = Counter(client.outcome for client in clients)
    return {
        "all": _stats(client.staleness for client in seen),
        "by_reason": _grouped((client.life.reason, client.staleness) for client in seen),
        "by_topic": _grouped((client.topic, client.staleness) for client in seen),
        "by_client": _grouped(((client.client, client.staleness) for client in seen), MOST),
        "exposed": outcomes.total(),
        "seen": outcomes["seen"],
        "censored": {name: outcomes[name] for name in ("returned", "client_gone", "log_end")},
    }


def _grouped(pairs: Iterable[tuple[str | None, int]], most: int | None = None) -> dict[str, Stats]:
    """The numbers of each group; of too many groups, those with the longest total time."""
    values: dict[str, list[int]] = defaultdict(list)
    for key, value in pairs:
        values[key or ""].append(value)
    worst = sorted(values, key=lambda key: (-sum(values[key]), key))[:most]
    return {key: _stats(values[key]) for key in worst}


def _counted(name: str, by_broker: Mapping[str, int]) -> Row:
    return {name: sum(by_broker.values()), "by_broker": _most(by_broker)}


def _most(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST])


def _exposed_pulls(exposed: Iterable[tuple[Life, Counter[str]]]) -> Row:
    by_broker: Counter[str] = Counter()
    by_topic: Counter[str] = Counter()
    for life, pulls in exposed:
        by_topic.update(pulls)
        by_broker.update({life.broker.label: pulls.total()} if pulls else {})
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
    for cell, evictions in trials(analysis.boots, analysis.options.what_if):
        true = [eviction for eviction in evictions if not eviction.is_false]
        rows += [
            {
                **cell,
                "poll_ms": poll_ms,
                "evictions": len(evictions),
                "false": len(evictions) - len(true),
                "registry": _stats(eviction.staleness for eviction in true),
                "client": _stats(
                    value for one in true for value in client_staleness(one, poll_ms * lines.MICROSECONDS)
                ),
            }
            for poll_ms in analysis.options.what_if.poll_ms
        ]
    return rows
