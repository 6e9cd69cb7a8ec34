"""namesrv-staleness on both engines, with logs that grow.

CPU seconds explain the seconds on the clock, because other processes use part of a shared machine.
"""

import contextlib
import glob
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, at_least, at_most, format_value
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Server, temporary_directory

# log -> lines in a full run, lines in a quick run
_LINES: Final = {"least": (200_000, 20_000), "small": (5_000_000, 200_000), "large": (20_000_000, 800_000)}
_LONGEST_SECONDS: Final = 1800
_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class _Engine:
    """An engine of the report, and its targets."""

    options: tuple[str, ...]
    # log with which the rate is measured, and the least rate in lines a second
    rated: str
    rate: float
    # longest time for the least log
    seconds: float


_ENGINES: Final = {
    "embedded": _Engine(("--engine", "embedded"), "small", 300_000, 10),
    "Spark": _Engine(("--master", "local[2]"), "large", 200_000, 20),
}


@dataclass(frozen=True, slots=True)
class _Log:
    directory: Path
    lines: int


@dataclass(frozen=True, slots=True)
class _Report:
    """One run of the report; CPU and memory include those of Java."""

    lines: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int

    @property
    def details(self) -> str:
        """The processor time, as text."""
        return f"{format_value(self.cpu_seconds, 'seconds')} of CPU"


def measure(bench: Bench) -> list[Figure]:
    """namesrv-staleness on both engines, with logs that grow."""
    with temporary_directory("staleness") as root:
        logs = {
            case: _generated(bench, root / case, quick if bench.effort.is_quick else full)
            for case, (full, quick) in _LINES.items()
        }
        return [figure for name in _ENGINES for figure in _measured(bench, name, logs, root)]


def _measured(bench: Bench, name: str, logs: Mapping[str, _Log], root: Path) -> list[Figure]:
    engine = _ENGINES[name]
    cases = dict.fromkeys(("least", engine.rated, "large"))
    reports = {case: _reported(bench, engine, logs[case], root / f"{name}-{case}") for case in cases}
    least, rated, large = reports["least"], reports[engine.rated], reports["large"]
    rate, took = rated.lines / rated.seconds, "lines, from start to report"
    return [
        Figure(
            f"staleness.{name}.least", f"{name}: {least.lines:,} {took}", "seconds",
            (least.seconds,), at_most(engine.seconds), least.details,
        ),
        Figure(
            f"staleness.{name}.rate", f"{name}: {rated.lines:,} {took}", "per_second",
            (rate,), at_least(engine.rate), rated.details,
        ),
        Figure(
            f"staleness.{name}.resident", f"{name}: peak memory, of {large.lines:,} lines", "megabytes",
            (large.peak_bytes / 1e6,), at_most(4096),
        ),
    ]  # fmt: skip


def _generated(bench: Bench, directory: Path, lines: int) -> _Log:
    bench.progress(f"staleness: writing {lines:,} lines")
    with _started("tools.heartbeat_logs", "--lines", str(lines), "--out", str(directory)) as process:
        printed, _ = process.communicate(timeout=_LONGEST_SECONDS)
    match = re.match(r"([\d,]+) lines", printed)
    if process.returncode or match is None:
        raise BenchError(f"the generator ended with {process.returncode}: {printed}")
    return _Log(directory, int(match[1].replace(",", "")))


def _reported(bench: Bench, engine: _Engine, log: _Log, out: Path) -> _Report:
    bench.progress(f"staleness: {' '.join(engine.options)}, {log.lines:,} lines")
    began, peak = time.monotonic(), 0
    cpu: dict[int, float] = {}
    with _started("namesrv_spark_jobs", str(log.directory), "--out", str(out), *engine.options) as process:
        while process.poll() is None:
            used = [_used(pid) for pid in _family(process.pid)]
            peak = max(peak, sum(size for _, _, size in used))
            cpu |= {pid: max(cpu.get(pid, 0.0), seconds) for pid, seconds, _ in used}
            if time.monotonic() - began > _LONGEST_SECONDS:
                process.kill()
                raise BenchError(f"no report of {log.lines:,} lines within {_LONGEST_SECONDS} s")
            time.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - began
        printed = process.stdout.read() if process.stdout is not None else ""
    if process.returncode or not (out / "summary.json").exists():
        raise BenchError(f"the report ended with {process.returncode}: {printed[-2000:]}")
    cpu_seconds = sum(cpu.values())
    bench.progress(f"staleness: {log.lines / seconds:,.0f} lines/s, {cpu_seconds:.0f} s of CPU in {seconds:.0f} s")
    return _Report(log.lines, seconds, cpu_seconds, peak)


def _started(module: str, *arguments: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-m", module, *arguments)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # The report uses all cores, while this process is pinned to one.
    os.sched_setaffinity(process.pid, range(os.cpu_count() or 1))
    return process


def _family(pid: int) -> list[int]:
    """A process and all its descendants; Spark's Python workers are children of any thread of Java."""
    pids = [pid]
    for parent in pids:
        # Unlike Path.glob, this finds nothing if the process has ended.
        for children in glob.glob(f"/proc/{parent}/task/*/children"):  # noqa: PTH207
            # The thread may have ended.
            with contextlib.suppress(OSError):
                pids += map(int, Path(children).read_text(encoding="ascii").split())
    return pids


def _used(pid: int) -> tuple[int, float, int]:
    """A process, its CPU seconds so far and its peak memory; both 0 for one that has ended."""
    try:
        process = Server(pid, 0)
        return pid, process.cpu_seconds(), process.status_bytes("VmHWM")
    except (OSError, BenchError):
        return pid, 0.0, 0
