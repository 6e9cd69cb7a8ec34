"""The peers: our server, and the other registries that are available on this machine."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, Unit, medians, ratios
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import WITHOUT_LOG
from benchmarks.peers import etcd, rocketmq, zookeeper
from benchmarks.peers.fetching import jars
from benchmarks.peers.registry import Registry
from benchmarks.speed.pulls import STAYING


@dataclass(frozen=True, slots=True)
class Peer:
    """A registry in the comparison."""

    # identifies the peer in the names of figures
    key: str
    # name and version, for tables
    label: str
    # That of a NameServer also has the parameter `port`, by default a free one.
    start: Callable[..., AbstractContextManager[Registry]]
    is_name_server: bool = True
    # False: a newer version of the peer is measured, too.
    is_newest: bool = True
    # True: the peer is only measured with many topics.
    is_for_memory: bool = False


# 10,000 watchers come from one address, and a tenth of the connections is reserved for brokers.
_FOR_CROWDS: Final = ("--max-connections", "12000", "--max-memory-bytes", str(4 << 30))
# Without the heartbeat log, which no other registry has.
OURS: Final = Peer("ours", "ours", lambda bench: rocketmq.ours(bench, *WITHOUT_LOG, *_FOR_CROWDS, STAYING))


def available(bench: Bench, wanted: Collection[str]) -> Iterator[Peer]:
    """The peers of these REGISTRIES that work here, in the order of the report; a message explains each other one."""
    fetches = [fetch for name in REGISTRIES if name in wanted for fetch in REGISTRIES[name]]
    for fetch in fetches:
        try:
            peer = fetch(bench)
            bench.progress(f"trying {peer.label}")
            with peer.start(bench) as registry:
                registry.seed()
        except (BenchError, OSError) as why:
            bench.progress(f"left out: {why}")
        else:
            yield peer


def _apache(version: str, heap: str, bench: Bench, *, is_for_memory: bool = False) -> Peer:
    start = partial(rocketmq.apache, lib=jars(bench, "apache", version), heap=heap)
    key = f"apache-{version}-{heap.replace(' ', '').lower()}"
    is_newest = version == rocketmq.APACHE_VERSIONS[-1]
    return Peer(key, f"Apache's {version}, {heap}", start, is_newest=is_newest, is_for_memory=is_for_memory)


def _rust(bench: Bench) -> Peer:
    start = partial(rocketmq.rust, program=rocketmq.rust_program(bench))
    return Peer("rust", f"rocketmq-rust {rocketmq.RUST_VERSION}", start)


def _zookeeper(bench: Bench) -> Peer:
    start = partial(zookeeper.zookeeper, lib=jars(bench, "zookeeper", zookeeper.VERSION))
    return Peer("zookeeper", f"ZooKeeper {zookeeper.VERSION}", start, is_name_server=False)


def _etcd(bench: Bench) -> Peer:
    start = partial(etcd.etcd, program=etcd.program(bench))
    return Peer("etcd", f"etcd {etcd.VERSION}", start, is_name_server=False)


# name -> functions that fetch its peers; in the order of the report
REGISTRIES: Final[Mapping[str, Sequence[Callable[[Bench], Peer]]]] = {
    "apache": [
        *(partial(_apache, version, "4 GB") for version in rocketmq.APACHE_VERSIONS),
        # The newest one with a smaller heap than that of its start script.
        partial(_apache, rocketmq.APACHE_VERSIONS[-1], "512 MB", is_for_memory=True),
    ],
    "rust": [_rust],
    "zookeeper": [_zookeeper],
    "etcd": [_etcd],
}


def started(bench: Bench, stack: ExitStack, peers: Sequence[Peer]) -> dict[str, Registry]:
    """Start ours and these peers until the stack is closed. Raises BenchError."""
    running: dict[str, Registry] = {}
    for peer in (OURS, *peers):
        bench.progress(f"starting {peer.label}")
        running[peer.key] = stack.enter_context(peer.start(bench))
    return running


def against(
    name: str, what: str, unit: Unit, samples: Mapping[str, Sequence[float]], peers: Sequence[Peer]
) -> list[Figure]:
    """Our figure, and the ratio ours / the peer's for each peer with samples, explained by the peer's median."""
    ours = samples[OURS.key]
    return [
        Figure(f"peers.{name}.{OURS.key}", what, unit, ours, column=OURS.label),
        *(
            Figure(
                f"peers.{name}.{peer.key}",
                what,
                "times",
                ratios(ours, samples[peer.key]),
                details=medians(unit, samples[peer.key]),
                column=f"ours / {peer.label}",
            )
            for peer in peers
            if peer.key in samples
        ),
    ]
