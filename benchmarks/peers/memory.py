"""Memory with 4 clusters of 8 brokers, which share 10,000 topics each."""

from typing import Final

from benchmarks import loads
from benchmarks.figures import Figure
from benchmarks.memory import BROKERS, CLUSTERS, TOPIC_NAME, TOPICS, clustered_broker
from benchmarks.peers.apache import HEAPS
from benchmarks.peers.pairs import Sides, against_apache, pair
from benchmarks.pulls import PIPELINED
from benchmarks.rounds import Bench
from benchmarks.seeding import Wire
from benchmarks.servers import Server

_COUNT: Final = TOPICS * CLUSTERS
_PULLING_SECONDS: Final = 10


def measure(bench: Bench) -> list[Figure]:
    """When the brokers have registered, and when their topics were asked for some seconds long, in turn."""
    registered: dict[str, Sides] = {}
    pulled: dict[str, Sides] = {}
    for heap in HEAPS:
        bench.progress(f"memory, Apache's with {heap}")
        with pair(bench, heap) as servers, Wire(servers.ours) as our_brokers, Wire(servers.theirs) as their_brokers:
            for brokers in (our_brokers, their_brokers):
                _register(brokers)
            registered[heap] = servers.both(_megabytes)
            for server in (servers.ours, servers.theirs):
                _pull(bench, server)
            pulled[heap] = servers.both(_megabytes)
    return [
        *against_apache("memory.registered", f"{_COUNT:,} topics: resident when registered", "megabytes", registered),
        *against_apache(
            "memory.pulled", f"{_COUNT:,} topics: and pulled for {_PULLING_SECONDS} s", "megabytes", pulled
        ),
    ]


def _register(brokers: Wire) -> None:
    for number in range(CLUSTERS * BROKERS):
        brokers.ask_well(clustered_broker(number, is_shared=True).json_frame())


def _pull(bench: Bench, server: Server) -> None:
    flags = (*PIPELINED, "--topic", TOPIC_NAME, "--topics", str(_COUNT))
    loads.run(bench, server, *flags, seconds=_PULLING_SECONDS)


def _megabytes(server: Server) -> float:
    return server.resident_bytes() / 1e6
