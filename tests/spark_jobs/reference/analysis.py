"""The whole analysis: the definitions of docs/staleness.md, in plain Python."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from namesrv_spark_jobs.options import Options, WhatIf
from tests.spark_jobs.reference import lives as of_lives
from tests.spark_jobs.reference.as_logged import AsLogged, as_logged
from tests.spark_jobs.reference.boots import Boot, boots
from tests.spark_jobs.reference.divergence import Episode, episodes
from tests.spark_jobs.reference.exposure import ClientStaleness, Routes
from tests.spark_jobs.reference.lines import EVERYTHING, Reading, read
from tests.spark_jobs.reference.lives import Life, NearMiss
from tests.spark_jobs.reference.rows import Row, client_row, interval_row, replayed_row
from tests.spark_jobs.reference.summary import summary
from tests.spark_jobs.reference.what_if import Trial, trials

# the logged settings alone
NO_GRID = WhatIf(expiry_ms=(), scan_ms=(), poll_ms=(), phi=())


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
    lives = [life for boot in servers for life in of_lives.lives(boot)]
    routes = {boot.boot: Routes(boot) for boot in servers}
    unannounced = [life for life in lives if life.is_unannounced]
    return Analysis(
        options=options,
        reading=reading,
        boots=servers,
        lives=lives,
        clients=[staleness for life in unannounced for staleness in routes[life.boot.boot].exposed(life)],
        near_misses=[miss for life in lives for miss in of_lives.near_misses(life)],
        episodes=episodes(servers, lives),
        exposed_pulls=[ExposedPulls(life, routes[life.boot.boot].pulls(life)) for life in unannounced],
        unknown_revisions=sum(routes[boot.boot].unknown_revisions for boot in servers),
    )
