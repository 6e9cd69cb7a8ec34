"""Memory with 4 clusters of 8 brokers, which share 10,000 topics each."""

from contextlib import ExitStack
from typing import Final

from benchmarks import loads
from benchmarks.figures import Figure
from benchmarks.memory import BROKERS, CLUSTERS, TOPIC_NAME, TOPICS, clustered_broker
from benchmarks.peers.contestants import OURS, Peers, against, started
from benchmarks.pulls import PIPELINED
from benchmarks.rounds import Bench
from benchmarks.seeding import Wire
from benchmarks.servers import Server

_COUNT: Final = TOPICS * CLUSTERS
_PULLING_SECONDS: Final = 4


def measure(bench: Bench, peers: Peers) -> list[Figure]:
    """When the brokers have registered, and when their topics were asked for some seconds long, one after the other."""
    others = [*peers.name_servers(bench), *peers.with_less_heap(bench)]
    registered: dict[str, list[float]] = {}
    pulled: dict[str, list[float]] = {}
    for contestant in (OURS, *others):
        with ExitStack() as stack:
            for key, asked in started(bench, stack, [contestant]).items():
                brokers = stack.enter_context(Wire(asked.server))
                for number in range(CLUSTERS * BROKERS):
                    brokers.ask_well(clustered_broker(number, is_shared=True).json_frame())
                registered[key] = [_megabytes(asked.server)]
                flags = (*PIPELINED, "--topic", TOPIC_NAME, "--topics", str(_COUNT))
                loads.run(bench, asked.server, *flags, seconds=_PULLING_SECONDS)
                pulled[key] = [_megabytes(asked.server)]
    what = f"{_COUNT:,} topics"
    return [
        *against("memory.registered", f"{what}: resident when registered", "megabytes", registered, others),
        *against("memory.pulled", f"{what}: and pulled for {_PULLING_SECONDS} s", "megabytes", pulled, others),
    ]


def _megabytes(server: Server) -> float:
    return server.resident_bytes() / 1e6
