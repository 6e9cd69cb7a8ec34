"""Memory of many topics, and of idle connections."""

from typing import Final

from benchmarks.harness.crowd import crowd
from benchmarks.harness.figures import BenchError, Figure, at_most, spelt
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
# with its number 36 to 40 characters, as in RocketMQ's own benchmark of this size
LONG_NAME: Final = "AbcdefghijklmnopqrstuvwxyzAbcdefgh%d"
_LONGEST_PULLING_SECONDS: Final = 30
_CONNECTIONS: Final = 10_000
# the daemon's own files, and some to spare
_OTHER_FILES: Final = 100
# No connection begins like a broker, and a tenth of all connections is reserved for brokers. All come from one address,
# which gets an eighth of the memory.
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
    """One of CLUSTERS x BROKERS; the brokers of a cluster share its topics, or each has topics of its own."""
    cluster = number // BROKERS
    names = topics(LONG_NAME, TOPICS, TOPICS * (cluster if is_shared else number))
    return Broker(f"broker-{number}", f"10.0.{cluster}.{number}:10911", names, f"cluster-{cluster}")


def _after_pulling(bench: Bench, server: Server, count: int, kind: SerializeType) -> int:
    """The memory of the server when each topic was pulled at least once."""
    script = pulls(count, LONG_NAME, kind)
    # enough where a server responds to 80,000 a second; otherwise longer the next time
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
            clients.next("served")
            during, count = server.status_bytes(), brokers.info()["connections"]
    # Includes the connection of this request.
    if count != _CONNECTIONS + 1:
        raise BenchError(f"the server has {count} connections, not {_CONNECTIONS + 1}")
    what = f"each of {_CONNECTIONS:,} idle connections"
    behind = f"{spelt(before / 1e6, 'megabytes')} before, {spelt(during / 1e6, 'megabytes')} with them"
    each = (during - before) / 1024 / _CONNECTIONS
    return [Figure("connections.idle", what, "kibibytes", (each,), at_most(8), behind)]
