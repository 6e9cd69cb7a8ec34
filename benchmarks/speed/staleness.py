"""namesrv-staleness on both engines: logs that grow, and one in which a broker has a third of the lines.

CPU seconds explain the seconds on the clock, because other processes use part of a shared machine.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, at_least, at_most, compared, format_value
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Server, status_bytes

# log -> lines in a full run, lines in a quick run; the skewed log is as long as the small one
_LINES: Final = {"least": (200_000, 20_000), "small": (5_000_000, 200_000), "large": (20_000_000, 800_000)}
# share of the lines of the skewed log that one broker has
_SKEW: Final = 0.3
# The small log is the reference of the ratios and therefore measured twice.
_ORDER: Final = ("least", "small", "large", "small", "skewed")
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

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def measure(bench: Bench) -> list[Figure]:
    """namesrv-staleness on both engines: logs that grow, and one in which a broker has a third of the lines."""
    with tempfile.TemporaryDirectory(prefix="namesrv-bench-staleness-") as name:
        root = Path(name)
        logs = {case: _generated(bench, root / case, sizes[bench.effort.is_quick]) for case, sizes in _LINES.items()}
        logs["skewed"] = _generated(bench, root / "skewed", logs["small"].lines, "--skew", str(_SKEW))
        figures: list[Figure] = []
        for key, engine in _ENGINES.items():
            reports: dict[str, list[_Report]] = {case: [] for case in logs}
            for number, case in enumerate(_ORDER):
                bench.progress(f"staleness: {key}, {logs[case].lines:,} lines, {case}")
                reports[case].append(_reported(bench, engine, logs[case], root / f"{key}-{number}"))
            figures += _figures(key, engine, logs, reports)
        return figures


def _figures(name: str, engine: _Engine, logs: dict[str, _Log], reports: dict[str, list[_Report]]) -> list[Figure]:
    rated, small = engine.rated, logs["small"].lines
    seconds = {case: [run.seconds for run in runs] for case, runs in reports.items()}
    rates = [logs[rated].lines / value for value in seconds[rated]]
    peaks = [run.peak_bytes / 1e6 for run in reports["large"]]

    def ratio(key: str, what: str, times: list[float], most: float) -> Figure:
        repeated = times * len(seconds["small"])
        return compared(
            f"staleness.{name}.{key}", f"{name}: {what}", "seconds", (repeated, seconds["small"]), at_most(most)
        )

    # Times are scaled, because a log has only nearly as many lines as its generator was given.
    grown = [value * 4 * small / logs["large"].lines for value in seconds["large"]]
    skewed = [value * small / logs["skewed"].lines for value in seconds["skewed"]]
    what = "{name}: {lines:,} lines, from start to report".format
    return [
        Figure(
            f"staleness.{name}.least", what(name=name, lines=logs["least"].lines), "seconds", seconds["least"],
            at_most(engine.seconds), _cpu(reports["least"]),
        ),
        Figure(
            f"staleness.{name}.rate", what(name=name, lines=logs[rated].lines), "per_second", rates,
            at_least(engine.rate), _cpu(reports[rated]),
        ),
        ratio("growth", f"time / that of {small:,} lines", grown, 4.6),
        ratio("skew", f"one broker has {_SKEW:.0%} of all / even", skewed, 1.5),
        Figure(
            f"staleness.{name}.resident", f"{name}: peak memory, of {logs['large'].lines:,} lines", "megabytes", peaks,
            at_most(4096),
        ),
    ]  # fmt: skip


def _cpu(runs: list[_Report]) -> str:
    return f"{format_value(statistics.median(run.cpu_seconds for run in runs), 'seconds')} of CPU"


def _generated(bench: Bench, directory: Path, lines: int, *flags: str) -> _Log:
    bench.progress(f"staleness: writing {lines:,} lines {' '.join(flags)}".rstrip())
    with _started("tools.heartbeat_logs", "--lines", str(lines), "--out", str(directory), *flags) as process:
        printed, _ = process.communicate(timeout=_LONGEST_SECONDS)
    match = re.match(r"([\d,]+) lines", printed)
    if process.returncode or match is None:
        raise BenchError(f"the generator ended with {process.returncode}: {printed}")
    return _Log(directory, int(match[1].replace(",", "")))


def _reported(bench: Bench, engine: _Engine, log: _Log, out: Path) -> _Report:
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
    return _Report(seconds, cpu_seconds, peak)


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
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                pids += map(int, children.read_text(encoding="ascii").split())
            except OSError:
                # the thread has ended
                continue
    return pids


def _used(pid: int) -> tuple[int, float, int]:
    """A process, its CPU seconds so far and its peak memory; both 0 for one that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        return pid, Server(pid, 0).cpu_seconds(), status_bytes(status, "VmHWM")
    except (OSError, BenchError):
        return pid, 0.0, 0
