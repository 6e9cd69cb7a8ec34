"""Memory of an idle connection."""

import resource
from typing import Final

import msgspec

from benchmarks import loads
from benchmarks.figures import BenchError, Figure, Target, spelt
from benchmarks.rounds import Bench
from benchmarks.seeding import Wire, native_question, pulled_brokers, register
from benchmarks.servers import daemon
from namesrv_remoting.codes import RequestCode

CONNECTIONS: Final = 10_000
# the daemon's own files, and a few to spare
_OTHER_FILES: Final = 100
# None of them begins like a broker, and a tenth of all connections is reserved for brokers. All come from one address,
# which gets an eighth of the memory.
_FLAGS: Final = (
    *("--max-connections", str((CONNECTIONS + _OTHER_FILES) * 10 // 9 + 1)),
    *("--max-memory-bytes", str(4 << 30)),
)


def measure(bench: Bench) -> list[Figure]:
    """Connections that have pulled one route, as a client's have."""
    raise_file_limit()
    with daemon(bench, *_FLAGS) as server, Wire(server) as brokers:
        register(brokers, pulled_brokers())
        bench.progress(f"{CONNECTIONS:,} idle connections")
        before = server.resident_bytes()
        with loads.idle(bench, server, CONNECTIONS, ("--greet",)):
            during = server.resident_bytes()
            _check(brokers)
    return [_figure(before, during)]


def _check(wire: Wire) -> None:
    """Whether the server has them all."""
    count = msgspec.msgpack.decode(wire.ask_well(native_question(RequestCode.SERVER_INFO)).body)["connections"]
    # and the one that asks
    if count != CONNECTIONS + 1:
        raise BenchError(f"the server has {count} connections, not {CONNECTIONS + 1}")


def raise_file_limit() -> None:
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
