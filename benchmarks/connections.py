"""How much memory does a connection take on which nothing is said any more?"""

import resource
from typing import Final

from benchmarks import loads
from benchmarks.figures import BenchError, Figure, Target, spelt
from benchmarks.rounds import Bench
from benchmarks.seeding import Wire, pulled_brokers, register
from benchmarks.servers import daemon

CONNECTIONS: Final = 10_000
# the daemon's own files, and a few to spare
_OTHER_FILES: Final = 100
_FLAGS: Final = ("--max-connections", str(CONNECTIONS + _OTHER_FILES))


def measure(bench: Bench) -> list[Figure]:
    """Connections that have pulled one route, as a client's have."""
    _raise_file_limit()
    with daemon(bench, *_FLAGS) as server, Wire(server) as brokers:
        register(brokers, pulled_brokers())
        # so that what is counted is connections, not the answers that they find encoded
        loads.run(bench, server, seconds=1)
        bench.progress(f"{CONNECTIONS:,} idle connections")
        before = server.resident_bytes()
        with loads.idle(bench, server, CONNECTIONS, ("--greet",)):
            during = server.resident_bytes()
    return [_figure(before, during)]


def _raise_file_limit() -> None:
    """As far as we may; the daemon inherits it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CONNECTIONS + _OTHER_FILES:
        raise BenchError(f"{CONNECTIONS} connections: {hard} open files allowed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _figure(before: int, during: int) -> Figure:
    return Figure(
        "connections.idle",
        f"each of {CONNECTIONS:,} idle connections",
        "kibibytes",
        ((during - before) / 1024 / CONNECTIONS,),
        Target("<=", 8),
        behind=f"{spelt(before / 1e6, 'megabytes')} before, {spelt(during / 1e6, 'megabytes')} with them",
    )
