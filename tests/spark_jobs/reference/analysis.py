"""The whole analysis: the definitions of docs/staleness.md, and summary.json, in plain Python."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from namesrv_spark_jobs.options import Options, WhatIf
from tests.spark_jobs.reference.as_logged import AsLogged, as_logged
from tests.spark_jobs.reference.boots import Boot, boots
from tests.spark_jobs.reference.divergence import Episode, episodes
from tests.spark_jobs.reference.exposure import ClientStaleness, Routes
from tests.spark_jobs.reference.lines import EVERYTHING, KNOWN, FileCount, Reading, read
from tests.spark_jobs.reference.lives import Life, NearMiss, near_misses
from tests.spark_jobs.reference.lives import lives as lives_of
from tests.spark_jobs.reference.numbers import percentile, whole_milliseconds
from tests.spark_jobs.reference.rows import Row, client_row, interval_row, replayed_row, wall_ms
from tests.spark_jobs.reference.what_if import Trial, trials

# the logged settings alone
NO_GRID = WhatIf(expiry_ms=(), scan_ms=(), poll_ms=(), phi=())
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
# of groups that may be many, so many are shown: the worst
MOST = 100
# what the bound is made of when no boot says more
EXPIRY_MS, SCAN_MS = 120_000, 10_000

Stats = dict[str, int | None]


@dataclass(frozen=True, slots=True)
class ExposedPulls:
    """How often the route of a broker that was gone was given out."""

    life: Life
    by_topic: Mapping[str, int]

    @property
    def count(self) -> int:
        """Of all topics."""
        return sum(self.by_topic.values())


@dataclass(frozen=True)
class Analysis:
    """All that was found, in the order of boots, brokers and time; replays are made when they are asked for."""

    options: Options
    reading: Reading
    boots: list[Boot]
    lives: list[Life]
    clients: list[ClientStaleness]
    near_misses: list[NearMiss]
    episodes: list[Episode]
    exposed_pulls: list[ExposedPulls]
    unknown_revisions: int

    @property
    def intervals(self) -> list[Life]:
        """The lives that ended."""
        return [life for life in self.lives if life.evict is not None]

    @property
    def false_evictions(self) -> list[Life]:
        """Those whose broker was back soon."""
        return [life for life in self.lives if life.is_false_eviction]

    @cached_property
    def trials(self) -> list[Trial]:
        """The replays: first under the logged settings, then under those of the grid."""
        return trials(self.boots, self.options.what_if)

    @cached_property
    def as_logged(self) -> AsLogged:
        """Whether the first of them came out as the log did."""
        return as_logged(self.boots, trials(self.boots, NO_GRID)[0].evictions)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json, without findings and worst rows."""
        return summary(self, self.options.what_if, self.options.poll_ms)

    def interval_rows(self) -> list[Row]:
        """The report's rows of lives that ended."""
        clients: dict[int, list[ClientStaleness]] = defaultdict(list)
        for client in self.clients:
            clients[id(client.life)].append(client)
        pulls = {id(exposed.life): exposed.count for exposed in self.exposed_pulls}
        return [interval_row(life, clients[id(life)], pulls.get(id(life), 0)) for life in self.intervals]

    def client_rows(self) -> list[Row]:
        """The report's rows of exposed clients."""
        return [client_row(client) for client in self.clients]

    def replayed_rows(self) -> list[Row]:
        """The report's rows of evictions that the replay makes under the logged settings."""
        return [replayed_row(eviction) for eviction in trials(self.boots, NO_GRID)[0].evictions]


def analyse(files: Mapping[str, Iterable[str | bytes]], options: Options = EVERYTHING) -> Analysis:
    """Everything that the files say."""
    reading = read(files, options)
    servers = boots(reading.lines)
    for boot in servers:
        for file in boot.clock_steps:
            reading.files[file].clock_steps += 1
    lives = [life for boot in servers for life in lives_of(boot)]
    routes = {boot.boot: Routes(boot) for boot in servers}
    unannounced = [life for life in lives if life.is_unannounced]
    return Analysis(
        options=options,
        reading=reading,
        boots=servers,
        lives=lives,
        clients=[staleness for life in unannounced for staleness in routes[life.boot.boot].exposed(life)],
        near_misses=[miss for life in lives for miss in near_misses(life)],
        episodes=episodes(servers, lives),
        exposed_pulls=[ExposedPulls(life, routes[life.boot.boot].pulls(life)) for life in unannounced],
        unknown_revisions=sum(routes[boot.boot].unknown_revisions for boot in servers),
    )


