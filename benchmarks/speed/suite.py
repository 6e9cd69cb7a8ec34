"""Speed and memory of the NameServer, of agents, clients, console and report.

A missed target is a result: the exit code is 1 only when something could not be measured.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from benchmarks.harness.command import Command, Measure, by_title, measure_and_report, titles
from benchmarks.harness.rounds import FULL, QUICK, Bench
from benchmarks.speed import (
    agents,
    client,
    commands,
    console,
    eviction,
    herd,
    memory,
    profiles,
    pulls,
    registration,
    rolling,
    staleness,
    tls,
)

# in the order of the report
SUBJECTS: Final[Mapping[str, Measure]] = {
    "pulls": pulls.measure_pulls,
    "heartbeats": pulls.measure_heartbeats,
    "heartbeat_log": pulls.measure_heartbeat_log,
    "registration": registration.measure_beside_pulls,
    "registration_cost": registration.measure_cost,
    "eviction": eviction.measure_deaths,
    "memory": memory.measure_topics,
    "connections": memory.measure_connections,
    "herd": herd.measure,
    "rolling": rolling.measure,
    "profiles": profiles.measure,
    "tls": tls.measure,
    "commands": commands.measure,
    "agents": agents.measure,
    "client": client.measure,
    "staleness": staleness.measure,
    "console": console.measure,
}


def main(arguments: Sequence[str]) -> int:
    """Measure speed and size."""
    command = Command("speed", "Measure speed and size of the NameServer.", titles(SUBJECTS))
    command.add_results()
    command.add_quick()
    options = command.parse(arguments)
    with Bench.pinned(QUICK if options.quick else FULL) as bench:
        _, is_complete = measure_and_report(bench, SUBJECTS, options, partial(by_title, SUBJECTS))
    return int(not is_complete)
