"""Speed and memory of the NameServer, of agents, clients, console and report.

A missed target is a result: the exit code is 1 only when something could not be measured.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from benchmarks.harness.command import Command, measured, report
from benchmarks.harness.conditions import Conditions
from benchmarks.harness.figures import Figure
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

# Measures one subject, which the first line of the function's docstring describes. Raises BenchError.
Measure = Callable[[Bench], list[Figure]]

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
    add_quick(command)
    options = command.parse(arguments)
    with Bench.pinned(QUICK if options.quick else FULL) as bench:
        return run(bench, SUBJECTS, options)


def titles(subjects: Mapping[str, object]) -> dict[str, str]:
    """The description of each subject."""
    return {name: (each.__doc__ or "").partition("\n")[0].rstrip(".") for name, each in subjects.items()}


def add_quick(command: Command) -> None:
    """Add the option --quick to a command."""
    command.parser.add_argument("--quick", action="store_true", help="two short rounds instead of five: a rough idea")


def run(bench: Bench, subjects: Mapping[str, Measure], options: argparse.Namespace) -> int:
    """Measure the requested subjects, or all, report their figures, and return the exit code."""
    conditions, what = Conditions.now(), titles(subjects)
    named = options.only or list(subjects)
    figures, unmeasured = measured(bench, {name: partial(subjects[name], bench) for name in named})
    sections = {what[name]: each for name, each in figures.items()}
    every = [figure for each in figures.values() for figure in each]
    report(options, conditions.members(), sections, every, is_complete=not unmeasured)
    return int(bool(unmeasured))
