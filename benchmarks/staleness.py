"""Benchmark of namesrv-staleness on both engines: logs that grow, and one in which a broker has a third of the lines.

Much of its time is other people's on a machine that is shared: CPU seconds stand beside the seconds on the clock.
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

from benchmarks.figures import BenchError, Figure, Target, ratios, spelt, spelt_medians
from benchmarks.rounds import Bench

LEAST: Final = 200_000
SMALL: Final = 5_000_000
LARGE: Final = 20_000_000
QUICK_LEAST: Final = 20_000
QUICK_SMALL: Final = 200_000
QUICK_LARGE: Final = 800_000
# of all lines, from one broker
SKEW: Final = 0.3
# the options of each engine
ENGINES: Final = {"embedded": ("--engine", "embedded"), "Spark": ("--master", "local[2]")}
# lines a second: at so many lines
_RATES: Final = {"embedded": ("small", 300_000), "Spark": ("large", 200_000)}
# of the least log
_SECONDS: Final = {"embedded": 10, "Spark": 20}
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
    # of Python and Java together, as the next two
    cpu_seconds: float
    # at most
    resident_bytes: int


def measure(bench: Bench) -> list[Figure]:
    """Twenty-five and a hundred times the lines of a small log; and one broker that is heard all the time."""
    quick = bench.effort.is_quick
    sizes = (QUICK_LEAST, QUICK_SMALL, QUICK_LARGE) if quick else (LEAST, SMALL, LARGE)
    with tempfile.TemporaryDirectory(prefix="namesrv-bench-staleness-") as name:
        root = Path(name)
        logs = {
            case: _generated(bench, root / case, lines)
            for case, lines in zip(("least", "small", "large"), sizes, strict=True)
        }
        logs["skewed"] = _generated(bench, root / "skewed", logs["small"].lines, "--skew", str(SKEW))
        return [figure for engine in ENGINES for figure in _of_engine(bench, engine, logs, root)]


def _of_engine(bench: Bench, engine: str, logs: dict[str, Log], root: Path) -> list[Figure]:
    # the small one twice: what the others are compared with should not be one moment's chance
    order = ("least", "small", "large", "small", "skewed")
    found: dict[str, list[Report]] = {name: [] for name in logs}
    for number, case in enumerate(order):
        bench.progress(f"staleness: {engine}, {logs[case].lines:,} lines, {case}, run {number + 1} of {len(order)}")
        found[case].append(_reported(bench, engine, logs[case], root / f"{engine}-{number}"))
    return _figures(engine, logs, found)


def _figures(engine: str, logs: dict[str, Log], found: dict[str, list[Report]]) -> list[Figure]:
    seconds = {case: [run.seconds for run in runs] for case, runs in found.items()}
    rated, rate = _RATES[engine]
    # no two logs have quite as many lines as was asked for
    grown = [value * 4 * logs["small"].lines / logs["large"].lines for value in seconds["large"]]
    skewed = [value * logs["small"].lines / logs["skewed"].lines for value in seconds["skewed"]]
    return [
        Figure(
            f"staleness.{engine}.least",
            f"{engine}: {logs['least'].lines:,} lines, from start to report",
            "seconds",
            tuple(seconds["least"]),
            Target("<=", _SECONDS[engine]),
            behind=_cpu(found["least"]),
        ),
        Figure(
            f"staleness.{engine}.rate",
            f"{engine}: {logs[rated].lines:,} lines, from start to report",
            "per_second",
            tuple(logs[rated].lines / value for value in seconds[rated]),
            Target(">=", rate),
            behind=_cpu(found[rated]),
        ),
        _ratio(f"{engine}.growth", f"time / that of {logs['small'].lines:,} lines", grown, seconds["small"], 4.6),
        _ratio(f"{engine}.skew", f"one broker has {SKEW:.0%} of all / even", skewed, seconds["small"], 1.5),
        Figure(
            f"staleness.{engine}.resident",
            f"{engine}: memory at most, of {logs['large'].lines:,} lines",
            "megabytes",
            tuple(run.resident_bytes / 1e6 for run in found["large"]),
            Target("<=", 4096),
        ),
    ]


def _cpu(runs: list[Report]) -> str:
    return f"{spelt(statistics.median(run.cpu_seconds for run in runs), 'seconds')} of CPU"


def _ratio(name: str, what: str, seconds: list[float], small: list[float], most: float) -> Figure:
    above = seconds * len(small)
    behind = spelt_medians("seconds", above, small)
    what = f"{name.partition('.')[0]}: {what}"
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


def _reported(bench: Bench, engine: str, log: Log, out: Path) -> Report:
    began = time.monotonic()
    resident = 0
    cpu: dict[int, float] = {}
    command = (sys.executable, "-m", "namesrv_spark_jobs", str(log.directory), "--out", str(out), *ENGINES[engine])
    with _started(*command) as process:
        while process.poll() is None:
            family = _family(process.pid)
            resident = max(resident, sum(_peak_bytes(pid) for pid in family))
            cpu |= {pid: max(cpu.get(pid, 0.0), _cpu_seconds(pid)) for pid in family}
            if time.monotonic() - began > _LONGEST_SECONDS:
                process.kill()
                raise BenchError(f"no report of {log.lines:,} lines within {_LONGEST_SECONDS} s")
            time.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - began
        said = process.stdout.read() if process.stdout is not None else ""
    if process.returncode or not (out / "summary.json").exists():
        raise BenchError(f"the report ended with {process.returncode}: {said[-2000:]}")
    used = sum(cpu.values())
    bench.progress(f"staleness: {log.lines / seconds:,.0f} lines/s, {used:.0f} s of CPU in {seconds:.0f} s")
    return Report(seconds, used, resident)


def _started(*command: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # we keep to one core, as for other questions; this one is about two
    os.sched_setaffinity(process.pid, range(os.cpu_count() or 1))
    return process


def _family(pid: int) -> list[int]:
    """A process and all that came from it.

    Spark's Python workers are children of whichever thread of Java started them.
    """
    found = [pid]
    for parent in found:
        found += [child for thread in _threads(parent) for child in _children(thread)]
    return found


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        # it has ended
        return []


def _children(thread: Path) -> list[int]:
    try:
        return [int(child) for child in (thread / "children").read_text(encoding="ascii").split()]
    except OSError:
        # it has ended
        return []


def _peak_bytes(pid: int) -> int:
    """What a process had in memory at most; nothing when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) * 1024 if match else 0


def _cpu_seconds(pid: int) -> float:
    """What a process has used so far; nothing when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