def summary(analysis: Analysis, grid: WhatIf, poll_ms: int) -> dict[str, Any]:
    """All of it but the findings and the worst rows, which only say again what is in the others."""
    return {
        "schema": 1,
        "input": _input(analysis.reading, analysis.boots),
        "settings": [_settings(boot) for boot in analysis.boots],
        "bound_ms": _bound_ms(analysis.boots, poll_ms),
        "registry": _registry(analysis.intervals),
        "client": _client(analysis),
        "false_evictions": _counted("count", Counter(life.broker.label for life in analysis.false_evictions)),
        "exposed_pulls": _exposed_pulls(analysis),
        "near_misses": _near_misses(analysis),
        "divergence": _divergence(analysis),
        "as_logged": analysis.as_logged.numbers(),
        "what_if": _what_if(analysis, grid),
    }


def comparable(summary: dict[str, Any]) -> dict[str, Any]:
    """Without what the reference does not say: which files end too early, and which near miss was the worst."""
    files = [{name: row[name] for name in row if name != "truncated"} for row in summary["input"]["per_file"]]
    known = {name: value for name, value in summary["input"].items() if name != "truncated_files"}
    near = {name: value for name, value in summary["near_misses"].items() if name != "worst"}
    return {**summary, "input": {**known, "per_file": files}, "near_misses": near}


def stats(values: Sequence[float]) -> Stats:
    """Percentiles and sums of times, in whole milliseconds."""
    if not values:
        return {"count": 0, **dict.fromkeys((*PERCENTILES, "max", "mean")), "total_ms": 0}
    ordered = sorted(values)
    total = round(sum(ordered))
    return {
        "count": len(ordered),
        **{name: whole_milliseconds(percentile(ordered, part)) for name, part in PERCENTILES.items()},
        "max": whole_milliseconds(ordered[-1]),
        # halves up, of whole numbers
        "mean": (2 * total + 1000 * len(ordered)) // (2000 * len(ordered)),
        "total_ms": whole_milliseconds(total),
    }


def _input(reading: Reading, boots: Sequence[Boot]) -> dict[str, Any]:
    files = {name: asdict(count) for name, count in reading.files.items()}
    events = Counter(line.event for line in reading.lines if line.event in KNOWN)
    return {
        **{name: sum(count[name] for count in files.values()) for name in FileCount.__slots__},
        "files": len(files),
        "events": dict(events),
        "from_ms": min((wall_ms(boot, boot.first.at) for boot in boots), default=None),
        "until_ms": max((wall_ms(boot, boot.last.at) for boot in boots), default=None),
        "nameservers": sorted({boot.nameserver or "" for boot in boots}),
        "per_file": [{"file": name, **files[name]} for name in sorted(files)],
    }


def _settings(boot: Boot) -> dict[str, Any]:
    return {
        "nameserver": boot.nameserver,
        "boot_id": boot.boot,
        "version": boot.version,
        "scan_interval_ms": None if boot.scan_interval is None else whole_milliseconds(boot.scan_interval),
        "broker_expiry_ms": None if boot.expiry is None else whole_milliseconds(boot.expiry),
        "from_ms": wall_ms(boot, boot.first.at),
        "until_ms": wall_ms(boot, boot.last.at),
    }


def _bound_ms(boots: Sequence[Boot], poll_ms: int) -> int:
    expiries = [whole_milliseconds(boot.expiry) for boot in boots if boot.expiry is not None]
    scans = [whole_milliseconds(boot.scan_interval) for boot in boots if boot.scan_interval is not None]
    return max(expiries, default=EXPIRY_MS) + max(scans, default=SCAN_MS) + poll_ms


