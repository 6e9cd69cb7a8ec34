"""What more servers than a machine can hold would need, calculated from what one was measured to cost.

`python -m benchmarks.scale` prints the table of docs/scale.md; with `--json` it takes the figures of a run of
`make bench ARGS='--json FILE'` in place of those below, and with `--write` it replaces the table on the page.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.figures import BenchError
from benchmarks.profiles import COPIES, PROFILES
from benchmarks.report import with_block

# Figures of docs/benchmarks.md, by their names.
MEASURED: Final[Mapping[str, float]] = {
    "heartbeats.904.rate": 134_804,
    "registration_cost.unchanged": 1.554,
    "registration_cost.fields": 10.42,
    "connections.idle": 2.358,
    "startup.resident": 51.33,
    "profiles.L.resident": 153.8,
    "profiles.L.death.computing": 70,
    "profiles.L.pulls.computing": 30.05,
    "profiles.L.restart.computing": 4.873,
}
_REGISTERED_TOPICS: Final = 10_000
_WATCH_KIB: Final = 0.5

# What a server should not exceed. A core that is busy for more than this has nothing left for a neighbour's clients;
# memory is what --max-memory-bytes is raised to; clients are refused for at most --wait-for-service-seconds.
MOST_CORE: Final = 0.6
MOST_MEMORY_MB: Final = 4_096
MOST_RESTART_SECONDS: Final = 45
MOST_TOLD_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Costs:
    """What one of each takes of a server."""

    heartbeat_us: float
    # of each topic: of a broker that says the same again, and of one that is new
    same_topic_us: float
    new_topic_us: float
    # a client's question, and its answer when something that it waits for has changed
    pull_us: float
    told_us: float
    # a connection with its first question, after a restart
    connect_us: float
    connection_kib: float
    # with its name, its routes and answers, on four brokers
    topic_kib: float
    empty_mb: float

    @classmethod
    def of(cls, measured: Mapping[str, float]) -> "Costs":
        """From figures of the benchmarks, by their names."""
        profile = PROFILES["L"]
        connections = profile.brokers + profile.clients
        connection_kib, empty_mb = measured["connections.idle"], measured["startup.resident"]
        new_topic_us = measured["registration_cost.fields"] * 1000 / _REGISTERED_TOPICS
        topics_mb = measured["profiles.L.resident"] - empty_mb - connections * connection_kib * 1024 / 1e6
        registering_us = profile.topics * COPIES * new_topic_us
        return cls(
            heartbeat_us=1e6 / measured["heartbeats.904.rate"],
            same_topic_us=measured["registration_cost.unchanged"] * 1000 / _REGISTERED_TOPICS,
            new_topic_us=new_topic_us,
            pull_us=measured["profiles.L.pulls.computing"],
            told_us=measured["profiles.L.death.computing"],
            connect_us=(measured["profiles.L.restart.computing"] * 1e6 - registering_us) / connections,
            connection_kib=connection_kib,
            topic_kib=topics_mb * 1e6 / 1024 / profile.topics,
            empty_mb=empty_mb,
        )


@dataclass(frozen=True, slots=True)
class Fleet:
    """Servers, and who uses them. Every broker is on every server, every client on one."""

    what: str
    servers: int = 10
    brokers: int = 10_000
    topics: int = 1_000_000
    clients: int = 1_000_000
    # that each client uses
    client_topics: int = 10
    # A heartbeat, and all topics again if nothing has changed. Real brokers do the latter every 30 s.
    heartbeat_seconds: float = 30
    register_seconds: float = 30
    # how often a client asks for each topic; when it watches, it asks once for all of them, and this often at least
    pull_seconds: float = 30
    is_watching: bool = False


FLEETS: Final = (
    XL := Fleet("XL: 10 servers, polls every 30 s"),
    replace(XL, what="polls every 120 s", pull_seconds=120),
    replace(XL, what="40 servers", servers=40),
    WATCHING := replace(XL, what="clients watch", pull_seconds=300, is_watching=True),
    replace(WATCHING, what="they watch, and brokers beat every 5 s", heartbeat_seconds=5),
    replace(WATCHING, what="they watch 20 servers", servers=20),
    # half of everything on half of the servers: as many clients on each
    replace(WATCHING, what="they watch 20 servers, two slices", brokers=5_000, topics=500_000, clients=500_000),
)


@dataclass(frozen=True, slots=True)
class Need:
    """What one server of a fleet needs."""

    connections: int
    # of a core, all day: for brokers, for clients
    broker_core: float
    client_core: float
    memory_mb: float
    # of computing, until all brokers of a restarted server have registered, and its clients have asked once
    restart_seconds: float
    # of computing, until the last client knows: of a broker's death, of the deaths of 100 at once
    told_seconds: float
    rack_told_seconds: float

    def first(self) -> tuple[str, float]:
        """What ends first, and which part of it is used; more than 1 is more than there is."""
        shares = {
            "core": (self.broker_core + self.client_core) / MOST_CORE,
            "memory": self.memory_mb / MOST_MEMORY_MB,
            "restart": self.restart_seconds / MOST_RESTART_SECONDS,
            "100 deaths": self.rack_told_seconds / MOST_TOLD_SECONDS,
        }
        return max(shares.items(), key=lambda found: found[1])


def need(fleet: Fleet, costs: Costs) -> Need:
    """Calculate it."""
    clients = fleet.clients / fleet.servers
    connections = fleet.brokers + clients
    of_broker = fleet.topics * COPIES / fleet.brokers
    questions = clients * (1 if fleet.is_watching else fleet.client_topics) / fleet.pull_seconds
    # a question about several topics costs what a told one costs
    question_us = costs.told_us if fleet.is_watching else costs.pull_us
    watched = clients * fleet.client_topics if fleet.is_watching else 0
    beats_us = fleet.brokers / fleet.heartbeat_seconds * costs.heartbeat_us
    registrations_us = fleet.brokers / fleet.register_seconds * of_broker * costs.same_topic_us
    restart_us = fleet.brokers * of_broker * costs.new_topic_us + connections * costs.connect_us
    return Need(
        connections=round(connections),
        broker_core=(beats_us + registrations_us) / 1e6,
        client_core=questions * question_us / 1e6,
        memory_mb=costs.empty_mb
        + (fleet.topics * costs.topic_kib + connections * costs.connection_kib + watched * _WATCH_KIB) * 1024 / 1e6,
        restart_seconds=restart_us / 1e6,
        told_seconds=_told(fleet, clients, of_broker) * costs.told_us / 1e6,
        rack_told_seconds=_told(fleet, clients, 100 * of_broker) * costs.told_us / 1e6,
    )


def _told(fleet: Fleet, clients: float, changed_topics: float) -> float:
    """Clients of one server with at least one of the topics; nobody is told who does not watch."""
    if not fleet.is_watching:
        return 0
    return clients * (1 - (1 - changed_topics / fleet.topics) ** fleet.client_topics)


def table(costs: Costs, fleets: Sequence[Fleet] = FLEETS) -> str:
    """One line for each fleet, as Markdown."""
    headings = ("each server", "connections", "core, brokers", "core, clients", "memory", "restart", "a death")
    lines = [
        f"| {' | '.join(headings)} | 100 deaths | ends first |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --- |",
    ]
    for fleet in fleets:
        its = need(fleet, costs)
        tellings = (its.told_seconds, its.rack_told_seconds)
        what, share = its.first()
        cells = (
            *(fleet.what, f"{its.connections:,}", f"{its.broker_core:.2f}", f"{its.client_core:.2f}"),
            *(f"{its.memory_mb:,.0f} MB", f"{its.restart_seconds:.0f} s"),
            *(f"{seconds:.2f} s" if fleet.is_watching else "next poll" for seconds in tellings),
            f"{what}, {share:.0%}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or put it on the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description="Calculate servers of any size.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="figures of a run; those that it lacks stay")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the marked block of a Markdown file")
    options = parser.parse_args(arguments)
    measured = dict(MEASURED)
    if options.json is not None:
        figures = json.loads(options.json.read_text(encoding="utf-8"))["figures"]
        measured |= {each["name"]: each["value"] for each in figures if each["name"] in measured}
    found = table(Costs.of(measured))
    if options.write is None:
        print(found)
        return 0
    try:
        options.write.write_text(with_block(options.write.read_text(encoding="utf-8"), found), encoding="utf-8")
    except BenchError as error:
        print(f"scale: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
