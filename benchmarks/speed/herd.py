"""Thundering herds: 5,000 clients reconnect after a restart, 2,000 brokers register at once."""

from dataclasses import replace
from typing import Final

from benchmarks.harness.crowd import Habits, crowd
from benchmarks.harness.figures import Figure, at_most
from benchmarks.harness.probe import Probe
from benchmarks.harness.rounds import Bench, Repeating, until
from benchmarks.harness.servers import WITHOUT_LOG, daemon
from benchmarks.harness.wire import (
    PULLED_TOPICS,
    TOPIC_NAME,
    Wire,
    many_brokers,
    pulled_brokers,
    register,
    route_request,
)

_CLIENTS: Final = 5_000
_BROKERS: Final = 2_000
# topics of each broker, which no other broker has
_TOPICS: Final = 10
_ROUTES: Final = [route_request(TOPIC_NAME % number) for number in range(PULLED_TOPICS)]
# All brokers connect at the same time, and reconnect without a pause.
_BROKERS_HABITS: Final = Habits(at_once=60_000, again_seconds=0.0)
# Clients are as patient as those of RocketMQ.
_CLIENTS_HABITS: Final = replace(_BROKERS_HABITS, patience_seconds=3.0)


def measure(bench: Bench) -> list[Figure]:
    """Everyone at once: 5,000 clients come back after a restart, 2,000 brokers register anew."""
    rounds = range(bench.effort.rounds)
    what = f"{_CLIENTS:,} clients, a topic each, all served after"
    bench.progress(f"herd: {what}")
    clients = Figure("herd.polite", what, "seconds", [_clients(bench) for _ in rounds], at_most(10))
    bench.progress(f"herd: {_BROKERS:,} brokers")
    measured = [_stall(bench) for _ in rounds]
    wall_ms, took = max(wall for _, wall, _ in measured), max(took for _, _, took in measured)
    details = f"processor time; {wall_ms:.0f} ms on the clock; all registered after {took:.1f} s"
    what = f"{_BROKERS:,} brokers with {_BROKERS * _TOPICS:,} topics register at once, and disconnect: longest stall"
    stalls = [busy for busy, _, _ in measured]
    return [clients, Figure("herd.stall", what, "milliseconds", stalls, at_most(50), details)]


def _clients(bench: Bench) -> float:
    """Seconds until all clients are served."""
    with daemon(bench, *WITHOUT_LOG) as server, Wire(server) as wire:
        register(wire, pulled_brokers())
        with crowd(server, _ROUTES, members=_CLIENTS, habits=_CLIENTS_HABITS) as clients:
            return clients.served() - clients.began_at


def _stall(bench: Bench) -> tuple[float, float, float]:
    """Longest work of the server between two pulls, and their longest wait (milliseconds); seconds to register all."""
    frames = [broker.native_frame() for broker in many_brokers(_BROKERS, "herd-topic-%d", _TOPICS)]
    with daemon(bench, *WITHOUT_LOG) as server, Wire(server) as wire:
        register(wire, pulled_brokers())
        others = wire.info()["brokers"]
        with Probe(server, _ROUTES[0]) as probe, Repeating(probe.send):
            with crowd(server, frames, habits=_BROKERS_HABITS) as brokers:
                took = brokers.served() - brokers.began_at
            # rarely: the thread of the probe should be the only one that works
            until("all brokers are evicted", lambda: wire.info()["brokers"] == others, every=0.5)
        return probe.longest_busy_ms, max(probe.waits_ms), took
