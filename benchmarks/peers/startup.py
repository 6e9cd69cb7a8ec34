"""Time until the server listens, and its memory then."""

from collections.abc import Callable
from functools import partial

from benchmarks.figures import Figure
from benchmarks.peers.apache import HEAPS, apache
from benchmarks.peers.pairs import Sides, against_apache
from benchmarks.rounds import Bench
from benchmarks.servers import Server, daemon

_OURS = "ours"


def measure(bench: Bench) -> list[Figure]:
    """One start of each in each round; only one runs at a time."""

    def ours() -> tuple[float, float]:
        with daemon(bench) as server:
            return _seen(server)

    def theirs(heap: str) -> tuple[float, float]:
        with apache(bench, heap) as server:
            return _seen(server)

    starts: dict[str, Callable[[], tuple[float, float]]] = {_OURS: ours}
    starts.update({heap: partial(theirs, heap) for heap in HEAPS})
    found = bench.in_turn("starts", starts)
    seconds, megabytes = (
        {
            heap: Sides([values[which] for values in found[_OURS]], [values[which] for values in found[heap]])
            for heap in HEAPS
        }
        for which in (0, 1)
    )
    return [
        *against_apache("startup.listening", "from exec to listening", "seconds", seconds),
        *against_apache("startup.resident", "resident when it listens", "megabytes", megabytes),
    ]


def _seen(server: Server) -> tuple[float, float]:
    return server.listening_after_seconds, server.resident_bytes() / 1e6
