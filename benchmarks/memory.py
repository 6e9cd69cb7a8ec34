"""Memory of 4 clusters of 8 brokers, with 10,000 topics each."""

from typing import Final

from benchmarks import loads
from benchmarks.figures import BenchError, Figure, Target
from benchmarks.pulls import PIPELINED
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, topics
from benchmarks.servers import Server, daemon

CLUSTERS: Final = 4
BROKERS: Final = 8
TOPICS: Final = 10_000
# with its number 36 to 40 characters, as in RocketMQ's own benchmark of this size
TOPIC_NAME: Final = "AbcdefghijklmnopqrstuvwxyzAbcdefgh%d"
_MOST: Final = Target("<=", 300)
_LONGEST_PULLING_SECONDS: Final = 30


def measure(bench: Bench) -> list[Figure]:
    """Both readings: the brokers of a cluster share its topics, or each has topics of its own."""
    return [
        *_reading(bench, "shared", is_shared=True),
        *_reading(bench, "distinct", is_shared=False),
    ]


def _reading(bench: Bench, name: str, *, is_shared: bool) -> list[Figure]:
    count = TOPICS * CLUSTERS * (1 if is_shared else BROKERS)
    what = f"{count:,} topics, {'each on 8 brokers' if is_shared else 'each on one broker'}"
    bench.progress(f"memory: {what}")
    with daemon(bench) as server, Wire(server) as wire:
        for broker in range(CLUSTERS * BROKERS):
            wire.ask_well(clustered_broker(broker, is_shared=is_shared).json_frame())
        registered = server.resident_bytes()
        pulled = _after_pulling(bench, server, count, "json")
        pulled_twice = _after_pulling(bench, server, count, "native")
    return [
        _figure(f"memory.{name}.registered", f"{what}: resident when registered", registered),
        _figure(f"memory.{name}.pulled", f"{what}: and each pulled in JSON", pulled),
        _figure(f"memory.{name}.pulled_twice", f"{what}: and each pulled natively, too", pulled_twice),
    ]


def clustered_broker(number: int, *, is_shared: bool) -> Broker:
    """One of CLUSTERS x BROKERS, by number."""
    cluster = number // BROKERS
    first = TOPICS * (cluster if is_shared else number)
    return Broker(
        f"cluster-{cluster}",
        f"broker-{number}",
        0,
        f"10.0.{cluster}.{number}:10911",
        topics(TOPIC_NAME, TOPICS, first),
    )


def _after_pulling(bench: Bench, server: Server, count: int, header: str) -> int:
    """What it has in memory when each topic was asked for at least once."""
    # enough where a server answers 80,000 a second; what is not enough is found out
    seconds = 1 + count // 80_000
    while seconds <= _LONGEST_PULLING_SECONDS:
        # in turn from the first one on, each time it is run
        flags = (*PIPELINED, "--topic", TOPIC_NAME, "--topics", str(count), "--header", header)
        load = loads.run(bench, server, *flags, seconds=seconds)
        if load.answers >= count:
            return server.resident_bytes()
        seconds = max(seconds + 1, round(1.3 * count / load.answers_per_second))
    raise BenchError(f"{count} topics cannot be pulled in {_LONGEST_PULLING_SECONDS} s")


def _figure(name: str, what: str, resident: int) -> Figure:
    return Figure(name, what, "megabytes", (resident / 1e6,), _MOST)
