"""Who is compared: ours, and the peers that can be had on this machine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.figures import BenchError, Figure, Unit, ratios, spelt_medians
from benchmarks.peers import apache, etcd, rust, zookeeper
from benchmarks.peers.fetching import AbsentError, jars
from benchmarks.peers.rocketmq import Asked, ours
from benchmarks.rounds import Bench
from benchmarks.servers import WITHOUT_LOG


@dataclass(frozen=True, slots=True)
class Contestant:
    """One of those who are compared."""

    # for programs
    key: str
    # as people know it, with its version
    label: str
    start: Callable[[Bench], AbstractContextManager[Asked]]
    speaks_rocketmq: bool = True
    # a JVM compiles what it does often while it does it
    warms_up: bool = False


_FEWER_ROUNDS: Final = 3
# What none of the others does is off.
OURS: Final = Contestant("ours", "ours", lambda bench: ours(bench, *WITHOUT_LOG))
# As it is by default. A load of seconds asks nearly everything for the first time on a connection, so that nearly every
# answer is a line, as is every heartbeat: the edge of what the log costs.
OURS_WITH_LOG: Final = Contestant("ours_with_log", "ours with the heartbeat log", ours)


class Peers:
    """Those that can be had, fetched when somebody asks for them first."""

    def __init__(self, rocketmq_rust: Path | None = None) -> None:
        self._had: Sequence[Contestant] | None = None
        # the program, if it is not to be built
        self._rocketmq_rust = rocketmq_rust

    def had(self, bench: Bench) -> Sequence[Contestant]:
        """In the order of the report; of those that are missing it is said why, once."""
        if self._had is None:
            self._had = list(self._fetched(bench))
        return self._had

    def name_servers(self, bench: Bench) -> Sequence[Contestant]:
        """Of them, those that brokers can register with."""
        return [peer for peer in self.had(bench) if peer.speaks_rocketmq]

    def with_less_heap(self, bench: Bench) -> Sequence[Contestant]:
        """The newest of Apache's, for whoever gives it less memory than its start script does."""
        try:
            return [_apache(apache.VERSIONS[-1], "512 MB", bench)]
        except AbsentError:
            # as it was said of it with more
            return []

    def _fetched(self, bench: Bench) -> Iterator[Contestant]:
        fetches: Sequence[Callable[[Bench], Contestant]] = (
            *(partial(_apache, version, "4 GB") for version in apache.VERSIONS),
            *(self._rust, _zookeeper, _etcd),
        )
        for fetch in fetches:
            try:
                yield _tried(bench, fetch(bench))
            except (AbsentError, BenchError, OSError) as why:
                bench.progress(f"left out: {why}")

    def _rust(self, bench: Bench) -> Contestant:
        program = rust.program(bench, self._rocketmq_rust)
        name = rust.VERSION if self._rocketmq_rust is None else "as handed in"
        return Contestant("rust", f"rocketmq-rust {name}", partial(rust.rust, program=program))


def _tried(bench: Bench, contestant: Contestant) -> Contestant:
    """One that starts and does the work: what fails later is no longer the machine's or the version's."""
    bench.progress(f"trying {contestant.label}")
    with contestant.start(bench) as asked:
        asked.seed()
    return contestant


def _apache(version: str, heap: str, bench: Bench) -> Contestant:
    return Contestant(
        f"apache-{version}-{heap.replace(' ', '').lower()}",
        f"Apache's {version}, {heap}",
        partial(apache.apache, lib=jars(bench, "apache", version), heap=heap),
        warms_up=True,
    )


def _zookeeper(bench: Bench) -> Contestant:
    lib = jars(bench, "zookeeper", zookeeper.VERSION)
    return Contestant(
        "zookeeper",
        f"ZooKeeper {zookeeper.VERSION}",
        partial(zookeeper.zookeeper, lib=lib),
        speaks_rocketmq=False,
        warms_up=True,
    )


def _etcd(bench: Bench) -> Contestant:
    return Contestant(
        "etcd", f"etcd {etcd.version()}", partial(etcd.etcd, program=etcd.program(bench)), speaks_rocketmq=False
    )


def started(bench: Bench, stack: ExitStack, contestants: Sequence[Contestant]) -> dict[str, Asked]:
    """Those that start, by key, until the stack is left; ours has to."""
    running: dict[str, Asked] = {}
    for contestant in contestants:
        bench.progress(f"starting {contestant.label}")
        try:
            running[contestant.key] = stack.enter_context(contestant.start(bench))
        except (BenchError, OSError) as why:
            if contestant is OURS:
                raise
            bench.progress(f"left out: {why}")
    return running


def fewer_rounds(bench: Bench) -> Bench:
    """For what takes long or differs by much, so that all of it takes six minutes."""
    return replace(bench, effort=replace(bench.effort, rounds=min(_FEWER_ROUNDS, bench.effort.rounds)))


def against(
    name: str, what: str, unit: Unit, found: Mapping[str, Sequence[float]], peers: Sequence[Contestant]
) -> list[Figure]:
    """Ours / each of the others' that was found, round by round; behind it, both."""
    subject = found[OURS.key]
    return [
        Figure(
            f"peers.{name}.{peer.key}",
            f"{what}: ours / {peer.label}",
            "times",
            ratios(subject, found[peer.key]),
            behind=spelt_medians(unit, subject, found[peer.key]),
        )
        for peer in peers
        if peer.key in found
    ]
