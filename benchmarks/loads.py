"""Runs load.c against a server and reads its results."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.figures import BenchError
from benchmarks.rounds import Bench
from benchmarks.servers import Server

# load gives up by itself 60 s after its time
_PATIENCE_SECONDS: Final = 75
# One connection that always waits for one answer: the longest it waited is the longest that the loop did something
# else. Nothing should run beside it but what is asked about, so that nobody takes the core from it.
PROBE: Final = ("--connections", "1", "--depth", "1")


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of load found."""

    answers: int
    answers_per_second: float
    p50_us: float
    p99_us: float
    p999_us: float
    # the longest anybody waited, whether an answer came in the end or not
    longest_us: float
    # answers with another code than 0
    failed: int
    # the server's computing time for each: it stays the same when somebody else wants the core, too
    computing_us: float


def read_load(line: str, computing_seconds: float) -> Load:
    """The line of JSON that load prints, and how long the server computed meanwhile.

    Raises:
        BenchError: it is none.
    """
    try:
        said = json.loads(line)
        return Load(
            answers=int(said["answers"]),
            answers_per_second=float(said["answers_per_second"]),
            p50_us=float(said["p50_us"]),
            p99_us=float(said["p99_us"]),
            p999_us=float(said["p999_us"]),
            longest_us=max(float(said["max_us"]), float(said["oldest_unanswered_us"])),
            failed=int(said["failed"]),
            computing_us=computing_seconds * 1e6 / int(said["answers"]),
        )
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise BenchError(f"load printed {line.strip()[:200]!r}: {error!r}") from error


def run(bench: Bench, server: Server, *flags: str, seconds: int | None = None) -> Load:
    """Ask a server for some seconds; each answer has to be a good one.

    Raises:
        BenchError: load failed, or answers had another code than 0.
    """
    lasts = bench.effort.seconds if seconds is None else seconds
    command = [str(bench.load_program), "--port", str(server.port), "--seconds", str(lasts), *flags]
    return run_program(server, command, lasts)


def run_program(server: Server, command: Sequence[str], seconds: int, given: bytes = b"") -> Load:
    """What a load of that many seconds finds, which is given something on standard input; each answer is a good one.

    Raises:
        BenchError: it failed, or there were other answers.
    """
    name = " ".join((Path(command[0]).name, *command[1:]))
    computed = server.cpu_seconds()
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, check=False, timeout=seconds + _PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{name}: not done after {error.timeout:g} s") from error
    if done.returncode:
        raise BenchError(f"{name}: {done.stderr.decode(errors='replace').strip()}")
    load = read_load(done.stdout.decode(), server.cpu_seconds() - computed)
    if load.failed:
        raise BenchError(f"{name}: {load.failed} of {load.answers} answers are not good ones")
    return load


@contextmanager
def idle(bench: Bench, server: Server, connections: int, flags: Sequence[str] = ()) -> Iterator[None]:
    """That many connections that say nothing, open when the block begins.

    Raises:
        BenchError: they could not be opened, or the server closed one.
    """
    command = [str(bench.load_program), "--port", str(server.port), "--idle", str(connections), *flags]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            # it prints one line when all are open, nothing when it fails
            if process.stdout is None or not process.stdout.readline():
                _, why = process.communicate()
                raise BenchError(f"{connections} idle connections: {why.strip()}")
            yield
            _, why = process.communicate(timeout=_PATIENCE_SECONDS)
        finally:
            process.kill()
    if process.returncode:
        raise BenchError(f"{connections} idle connections: {why.strip()}")


def rates(loads: Sequence[Load]) -> list[float]:
    """Answers per second, round by round."""
    return [load.answers_per_second for load in loads]


def p99s(loads: Sequence[Load]) -> list[float]:
    """How late the last hundredth was, round by round, in milliseconds."""
    return [load.p99_us / 1000 for load in loads]


def longests(loads: Sequence[Load]) -> list[float]:
    """How long anybody waited at most, round by round, in milliseconds."""
    return [load.longest_us / 1000 for load in loads]


def computing(loads: Sequence[Load]) -> list[float]:
    """The server's computing time for each answer, round by round, in microseconds."""
    return [load.computing_us for load in loads]
