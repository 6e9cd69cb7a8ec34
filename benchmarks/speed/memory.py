"""Memory of many topics, and of idle connections."""

from typing import Final

from benchmarks.harness.crowd import crowd
from benchmarks.harness.figures import BenchError, Figure, at_most, format_value
from benchmarks.harness.loads import PIPELINED, pulls, run
from benchmarks.harness.rounds import Bench, raise_file_limit
from benchmarks.harness.servers import Server, daemon
from benchmarks.harness.wire import (
    PULLED_TOPICS,
    TOPIC_NAME,
    Broker,
    Wire,
    pulled_brokers,
    register,
    route_request,
    topics,
)
from namesrv_remoting.codes import SerializeType

CLUSTERS: Final = 4
BROKERS: Final = 8
TOPICS: Final = 10_000
# 36 to 40 characters with the number, as in RocketMQ's own benchmark of this size
LONG_NAME: Final = "AbcdefghijklmnopqrstuvwxyzAbcdefgh%d"
_LONGEST_PULLING_SECONDS: Final = 90
_CONNECTIONS: Final = 10_000
# files that the daemon opens besides connections
_OTHER_FILES: Final = 100
# A tenth of the connections is reserved for brokers, which these clients cannot use. All have one address, whose share
# of the memory is an eighth.
_CROWDED: Final = (
    *("--max-connections", str((_CONNECTIONS + _OTHER_FILES) * 10 // 9 + 1)),
    *("--max-memory-bytes", str(4 << 30)),
)


def measure_topics(bench: Bench) -> list[Figure]:
    """Memory of 4 clusters of 8 brokers, with 10,000 topics each."""
    return [*_reading(bench, "shared", is_shared=True), *_reading(bench, "distinct", is_shared=False)]


def _reading(bench: Bench, name: str, *, is_shared: bool) -> list[Figure]:
    count = TOPICS * CLUSTERS * (1 if is_shared else BROKERS)
    what = f"{count:,} topics, {'each on 8 brokers' if is_shared else 'each on one broker'}"
    bench.progress(f"memory: {what}")
    with daemon(bench) as server, Wire(server) as wire:
        register(wire, [clustered_broker(number, is_shared=is_shared) for number in range(CLUSTERS * BROKERS)])
        sizes = {
            "registered": ("resident when registered", server.status_bytes()),
            "pulled": ("and each pulled in JSON", _after_pulling(bench, server, count, SerializeType.JSON)),
            "pulled_twice": (
                "and each pulled natively, too",
                _after_pulling(bench, server, count, SerializeType.MSGPACK),
            ),
        }
    return [
        Figure(f"memory.{name}.{key}", when, "megabytes", (size / 1e6,), at_most(300), column=what)
        for key, (when, size) in sizes.items()
    ]


def clustered_broker(number: int, *, is_shared: bool) -> Broker:
    """A broker of CLUSTERS x BROKERS; brokers of a cluster have the same topics if `is_shared`, else different ones."""
    cluster = number // BROKERS
    names = topics(LONG_NAME, TOPICS, TOPICS * (cluster if is_shared else number))
    return Broker(f"broker-{number}", f"10.0.{cluster}.{number}:10911", names, f"cluster-{cluster}")


def _after_pulling(bench: Bench, server: Server, count: int, kind: SerializeType) -> int:
    """Pull each topic at least once, and return the resident memory of the server."""
    script = pulls(count, LONG_NAME, kind)
    # The first attempt is long enough for a server with 80,000 responses a second.
    seconds = 1 + count // 80_000
    while seconds <= _LONGEST_PULLING_SECONDS:
        load = run(bench, server, script, *PIPELINED, seconds=seconds)
        if load.responses >= count:
            return server.status_bytes()
        seconds = max(seconds + 1, round(1.3 * count / load.per_second))
    raise BenchError(f"{count} topics cannot be pulled in {_LONGEST_PULLING_SECONDS} s")


def measure_connections(bench: Bench) -> list[Figure]:
    """Memory of an idle connection that has pulled one route."""
    raise_file_limit(_CONNECTIONS + _OTHER_FILES)
    with daemon(bench, *_CROWDED) as server, Wire(server) as brokers:
        register(brokers, pulled_brokers())
        bench.progress(f"{_CONNECTIONS:,} idle connections")
        before = server.status_bytes()
        frames = [route_request(TOPIC_NAME % number) for number in range(PULLED_TOPICS)]
        with crowd(server, frames, members=_CONNECTIONS) as clients:
            clients.served()
            during, count = server.status_bytes(), brokers.info()["connections"]
    # Includes the connection of this request.
    if count != _CONNECTIONS + 1:
        raise BenchError(f"the server has {count} connections, not {_CONNECTIONS + 1}")
    what = f"each of {_CONNECTIONS:,} idle connections"
    details = f"{format_value(before / 1e6, 'megabytes')} before, {format_value(during / 1e6, 'megabytes')} with them"
    each = (during - before) / 1024 / _CONNECTIONS
    return [Figure("connections.idle", what, "kibibytes", (each,), at_most(8), details)]
