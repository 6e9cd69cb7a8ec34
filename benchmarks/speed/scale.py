"""What more servers than a machine can hold would need, calculated from what one was measured to cost.

`python -m benchmarks scale` prints the table of docs/scale.md; with `--write` it replaces the table on the page. The
costs are figures of the last `make bench`, as far as it has them, and those below.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.harness.build import BUILT
from benchmarks.harness.command import Command, write_block
from benchmarks.harness.table import markdown
from benchmarks.speed.profiles import COPIES, PROFILES

# figures of docs/benchmarks.md, by their names
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
# The most that a server should use. A core that is busy for more than this has nothing left for a neighbour's clients;
# memory is what --max-memory-bytes is raised to; clients are refused for at most --wait-for-service-seconds.
_LIMITS: Final = {"core": 0.6, "memory": 4_096, "restart": 45, "100 deaths": 10}
_HEADINGS: Final = (
    *("each server", "connections", "core, brokers", "core, clients", "memory", "restart", "a death", "100 deaths"),
    "ends first",
)


@dataclass(frozen=True, slots=True)
class Costs:
    """What one of each takes of a server."""

    heartbeat_us: float
    # of each topic: of a broker that registers the same again, and of one that is new
    same_topic_us: float
    new_topic_us: float
    # a client's pull, and its notification when something that it watches has changed
    pull_us: float
    notify_us: float
    # a connection with its first request, after a restart
    connect_us: float
    connection_kib: float
    # with its name, its routes and responses, on four brokers
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
            notify_us=measured["profiles.L.death.computing"],
            connect_us=(measured["profiles.L.restart.computing"] * 1e6 - registering_us) / connections,
            connection_kib=connection_kib,
            topic_kib=topics_mb * 1e6 / 1024 / profile.topics,
            empty_mb=empty_mb,
        )


@dataclass(frozen=True, slots=True)
class Fleet:
    """Servers, and what uses them. Every broker is on every server, every client on one."""

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
    # how often a client pulls each topic; one that watches sends one request for all of them, at least this often
    pull_seconds: float = 30
    is_watching: bool = False


FLEETS: Final = (
    XL := Fleet("XL: 10 servers, polls every 30 s"),
    replace(XL, what="polls every 120 s", pull_seconds=120),
    replace(XL, what="40 servers", servers=40),
    WATCHING := replace(XL, what="clients watch", pull_seconds=300, is_watching=True),
    replace(WATCHING, what="they watch, and heartbeats every 5 s", heartbeat_seconds=5),
    replace(WATCHING, what="they watch 20 servers", servers=20),
    # half of everything on half of the servers: as many clients on each
    replace(WATCHING, what="they watch 20 servers, two slices", brokers=5_000, topics=500_000, clients=500_000),
)


def needed(fleet: Fleet, costs: Costs) -> dict[str, float]:
    """What one server of a fleet needs, by the heading of its column, and what ends first."""
    clients = fleet.clients / fleet.servers
    connections = fleet.brokers + clients
    of_broker = fleet.topics * COPIES / fleet.brokers
    requests = clients * (1 if fleet.is_watching else fleet.client_topics) / fleet.pull_seconds
    # a request about several topics costs what a notification costs
    request_us = costs.notify_us if fleet.is_watching else costs.pull_us
    watched = clients * fleet.client_topics if fleet.is_watching else 0
    brokers_us = fleet.brokers * (
        costs.heartbeat_us / fleet.heartbeat_seconds + of_broker * costs.same_topic_us / fleet.register_seconds
    )
    kib = fleet.topics * costs.topic_kib + connections * costs.connection_kib + watched * _WATCH_KIB
    found = {
        "connections": connections,
        "core, brokers": brokers_us / 1e6,
        "core, clients": requests * request_us / 1e6,
        "memory": costs.empty_mb + kib * 1024 / 1e6,
        # of computing, until all brokers of a restarted server have registered, and its clients have sent one request
        "restart": (fleet.brokers * of_broker * costs.new_topic_us + connections * costs.connect_us) / 1e6,
        # of computing, until the last client is notified; clients that do not watch learn at their next poll
        "a death": _notified(fleet, clients, of_broker) * costs.notify_us / 1e6,
        "100 deaths": _notified(fleet, clients, 100 * of_broker) * costs.notify_us / 1e6,
    }
    return {**found, "core": found["core, brokers"] + found["core, clients"]}


def _notified(fleet: Fleet, clients: float, changed_topics: float) -> float:
    """Clients of one server that watch at least one of the topics."""
    if not fleet.is_watching:
        return 0
    return clients * (1 - (1 - changed_topics / fleet.topics) ** fleet.client_topics)


def ends_first(need: Mapping[str, float]) -> tuple[str, float]:
    """What ends first, and which part of it is used; more than 1 is more than there is."""
    return max(((name, need[name] / most) for name, most in _LIMITS.items()), key=lambda each: each[1])


def table(costs: Costs, fleets: Sequence[Fleet] = FLEETS) -> str:
    """One line for each fleet, as Markdown."""
    return markdown([_HEADINGS, *(_row(fleet, needed(fleet, costs)) for fleet in fleets)], range(1, 8))


def _row(fleet: Fleet, need: Mapping[str, float]) -> Sequence[str]:
    deaths = (f"{need[name]:.2f} s" if fleet.is_watching else "next poll" for name in ("a death", "100 deaths"))
    cores = (f"{need[name]:.2f}" for name in ("core, brokers", "core, clients"))
    what, share = ends_first(need)
    sizes = (f"{need['memory']:,.0f} MB", f"{need['restart']:.0f} s")
    return (fleet.what, f"{need['connections']:,.0f}", *cores, *sizes, *deaths, f"{what}, {share:.0%}")


def main(arguments: Sequence[str]) -> int:
    """Print the table, or put it on the page."""
    command = Command("scale", "Calculate servers of any size.", {})
    command.parser.set_defaults(json=BUILT / "speed.json")
    options = command.parse(arguments)
    found = table(Costs.of({**MEASURED, **_measured(options.json)}))
    if options.write is None:
        print(found)
    else:
        write_block(options.write, found)
    return 0


def _measured(results: Path) -> dict[str, float]:
    """The figures of a run by name, those that count here; none when there was no run."""
    if not results.exists():
        return {}
    figures = json.loads(results.read_text(encoding="utf-8"))["figures"]
    return {each["name"]: each["value"] for each in figures if each["name"] in MEASURED}
