"""Who is compared: ours, and the peers that can be had on this machine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.figures import Figure, Unit, ratios, spelt_medians
from benchmarks.peers import etcd
from benchmarks.peers.fetching import AbsentError
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


# What none of the others does is off.
OURS: Final = Contestant("ours", "ours", lambda bench: ours(bench, *WITHOUT_LOG))
# As it is by default. A load of seconds asks nearly everything for the first time on a connection, so that nearly every
# answer is a line, as is every heartbeat: the edge of what the log costs.
OURS_WITH_LOG: Final = Contestant("ours_with_log", "ours with the heartbeat log", ours)


class Peers:
    """Those that can be had, fetched when somebody asks for them first."""

    def __init__(self) -> None:
        self._had: Sequence[Contestant] | None = None

    def had(self, bench: Bench) -> Sequence[Contestant]:
        """In the order of the report; of those that are missing it is said why, once."""
        if self._had is None:
            self._had = list(self._fetched(bench))
        return self._had

    def _fetched(self, bench: Bench) -> Iterator[Contestant]:
        for fetch in (_etcd,):
            try:
                yield fetch(bench)
            except AbsentError as why:
                bench.progress(f"left out: {why}")


def _etcd(bench: Bench) -> Contestant:
    return Contestant(
        "etcd", f"etcd {etcd.version()}", partial(etcd.etcd, program=etcd.program(bench)), speaks_rocketmq=False
    )


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