def _registry(intervals: Sequence[Life]) -> dict[str, Any]:
    return {
        "all": stats([life.upper for life in intervals]),
        "lower": stats([life.lower for life in intervals]),
        "by_reason": _grouped((life.reason, life.upper) for life in intervals),
        "by_nameserver": _grouped((life.boot.nameserver, life.upper) for life in intervals),
        "by_cluster": _grouped((life.broker.cluster, life.upper) for life in intervals),
        "by_broker": _grouped(((life.broker.label, life.upper) for life in intervals), MOST),
        "over_bound": sum(life.is_over_bound for life in intervals),
    }


def _client(analysis: Analysis) -> dict[str, Any]:
    seen = [client for client in analysis.clients if client.outcome == "seen"]
    outcomes = Counter(client.outcome for client in analysis.clients)
    return {
        "all": stats([client.staleness for client in seen]),
        "by_reason": _grouped((client.life.reason, client.staleness) for client in seen),
        "by_topic": _grouped((client.topic, client.staleness) for client in seen),
        "by_client": _grouped(((client.client, client.staleness) for client in seen), MOST),
        "exposed": outcomes.total(),
        "seen": outcomes["seen"],
        "censored": {name: outcomes[name] for name in ("returned", "client_gone", "log_end")},
        "unknown_revisions": analysis.unknown_revisions,
    }


def _grouped(pairs: Iterable[tuple[str | None, int]], most: int | None = None) -> dict[str, Stats]:
    """The numbers of each group; of too many groups, those with the longest total time."""
    values: dict[str, list[int]] = defaultdict(list)
    for key, value in pairs:
        values[key or ""].append(value)
    worst = sorted(values, key=lambda key: (-sum(values[key]), key))[:most]
    return {key: stats(values[key]) for key in worst}


def _counted(name: str, by_broker: Mapping[str, int]) -> dict[str, Any]:
    return {name: sum(by_broker.values()), "by_broker": _most(by_broker)}


def _most(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST])


def _exposed_pulls(analysis: Analysis) -> dict[str, Any]:
    by_broker: Counter[str] = Counter()
    by_topic: Counter[str] = Counter()
    for exposed in analysis.exposed_pulls:
        for topic, count in exposed.by_topic.items():
            by_broker[exposed.life.broker.label] += count
            by_topic[topic] += count
    return {**_counted("total", by_broker), "by_topic": _most(by_topic)}


def _near_misses(analysis: Analysis) -> dict[str, Any]:
    found = analysis.near_misses
    return {
        **_counted("count", Counter(miss.broker.label for miss in found)),
        "longest_ms": max((whole_milliseconds(miss.silence) for miss in found), default=None),
    }


def _divergence(analysis: Analysis) -> dict[str, Any]:
    lengths: dict[str, list[int]] = defaultdict(list)
    for episode in analysis.episodes:
        lengths[episode.broker.label].append(episode.ended - episode.began)
    worst = sorted(lengths, key=lambda label: (-sum(lengths[label]), label))[:MOST]
    return {
        **_lengths([length for found in lengths.values() for length in found]),
        "by_broker": {label: _lengths(lengths[label]) for label in worst},
    }


def _lengths(lengths: Sequence[int]) -> dict[str, int]:
    return {
        "total_ms": whole_milliseconds(sum(lengths)),
        "episodes": len(lengths),
        "longest_ms": whole_milliseconds(max(lengths, default=0)),
    }


def _what_if(analysis: Analysis, grid: WhatIf) -> list[dict[str, Any]]:
    return [
        {
            "policy": trial.policy,
            "expiry_ms": trial.expiry_ms,
            "phi": trial.phi,
            "scan_ms": trial.scan_ms,
            "poll_ms": poll_ms,
            "evictions": len(trial.evictions),
            "false": sum(eviction.is_false for eviction in trial.evictions),
            "registry": stats(trial.registry()),
            "client": stats(trial.clients(poll_ms)),
        }
        for trial in analysis.trials
        for poll_ms in grid.poll_ms
    ]
