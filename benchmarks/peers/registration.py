"""A registration of 10,000 topics, as its broker waits for it and as the server pays for it."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from operator import attrgetter
from typing import Final

from benchmarks.figures import Figure
from benchmarks.peers.contestants import OURS, OURS_WITH_LOG, Peers, against, fewer_rounds, started
from benchmarks.registration import TOPIC_NAME, TOPICS
from benchmarks.registration_cost import LOG_SECONDS, Cost, case
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, topics

# of each kind, 40 times each before anything counts: by then a JVM has compiled what it needs
_WARM_UP: Final = 2
_WHAT: Final[Mapping[str, str]] = {
    "unchanged": "unchanged",
    "fields": "every topic changed",
}


def measure(bench: Bench, peers: Peers) -> list[Figure]:
    """The first one that a fresh server gets, then unchanged and changed ones in turn."""
    others = peers.name_servers(bench)
    broker = Broker("DefaultCluster", "broker0", 0, "127.0.0.1:10911", topics(TOPIC_NAME, TOPICS))
    kinds = {
        "unchanged": [broker.json_frame()],
        "fields": [broker.changed(read_queue_nums=4).json_frame(), broker.json_frame()],
    }
    with ExitStack() as stack:
        contestants = [OURS, OURS_WITH_LOG, *others]
        servers = {key: asked.server for key, asked in started(bench, stack, contestants).items()}
        wires = {key: stack.enter_context(Wire(server)) for key, server in servers.items()}
        first = {key: [_round_trip(wire, broker.json_frame())] for key, wire in wires.items()}
        found: dict[str, Mapping[str, Sequence[Cost]]] = {}
        for name, frames in kinds.items():
            cases = {
                key: case(server, wires[key], frames, LOG_SECONDS if key == OURS_WITH_LOG.key else 0.0)
                for key, server in servers.items()
            }
            bench.progress(f"registrations, {_WHAT[name]}, until they are compiled")
            for run in cases.values():
                _warm_up(run)
            found[name] = fewer_rounds(bench).in_turn(f"registrations, {_WHAT[name]}", cases)
    figures = against("registration.first", "the first of a fresh server: round trip", "milliseconds", first, others)
    for name, what in _WHAT.items():
        waited, computed = (
            {key: [read(cost) for cost in costs] for key, costs in found[name].items()}
            for read in (attrgetter("round_trip"), attrgetter("server"))
        )
        figures += against(f"registration.{name}", f"{what}: round trip", "milliseconds", waited, others)
        figures += against(
            f"registration.{name}.computing", f"{what}: computing time", "milliseconds", computed, others
        )
        if OURS_WITH_LOG.key in computed:
            logged = {**computed, OURS.key: computed[OURS_WITH_LOG.key]}
            figures += against(
                f"registration.{name}.log.computing",
                f"{what}, ours with the heartbeat log: computing time",
                "milliseconds",
                logged,
                others,
            )
    return figures


def _warm_up(run: Callable[[], Cost]) -> None:
    for _ in range(_WARM_UP):
        run()


def _round_trip(broker: Wire, frame: bytes) -> float:
    began = time.perf_counter()
    broker.ask_well(frame)
    return (time.perf_counter() - began) * 1000
