"""Time until the server listens, its idle memory, and what people wait for at a prompt."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.figures import BenchError, Figure, Target, ratios, spelt_medians
from benchmarks.rounds import Bench
from benchmarks.servers import ROOT, daemon, environment

_TIMES_A_ROUND: Final = 2
# It serves when it would have printed its help; from a fresh copy, with the packages in the cache of this machine.
_MAKE_RUN: Final = ("make", "run", "ARGS=--help")
_PROGRAMS: Final = Path(sys.executable).parent
_CLONE: Final = ("git", "clone", "--quiet", "--depth=1")
_PATIENCE_SECONDS: Final = 300


def measure(bench: Bench) -> list[Figure]:
    """Starts in turn with those of a Python that does nothing."""
    resident: list[float] = []

    def start() -> float:
        found = []
        for _ in range(_TIMES_A_ROUND):
            with daemon(bench) as server:
                found.append(server.listening_after_seconds)
                resident.append(server.resident_bytes() / 1e6)
        return statistics.median(found)

    with daemon(bench) as server:
        commands = {
            "help": partial(_computing, "namesrv", "--help"),
            "status": partial(_computing, "namesrvctl", "-s", f"127.0.0.1:{server.port}", "status"),
            "client": partial(_computing, "python", "-c", "from namesrv_client import RouteClient, SyncRouteClient"),
        }
        prompts = bench.in_turn("commands", commands)
    found = bench.in_turn("starts", {"namesrv": start, "python": _bare_python})
    # it takes as long as a whole quick run
    copies = [] if bench.effort.is_quick else [_run_from_a_fresh_copy(bench)]
    return [
        Figure("startup.listening", "from exec to listening", "seconds", tuple(found["namesrv"]), Target("<=", 0.7)),
        Figure(
            "startup.ratio",
            "the same / a Python that does nothing",
            "times",
            ratios(found["namesrv"], found["python"]),
            behind=spelt_medians("seconds", found["namesrv"], found["python"]),
        ),
        Figure("startup.resident", "resident when it listens", "megabytes", tuple(resident), Target("<=", 60)),
        _cpu("help", "namesrv --help", prompts["help"], 0.2),
        _cpu("status", "namesrvctl status of one server", prompts["status"], 0.25),
        _cpu("client", "importing the client library", prompts["client"], 0.25),
        *(
            Figure(
                "startup.make_run",
                "make run in a fresh copy, packages in the cache, until it serves",
                "seconds",
                (seconds,),
                Target("<=", 25),
                behind=f"{computing:.1f} s of CPU",
            )
            for seconds, computing in copies
        ),
    ]


def _cpu(name: str, what: str, seconds: Sequence[float], most: float) -> Figure:
    return Figure(f"startup.{name}", f"CPU time of {what}", "seconds", tuple(seconds), Target("<=", most))


def _computing(program: str, *arguments: str) -> float:
    """What one of our programs that ends by itself takes of a core, in seconds."""
    before, command = _children_seconds(), [str(_PROGRAMS / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        raise BenchError(f"{program} {' '.join(arguments)}: {done.stderr.strip()}")
    return _children_seconds() - before


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run_from_a_fresh_copy(bench: Bench) -> tuple[float, float]:
    """Seconds on the clock, and of CPU."""
    bench.progress("make run in a fresh copy")
    with tempfile.TemporaryDirectory(prefix="namesrv-bench-copy-") as copy:
        cloned = subprocess.run((*_CLONE, ROOT.as_uri(), copy), stderr=subprocess.PIPE, text=True, check=False)
        if cloned.returncode:
            raise BenchError(f"git clone: {cloned.stderr.strip()}")
        began, computed = time.monotonic(), _children_seconds()
        process = subprocess.Popen(_MAKE_RUN, cwd=copy, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        # we keep to one core; people do not
        os.sched_setaffinity(process.pid, range(os.cpu_count() or 1))
        with process:
            try:
                said, _ = process.communicate(timeout=_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise BenchError(f"make run: not done after {_PATIENCE_SECONDS} s") from error
            finally:
                process.kill()
        if process.returncode:
            raise BenchError(f"make run: {said[-1000:]}")
        return time.monotonic() - began, _children_seconds() - computed


def _bare_python() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.monotonic() - began
