"""Conditions of a measurement: date, version, machine, and the work beside it."""

import importlib.util
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.build import ROOT

# A commit is marked when the tree had other changes than those of pages that the benchmarks write.
_SOURCES: Final = ("--", ":/", ":(top,exclude)docs")


@dataclass(frozen=True, slots=True)
class Clocks:
    """Three clocks that run during a measurement, in seconds."""

    wall: float
    # of all processors together: not idle
    busy: float
    # this process and its children that have ended
    ours: float

    @classmethod
    def now(cls) -> "Clocks":
        """What they show."""
        ours = os.times()
        busy = busy_ticks(Path("/proc/stat").read_text(encoding="ascii")) / os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic(), busy, ours.user + ours.system + ours.children_user + ours.children_system)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a reader has to know before comparing figures of two runs."""

    began: Clocks
    load: float

    @classmethod
    def now(cls) -> "Conditions":
        """Those of the measurement that begins."""
        return cls(Clocks.now(), os.getloadavg()[0])

    def members(self) -> dict[str, Any]:
        """Those of the measurement that has ended."""
        clocks, count = Clocks.now(), os.cpu_count() or 1
        loop = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"
        model = processor(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        return {
            "date": datetime.now(UTC).date().isoformat(),
            "commit": _git("rev-parse", "--short=9", "HEAD")
            + ("+" if _git("status", "--porcelain", *_SOURCES) else ""),
            "machine": f"{count} x {model}, {platform.system()} {platform.release()}, "
            f"{platform.python_implementation()} {platform.python_version()} with {loop}",
            "load_average": round(self.load, 1),
            "others_share": round(others_share(self.began, clocks, count), 3),
            "took_seconds": round(clocks.wall - self.began.wall, 1),
        }


def sentence(members: Mapping[str, Any]) -> str:
    """The conditions for a page."""
    return (
        f"{members['date']}, `{members['commit']}`: {members['machine']}; {members['took_seconds']:.0f} s in all; "
        f"other processes took {members['others_share']:.0%} of the processors."
    )


def _git(*words: str) -> str:
    command = ["git", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()


def processor(cpuinfo: str) -> str:
    """The name of the processor in a /proc/cpuinfo, or the architecture where the file has none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()


def busy_ticks(stat: str) -> int:
    """How long the processors of a /proc/stat were not idle: user, nice, system, interrupts, and what the host took."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.partition("\n")[0].split()[1:9])
    return user + nice + system + irq + softirq + steal


def others_share(began: Clocks, ended: Clocks, processors: int) -> float:
    """Part of the processors' time that was neither idle nor ours."""
    others = (ended.busy - began.busy) - (ended.ours - began.ours)
    return max(0.0, others / (processors * (ended.wall - began.wall)))
