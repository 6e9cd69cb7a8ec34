"""1,000 broker agents on 3 NameServers, and how soon a change reaches all of them."""

import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from typing import Any, Final

from benchmarks import fleet
from benchmarks.figures import BenchError, Figure, Target
from benchmarks.rounds import Bench
from benchmarks.servers import ROOT, Server, daemon

SERVERS: Final = 3
# In the whole of a full run about 20 s of it: each broker says something to each server two times in three.
_SECONDS_FOR_ONE: Final = 2
_CHANGES_A_ROUND: Final = 30
# starting, five rounds, and leaving
_PATIENCE_SECONDS: Final = 180


def measure(bench: Bench) -> list[Figure]:
    """One process with all agents, on the core of the load; the servers share the other one."""
    with ExitStack() as stack:
        servers = [stack.enter_context(daemon(bench)) for _ in range(SERVERS)]
        bench.progress(f"{fleet.AGENTS:,} agents on {SERVERS} servers")
        return figures(_said(bench, servers))


def figures(said: dict[str, Any]) -> list[Figure]:
    """What the agents' process found.

    Raises:
        BenchError: it was disturbed: brokers had to register again.
    """
    if said["surplus_registrations"]:
        raise BenchError(f"agents: {said['surplus_registrations']} registrations too many, connections broke")
    reached = said["reached_ms"]
    return [
        Figure(
            "agents.cores",
            f"{fleet.AGENTS:,} agents in one process: cores they take",
            "times",
            tuple(said["cores"]),
            Target("<=", 0.25),
            behind=f"all registered {said['registering_seconds']:.1f} s after the first began",
        ),
        Figure(
            "agents.reached",
            f"from create_topic() until {SERVERS} servers have told a client: median",
            "milliseconds",
            tuple(statistics.median(times) for times in reached),
            Target("<=", 20),
        ),
        Figure(
            "agents.reached.longest",
            f"from create_topic() until {SERVERS} servers have told a client: longest",
            "milliseconds",
            tuple(max(times) for times in reached),
        ),
    ]


def _said(bench: Bench, servers: list[Server]) -> dict[str, Any]:
    command = [
        *(sys.executable, "-m", "benchmarks.fleet"),
        *("--rounds", str(bench.effort.rounds)),
        *("--seconds", str(_SECONDS_FOR_ONE * bench.effort.seconds)),
        *("--changes", str(_CHANGES_A_ROUND)),
        *(str(server.port) for server in servers),
    ]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"agents: not done after {_PATIENCE_SECONDS} s") from error
    if done.returncode:
        raise BenchError(f"agents: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
