"""Time until the server listens, and its idle memory."""

import statistics
import subprocess
import sys
import time

from benchmarks.figures import Figure, Target, ratios, spelt_medians
from benchmarks.rounds import Bench
from benchmarks.servers import daemon

_TIMES_A_ROUND = 2


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

    found = bench.in_turn("starts", {"namesrv": start, "python": _bare_python})
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
    ]


def _bare_python() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.monotonic() - began
