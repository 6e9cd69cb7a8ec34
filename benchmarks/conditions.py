"""Under which conditions was it measured?"""

import importlib.util
import os
import platform
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.rounds import Bench, Cores, Effort


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a reader has to know before comparing figures of two runs."""

    processor: str
    processors: int
    python: str
    loop: str
    system: str
    cores: Cores
    effort: Effort
    # of the last minute before the first measurement: what others did
    load_average: float
    began: float
    took_seconds: float = 0.0

    @classmethod
    def now(cls, bench: Bench) -> "Conditions":
        """Those of the run that begins."""
        return cls(
            processor=processor(Path("/proc/cpuinfo").read_text(encoding="utf-8")),
            processors=os.cpu_count() or 0,
            python=f"{platform.python_implementation()} {platform.python_version()}",
            loop="uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
            system=f"{platform.system()} {platform.release()}",
            cores=bench.cores,
            effort=bench.effort,
            load_average=os.getloadavg()[0],
            began=time.monotonic(),
        )

    def ended(self) -> "Conditions":
        """The same, with the time that it took."""
        return replace(self, took_seconds=time.monotonic() - self.began)

    def __str__(self) -> str:
        where = (
            "server and load on the same core: rates say little"
            if self.cores.server is None
            else f"server on core {self.cores.server}, load on core {self.cores.load}"
        )
        return (
            f"{self.processors} x {self.processor}, {self.system}, {self.python} with {self.loop}; {where}; "
            f"{self.effort.rounds} rounds of {self.effort.seconds} s; {self.took_seconds:.0f} s in all; "
            f"load average {self.load_average:.2f} before."
        )

    def members(self) -> dict[str, Any]:
        """For programs."""
        return {
            "processor": self.processor,
            "processors": self.processors,
            "python": self.python,
            "loop": self.loop,
            "system": self.system,
            "server_core": self.cores.server,
            "load_core": self.cores.load,
            "rounds": self.effort.rounds,
            "seconds": self.effort.seconds,
            "load_average": self.load_average,
            "took_seconds": round(self.took_seconds, 1),
        }


def processor(cpuinfo: str) -> str:
    """The name of the processor in a /proc/cpuinfo; some architectures name none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()
