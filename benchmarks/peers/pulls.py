"""Route questions per second, and the latency of the slowest."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from benchmarks import loads
from benchmarks.figures import Figure
from benchmarks.loads import Load
from benchmarks.peers.apache import HEAPS
from benchmarks.peers.pairs import Sides, against_apache, in_turn, pair
from benchmarks.pulls import PIPELINED
from benchmarks.rounds import Bench
from benchmarks.seeding import Wire, pulled_body_bytes, pulled_brokers, register
from namesrv_remoting.codes import SerializeType

# those of ours and those of Apache's, round by round
Found = tuple[Sequence[Load], Sequence[Load]]
# name -> what it is called, and how load asks
_WAYS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "single": ("200 connections", ()),
    "pipelined": ("50 connections x 8 in flight", PIPELINED),
}


def measure(bench: Bench) -> list[Figure]:
    """Ours in turn with Apache's, of which there is one at a time."""
    found = {heap: _asked(bench, heap) for heap in HEAPS}
    return [
        figure
        for name, (what, _) in _WAYS.items()
        for figure in _figures(name, what, {heap: ways[name] for heap, ways in found.items()})
    ]


def _asked(bench: Bench, heap: str) -> dict[str, Found]:
    with pair(bench, heap) as servers, Wire(servers.ours) as our_brokers, Wire(servers.theirs) as their_brokers:
        for brokers in (our_brokers, their_brokers):
            register(brokers, pulled_brokers())
            # refuses answers of another size: it is the same that is compared
            pulled_body_bytes(brokers, SerializeType.JSON)
        servers.warm_up(bench)
        return {
            name: in_turn(
                bench,
                f"{what}, Apache's with {heap}",
                partial(loads.run, bench, servers.ours, *flags),
                partial(loads.run, bench, servers.theirs, *flags),
            )
            for name, (what, flags) in _WAYS.items()
        }


def _figures(name: str, what: str, found: Mapping[str, Found]) -> list[Figure]:
    rate, p99, computing = (
        {heap: Sides(read(ours), read(theirs)) for heap, (ours, theirs) in found.items()}
        for read in (loads.rates, loads.p99s, loads.computing)
    )
    return [
        *against_apache(f"pulls.{name}.rate", f"{what}: rate", "per_second", rate),
        *against_apache(f"pulls.{name}.p99", f"{what}: p99", "milliseconds", p99),
        *against_apache(f"pulls.{name}.computing", f"{what}: computing time of an answer", "microseconds", computing),
    ]
