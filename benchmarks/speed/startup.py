"""Time until the server listens, its idle memory, and the cost of commands."""

import resource
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, at_most, compared
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import daemon, environment

_TIMES_A_ROUND: Final = 2
_PROGRAMS: Final = Path(sys.executable).parent


def measure(bench: Bench) -> list[Figure]:
    """Time until the server listens, its idle memory, and the cost of commands."""
    resident: list[float] = []

    def start() -> float:
        seconds = []
        for _ in range(_TIMES_A_ROUND):
            with daemon(bench) as server:
                seconds.append(server.listening_after_seconds)
                resident.append(server.status_bytes() / 1e6)
        return statistics.median(seconds)

    with daemon(bench) as server:
        library = "from namesrv_client import RouteClient, SyncRouteClient"
        prompts = bench.in_turn(
            "commands",
            {
                "help": partial(_cpu_seconds, "namesrv", "--help"),
                "status": partial(_cpu_seconds, "namesrvctl", "-s", server.address, "status"),
                "client": partial(_cpu_seconds, "python", "-c", library),
            },
        )
    # The reference is a Python interpreter that does nothing.
    starts = bench.in_turn("starts", {"namesrv": start, "python": _bare_python})
    ratio = "the same / a Python that does nothing"
    figures = [
        Figure("startup.listening", "from exec to listening", "seconds", starts["namesrv"], at_most(0.7)),
        compared("startup.ratio", ratio, "seconds", (starts["namesrv"], starts["python"])),
        Figure("startup.resident", "resident when it listens", "megabytes", resident, at_most(60)),
    ]
    for name, what, most in (
        ("help", "namesrv --help", 0.2),
        ("status", "namesrvctl status of one server", 0.25),
        ("client", "importing the client library", 0.25),
    ):
        figures.append(Figure(f"startup.{name}", f"CPU time of {what}", "seconds", prompts[name], at_most(most)))
    return figures


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


def _bare_python() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.monotonic() - began
