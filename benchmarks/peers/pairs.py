"""Ours and Apache's NameServer side by side: both fresh, on one core, and only one of them busy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from benchmarks import loads
from benchmarks.figures import Figure, Unit, ratios, spelt_medians
from benchmarks.peers.apache import HEAPS, apache, lib, version
from benchmarks.rounds import Bench
from benchmarks.servers import Server, daemon

T = TypeVar("T")

# A JVM compiles what it does often while it does it. Each is asked for so long at a time, until that brings less than a
# tenth more; and not for longer than leaves time for the rounds before Apache's closes the seeding connection (120 s).
_WARM_UP_SECONDS: Final = 4
_MOST_WARM_UPS: Final = 10
_STILL_RISING: Final = 1.1


@dataclass(frozen=True, slots=True)
class Sides:
    """The same number of ours and of Apache's, found in turn."""

    ours: Sequence[float]
    theirs: Sequence[float]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two servers that are asked the same."""

    ours: Server
    theirs: Server

    def both(self, case: Callable[[Server], float]) -> Sides:
        """What a case finds on each of them, once."""
        return Sides([case(self.ours)], [case(self.theirs)])

    def warm_up(self, bench: Bench, *flags: str) -> None:
        """Ask each until it is as fast as it gets."""
        for server in (self.ours, self.theirs):
            rate, before = loads.run(bench, server, *flags, seconds=_WARM_UP_SECONDS).answers_per_second, 0.0
            for _ in range(_MOST_WARM_UPS - 1):
                if rate < before * _STILL_RISING:
                    break
                before = rate
                rate = loads.run(bench, server, *flags, seconds=_WARM_UP_SECONDS).answers_per_second


def in_turn(bench: Bench, what: str, ours: Callable[[], T], theirs: Callable[[], T]) -> tuple[list[T], list[T]]:
    """What is found on each of them, round by round."""
    found = bench.in_turn(what, {"ours": ours, "theirs": theirs})
    return found["ours"], found["theirs"]


@contextmanager
def pair(bench: Bench, heap: str) -> Iterator[Pair]:
    """Ours and Apache's with that heap, until the block ends."""
    with daemon(bench) as ours, apache(bench, heap) as theirs:
        yield Pair(ours, theirs)


def against_apache(name: str, what: str, unit: Unit, found: Mapping[str, Sides]) -> list[Figure]:
    """Ours / Apache's with each of HEAPS; behind it, both."""
    return [
        Figure(
            f"peers.{name}.{heap.replace(' ', '').lower()}",
            f"{what}: ours / Apache's {version(lib())}, {heap}",
            "times",
            ratios(found[heap].ours, found[heap].theirs),
            behind=spelt_medians(unit, found[heap].ours, found[heap].theirs),
        )
        for heap in HEAPS
    ]
