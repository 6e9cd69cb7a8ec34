"""Benchmark of namesrv-staleness: heartbeat logs that grow, and one in which a broker has a third of the lines."""

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.figures import BenchError, Figure, Target, ratios, spelt_medians
from benchmarks.rounds import Bench

SMALL: Final = 5_000_000
LARGE: Final = 20_000_000
QUICK_SMALL: Final = 200_000
QUICK_LARGE: Final = 800_000
# of all lines, from one broker
SKEW: Final = 0.3
_MASTER: Final = "local[2]"
_LONGEST_SECONDS: Final = 1800
_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Log:
    """A generated log."""

    directory: Path
    lines: int


@dataclass(frozen=True, slots=True)
class Report:
    """One run of the report."""

    seconds: float
    # at most, of Python and Java together
    resident_bytes: int


def measure(bench: Bench) -> list[Figure]:
    """Four times the lines; and as many lines with one broker that is heard all the time."""
    small, large = (QUICK_SMALL, QUICK_LARGE) if bench.effort.is_quick else (SMALL, LARGE)
    with tempfile.TemporaryDirectory(prefix="namesrv-bench-staleness-") as name:
        root = Path(name)
        logs = {
            "small": _generated(bench, root / "small", small),
            "large": _generated(bench, root / "large", large),
            "skewed": _generated(bench, root / "skewed", small, "--skew", str(SKEW)),
        }
        # the small one twice: what the others are compared with should not be one moment's chance
        order = ("small", "large", "small", "skewed")
        found: dict[str, list[Report]] = {name: [] for name in logs}
        for number, case in enumerate(order):
            bench.progress(f"staleness: {logs[case].lines:,} lines, {case}, run {number + 1} of {len(order)}")
            found[case].append(_reported(bench, logs[case], root / f"out-{number}"))
    return _figures(logs, found)


def _figures(logs: dict[str, Log], found: dict[str, list[Report]]) -> list[Figure]:
    seconds = {case: [run.seconds for run in runs] for case, runs in found.items()}
    # no two logs have quite as many lines as was asked for
    grown = [value * 4 * logs["small"].lines / logs["large"].lines for value in seconds["large"]]
    skewed = [value * logs["small"].lines / logs["skewed"].lines for value in seconds["skewed"]]
    return [
        Figure(
            "staleness.rate",
            f"{logs['large'].lines:,} lines, from start to report",
            "per_second",
            tuple(logs["large"].lines / value for value in seconds["large"]),
            Target(">=", 200_000),
        ),
        _ratio("growth", f"time / that of {logs['small'].lines:,} lines", grown, seconds["small"], 4.6),
        _ratio("skew", f"one broker has {SKEW:.0%} of all / even", skewed, seconds["small"], 1.5),
        Figure(
            "staleness.resident",
            "Python and Java at most",
            "megabytes",
            tuple(run.resident_bytes / 1e6 for run in found["large"]),
            Target("<=", 4096),
        ),
    ]


def _ratio(name: str, what: str, seconds: list[float], small: list[float], most: float) -> Figure:
    above = seconds * len(small)
    behind = spelt_medians("seconds", above, small)
    return Figure(f"staleness.{name}", what, "times", ratios(above, small), Target("<=", most), behind=behind)


def _generated(bench: Bench, directory: Path, lines: int, *flags: str) -> Log:
    bench.progress(f"staleness: writing {lines:,} lines {' '.join(flags)}".rstrip())
    command = (sys.executable, "-m", "tools.heartbeat_logs", "--lines", str(lines), "--out", str(directory))
    with _started(*command, *flags) as process:
        said, _ = process.communicate(timeout=_LONGEST_SECONDS)
    match = re.match(r"([\d,]+) lines", said)
    if process.returncode or match is None:
        raise BenchError(f"the generator ended with {process.returncode}: {said}")
    return Log(directory, int(match[1].replace(",", "")))


def _reported(bench: Bench, log: Log, out: Path) -> Report:
    began = time.monotonic()
    resident = 0
    command = (sys.executable, "-m", "namesrv_spark_jobs", str(log.directory), "--out", str(out), "--master", _MASTER)
    with _started(*command) as process:
        while process.poll() is None:
            resident = max(resident, sum(_peak_bytes(pid) for pid in _family(process.pid)))
            if time.monotonic() - began > _LONGEST_SECONDS:
                process.kill()
                raise BenchError(f"no report of {log.lines:,} lines within {_LONGEST_SECONDS} s")
            time.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - began
        said = process.stdout.read() if process.stdout is not None else ""
    if process.returncode or not (out / "summary.json").exists():
        raise BenchError(f"the report ended with {process.returncode}: {said[-2000:]}")
    bench.progress(f"staleness: {log.lines / seconds:,.0f} lines/s")
    return Report(seconds, resident)


def _started(*command: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # we keep to one core, as for other questions; this one is about two
    os.sched_setaffinity(process.pid, range(os.cpu_count() or 1))
    return process


def _family(pid: int) -> list[int]:
    """A process and all that came from it."""
    found = [pid]
    for parent in found:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
        except OSError:
            # it has ended
            continue
        found += map(int, children.split())
    return found


def _peak_bytes(pid: int) -> int:
    """What a process had in memory at most; nothing when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) * 1024 if match else 0
