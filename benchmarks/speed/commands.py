"""Processor time of commands, which is most of the time that a person waits for them."""

import resource
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, at_most
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import daemon, environment

_PROGRAMS: Final = Path(sys.executable).parent
_IMPORT: Final = "from namesrv_client import RouteClient, SyncRouteClient"


def measure(bench: Bench) -> list[Figure]:
    """Processor time of commands."""
    with daemon(bench) as server:
        cases = {
            "help": ("namesrv --help", 0.2, ("namesrv", "--help")),
            "status": ("namesrvctl status of one server", 0.25, ("namesrvctl", "-s", server.address, "status")),
            "client": ("importing the client library", 0.25, ("python", "-c", _IMPORT)),
        }
        runs = {name: partial(_cpu_seconds, *command) for name, (_, _, command) in cases.items()}
        results = bench.in_turn("commands", runs)
    return [
        Figure(f"commands.{name}", f"CPU time of {what}", "seconds", results[name], at_most(most))
        for name, (what, most, _) in cases.items()
    ]


def _cpu_seconds(program: str, *arguments: str) -> float:
    """Processor time of a program from start to exit."""
    before, command = _children_seconds(), [str(_PROGRAMS / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        raise BenchError(f"{program} {' '.join(arguments)}: {done.stderr.strip()}")
    return _children_seconds() - before


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
