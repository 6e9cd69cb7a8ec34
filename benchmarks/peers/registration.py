"""A registration of 10,000 topics, as its broker waits for it and as the server pays for it."""

import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from benchmarks.figures import Figure
from benchmarks.peers.apache import HEAPS
from benchmarks.peers.pairs import Sides, against_apache, in_turn, pair
from benchmarks.registration import TOPIC_NAME, TOPICS
from benchmarks.registration_cost import Cost, case
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, topics

# kind -> those of ours and those of Apache's, round by round
Found = Mapping[str, tuple[Sequence[Cost], Sequence[Cost]]]
# of each kind, 40 times each before anything counts: by then a JVM has compiled what it needs
_WARM_UP: Final = 5
_WHAT: Final[Mapping[str, str]] = {
    "unchanged": "unchanged",
    "version": "DataVersion changed",
    "fields": "every topic changed",
}


def measure(bench: Bench) -> list[Figure]:
    """The first one that a fresh server gets, then unchanged and changed ones in turn."""
    first: dict[str, Sides] = {}
    found: dict[str, Found] = {}
    for heap in HEAPS:
        first[heap], found[heap] = _registered(bench, heap)
    figures = against_apache("registration.first", "the first of a fresh server: round trip", "milliseconds", first)
    for name, what in _WHAT.items():
        costs = {heap: kinds[name] for heap, kinds in found.items()}
        figures += _figures(f"registration.{name}", what, costs)
    return figures


def _registered(bench: Bench, heap: str) -> tuple[Sides, Found]:
    broker = Broker("DefaultCluster", "broker0", 0, "127.0.0.1:10911", topics(TOPIC_NAME, TOPICS))
    kinds = {
        "unchanged": [broker.json_frame()],
        "version": [broker.changed().json_frame(), broker.json_frame()],
        "fields": [broker.changed(read_queue_nums=4).json_frame(), broker.json_frame()],
    }
    with pair(bench, heap) as servers, Wire(servers.ours) as our_broker, Wire(servers.theirs) as their_broker:
        first = Sides(
            [_round_trip(our_broker, broker.json_frame())],
            [_round_trip(their_broker, broker.json_frame())],
        )
        cases = {
            name: (case(servers.ours, our_broker, frames), case(servers.theirs, their_broker, frames))
            for name, frames in kinds.items()
        }
        for run in (run for both in cases.values() for run in both for _ in range(_WARM_UP)):
            run()
        return first, {
            name: in_turn(bench, f"registrations, {_WHAT[name]}, Apache's with {heap}", *both)
            for name, both in cases.items()
        }


def _round_trip(broker: Wire, frame: bytes) -> float:
    began = time.perf_counter()
    broker.ask_well(frame)
    return (time.perf_counter() - began) * 1000


def _figures(name: str, what: str, found: Mapping[str, tuple[Sequence[Cost], Sequence[Cost]]]) -> list[Figure]:
    waited, computed = (
        {
            heap: Sides([read(cost) for cost in ours], [read(cost) for cost in theirs])
            for heap, (ours, theirs) in found.items()
        }
        for read in (attrgetter("round_trip"), attrgetter("server"))
    )
    return [
        *against_apache(name, f"{what}: round trip", "milliseconds", waited),
        *against_apache(f"{name}.computing", f"{what}: computing time", "milliseconds", computed),
    ]
