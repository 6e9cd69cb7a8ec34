"""Conditions of a measurement: date, commit, machine, and the load of other processes."""

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

# Pathspecs of `git status`: changes of docs/ do not mark a commit as changed, since benchmarks write pages there.
_SOURCES: Final = ("--", ":/", ":(top,exclude)docs")


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a reader must know before comparing the figures of two runs, read at one time; times are in seconds."""

    # the monotonic clock
    wall: float
    # processor time of all processes on all processors
    busy: float
    # processor time of this process and of its children that have ended
    ours: float
    # load average of the last minute
    load: float

    @classmethod
    def now(cls) -> "Conditions":
        """Note the conditions at the start or end of a measurement."""
        ours = os.times()
        busy = busy_ticks(Path("/proc/stat").read_text(encoding="ascii")) / os.sysconf("SC_CLK_TCK")
        ours_seconds = ours.user + ours.system + ours.children_user + ours.children_system
        return cls(time.monotonic(), busy, ours_seconds, os.getloadavg()[0])

    def members(self) -> dict[str, Any]:
        """All conditions, as members of JSON, at the end of the measurement."""
        ended, count = Conditions.now(), os.cpu_count() or 1
        loop = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"
        model = processor(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        return {
            "date": datetime.now(UTC).date().isoformat(),
            "commit": _git("rev-parse", "--short=9", "HEAD")
            + ("+" if _git("status", "--porcelain", *_SOURCES) else ""),
            "machine": f"{count} x {model}, {platform.system()} {platform.release()}, "
            f"{platform.python_implementation()} {platform.python_version()} with {loop}",
            "load_average": round(self.load, 1),
            "others_share": round(others_share(self, ended, count), 3),
            "took_seconds": round(ended.wall - self.wall, 1),
        }


def sentence(members: Mapping[str, Any]) -> str:
    """The conditions as a sentence for a page."""
    return (
        f"{members['date']}, `{members['commit']}`: {members['machine']}; {members['took_seconds']:.0f} s in all; "
        f"other processes took {members['others_share']:.0%} of the processors."
    )


def _git(*words: str) -> str:
    command = ["git", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()


def processor(cpuinfo: str) -> str:
    """The processor's model name in the text of /proc/cpuinfo, or the architecture if the text has none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()


def busy_ticks(stat: str) -> int:
    """Busy time of all processors in the text of /proc/stat: user, nice, system, interrupts, and stolen by the host."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.partition("\n")[0].split()[1:9])
    return user + nice + system + irq + softirq + steal


def others_share(began: Conditions, ended: Conditions, processors: int) -> float:
    """Share of the processors' time that processes other than ours used."""
    others = (ended.busy - began.busy) - (ended.ours - began.ours)
    return max(0.0, others / (processors * (ended.wall - began.wall)))
