"""Conditions of a measurement: machine, versions, load."""

import importlib.util
import os
import platform
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.rounds import Bench, Cores, Effort


@dataclass(frozen=True, slots=True)
class Clocks:
    """Three that run while we measure, in seconds."""

    wall: float
    # of all processors together: not idle
    busy: float
    # we and our servers that have ended
    ours: float

    @classmethod
    def now(cls) -> "Clocks":
        """What they show."""
        ours = os.times()
        return cls(
            wall=time.monotonic(),
            busy=busy_ticks(Path("/proc/stat").read_text(encoding="ascii")) / os.sysconf("SC_CLK_TCK"),
            ours=ours.user + ours.system + ours.children_user + ours.children_system,
        )


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a reader has to know before comparing figures of two runs."""

    date: str
    processor: str
    processors: int
    python: str
    loop: str
    system: str
    cores: Cores
    effort: Effort
    began: "Clocks"
    took_seconds: float = 0.0
    # part of all processors' time that went to others, or was kept by the host, while we measured
    others_share: float = 0.0

    @classmethod
    def now(cls, bench: Bench) -> "Conditions":
        """Those of the run that begins."""
        return cls(
            date=datetime.now(UTC).date().isoformat(),
            processor=processor(Path("/proc/cpuinfo").read_text(encoding="utf-8")),
            processors=os.cpu_count() or 0,
            python=f"{platform.python_implementation()} {platform.python_version()}",
            loop="uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
            system=f"{platform.system()} {platform.release()}",
            cores=bench.cores,
            effort=bench.effort,
            began=Clocks.now(),
        )

    def ended(self) -> "Conditions":
        """The same, with the time that it took and what others took of it."""
        now = Clocks.now()
        share = others_share(self.began, now, self.processors)
        return replace(self, took_seconds=now.wall - self.began.wall, others_share=share)

    def __str__(self) -> str:
        where = (
            "server and load on the same core: rates say little"
            if self.cores.server is None
            else f"server on core {self.cores.server}, load on core {self.cores.load}"
        )
        return (
            f"{self.date}: {self.processors} x {self.processor}, {self.system}, "
            f"{self.python} with {self.loop}; {where}; "
            f"{self.effort.rounds} rounds of {self.effort.seconds} s; {self.took_seconds:.0f} s in all; "
            f"others took {self.others_share:.0%} of the processors."
        )

    def members(self) -> dict[str, Any]:
        """For programs."""
        return {
            "date": self.date,
            "processor": self.processor,
            "processors": self.processors,
            "python": self.python,
            "loop": self.loop,
            "system": self.system,
            "server_core": self.cores.server,
            "load_core": self.cores.load,
            "rounds": self.effort.rounds,
            "seconds": self.effort.seconds,
            "took_seconds": round(self.took_seconds, 1),
            "others_share": round(self.others_share, 3),
        }


def processor(cpuinfo: str) -> str:
    """The name of the processor in a /proc/cpuinfo; some architectures name none."""
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
