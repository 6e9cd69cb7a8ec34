"""The peers: ours, and the registries that are available on this machine."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, Unit, medians, ratios
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import WITHOUT_LOG
from benchmarks.peers import etcd, rocketmq, zookeeper
from benchmarks.peers.fetching import AbsentError, crate_program, jars
from benchmarks.peers.registry import Registry

_FEWER_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class Peer:
    """One of the registries that are compared."""

    # for programs
    key: str
    # as people know it, with its version
    label: str
    start: Callable[[Bench], AbstractContextManager[Registry]]
    is_name_server: bool = True
    # A JVM compiles frequent code while it runs.
    warms_up: bool = False


# What the others do not do at all is off.
OURS: Final = Peer("ours", "ours", lambda bench: rocketmq.ours(bench, *WITHOUT_LOG))
# As it is by default. A load of seconds requests nearly everything for the first time on a connection, so that nearly
# every response is a line, as is every heartbeat: the upper bound of what the log costs.
OURS_WITH_LOG: Final = Peer("ours_with_log", "ours with the heartbeat log", rocketmq.ours)


class Peers:
    """The peers that are available, fetched when they are needed first."""

    def __init__(self, wanted: Collection[str] = ()) -> None:
        self._available: Sequence[Peer] | None = None
        # Names of REGISTRIES; empty: all.
        self._wanted = wanted or REGISTRIES

    def available(self, bench: Bench) -> Sequence[Peer]:
        """In the order of the report; for each that is missing one line says why, once."""
        if self._available is None:
            self._available = list(self._fetched(bench))
        return self._available

    def name_servers(self, bench: Bench) -> Sequence[Peer]:
        """Those that brokers can register with."""
        return [peer for peer in self.available(bench) if peer.is_name_server]

    def with_less_heap(self, bench: Bench) -> Sequence[Peer]:
        """The newest of Apache's, for operators that give it less memory than its start script does."""
        if "apache" not in self._wanted:
            return []
        try:
            return [_apache(rocketmq.APACHE_VERSIONS[-1], "512 MB", bench)]
        except AbsentError:
            # reported already, of the one with more
            return []

    def _fetched(self, bench: Bench) -> Iterator[Peer]:
        for fetch in (each for name, some in REGISTRIES.items() if name in self._wanted for each in some):
            try:
                peer = fetch(bench)
                bench.progress(f"trying {peer.label}")
                with peer.start(bench) as registry:
                    registry.seed()
            except (AbsentError, BenchError, OSError) as why:
                bench.progress(f"left out: {why}")
            else:
                yield peer


def _apache(version: str, heap: str, bench: Bench) -> Peer:
    start = partial(rocketmq.apache, lib=jars(bench, "apache", version), heap=heap)
    key = f"apache-{version}-{heap.replace(' ', '').lower()}"
    return Peer(key, f"Apache's {version}, {heap}", start, warms_up=True)


def _rust(bench: Bench) -> Peer:
    version = rocketmq.RUST_VERSION
    program = crate_program(bench, "rocketmq-namesrv", version, "rocketmq-namesrv-rust")
    return Peer("rust", f"rocketmq-rust {version}", partial(rocketmq.rust, program=program))


def _zookeeper(bench: Bench) -> Peer:
    start = partial(zookeeper.zookeeper, lib=jars(bench, "zookeeper", zookeeper.VERSION))
    return Peer("zookeeper", f"ZooKeeper {zookeeper.VERSION}", start, is_name_server=False, warms_up=True)


def _etcd(bench: Bench) -> Peer:
    start = partial(etcd.etcd, program=etcd.program(bench))
    return Peer("etcd", f"etcd {etcd.VERSION}", start, is_name_server=False)


# name -> fetches each peer; in the order of the report
REGISTRIES: Final[Mapping[str, Sequence[Callable[[Bench], Peer]]]] = {
    "apache": [partial(_apache, version, "4 GB") for version in rocketmq.APACHE_VERSIONS],
    "rust": [_rust],
    "zookeeper": [_zookeeper],
    "etcd": [_etcd],
}


def started(bench: Bench, stack: ExitStack, peers: Sequence[Peer]) -> dict[str, Registry]:
    """Those that start, by key, until the stack is left; ours has to."""
    running: dict[str, Registry] = {}
    for peer in peers:
        bench.progress(f"starting {peer.label}")
        try:
            running[peer.key] = stack.enter_context(peer.start(bench))
        except (BenchError, OSError) as why:
            if peer is OURS:
                raise
            bench.progress(f"left out: {why}")
    return running


def fewer_rounds(bench: Bench) -> Bench:
    """For measurements that take long or vary much."""
    return replace(bench, effort=replace(bench.effort, rounds=min(_FEWER_ROUNDS, bench.effort.rounds)))


def against(
    name: str, what: str, unit: Unit, found: Mapping[str, Sequence[float]], peers: Sequence[Peer]
) -> list[Figure]:
    """Ours, and ours / that of each other one that was found, round by round; behind it, the other's."""
    ours = found[OURS.key]
    return [
        Figure(f"peers.{name}.{OURS.key}", what, unit, ours, column=OURS.label),
        *(
            Figure(
                f"peers.{name}.{peer.key}",
                what,
                "times",
                ratios(ours, found[peer.key]),
                behind=medians(unit, found[peer.key]),
                column=f"ours / {peer.label}",
            )
            for peer in peers
            if peer.key in found
        ),
    ]
