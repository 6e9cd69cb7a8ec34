"""Registrations of 10,000 topics: their cost, and pulls and stalls beside them."""

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.harness.figures import Figure, Target, at_least, at_most, compared, medians
from benchmarks.harness.loads import PROBE, PULLS, Load, run
from benchmarks.harness.rounds import Bench, Repeating
from benchmarks.harness.servers import WITHOUT_LOG, Server, daemon
from benchmarks.harness.wire import PULLED_TOPICS, Broker, Wire, pulled_body_bytes, pulled_brokers, register, topics

TOPICS: Final = 10_000
# the most topics that a broker may have
_MANY_TOPICS: Final = 100_000
_PER_SECOND: Final = 10
# 36 characters, about as long as in RocketMQ's own benchmark
TOPIC_NAME: Final = "AbcdefghijklmnopqrstuvwxyzAbcdef%d"
# registrations of each kind in each round
_REGISTRATIONS: Final = 40
# time until the heartbeat log of the last registration is written
_LOG_SECONDS: Final = 0.5

Frames = Sequence[bytes]


def a_broker() -> Broker:
    """The broker whose registration is measured."""
    return Broker("broker0", "127.0.0.1:10911", topics(TOPIC_NAME, TOPICS))


def changes(broker: Broker) -> Frames:
    """Two registrations that differ in every topic."""
    return [broker.changed(read_queue_nums=4).json_frame(), broker.json_frame()]


# -- beside pulls -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Beside:
    """A load, and the rate of registrations during it."""

    load: Load
    # _PER_SECOND, unless the server is too slow
    registrations_per_second: float = 0.0


def measure_beside_pulls(bench: Bench) -> list[Figure]:
    """Pulls while a broker with 10,000 topics registers anew, ten times a second."""
    with (
        daemon(bench, *WITHOUT_LOG) as server,
        daemon(bench) as logging,
        Wire(server) as wire,
        Wire(logging) as to_logging,
    ):
        # The first broker has all pulled topics, so that each change invalidates every cached response.
        brokers = pulled_brokers(topics(TOPIC_NAME, TOPICS - PULLED_TOPICS))
        register(wire, brokers)
        pulled_body_bytes(wire)
        broker = brokers[0]
        # The counter must differ from that of `changes`: with an equal DataVersion nothing has changed.
        version = [broker.changed().changed().json_frame(), broker.json_frame()]
        cases: dict[str, Frames] = {"quiet": [], "fields": changes(broker), "version": version}
        pulled = bench.in_turn(
            "pulls while registering", {name: _beside(bench, server, wire, frames) for name, frames in cases.items()}
        )
        register(to_logging, pulled_brokers())
        many = changes(Broker("many", "127.0.0.1:10801", topics("T%d", _MANY_TOPICS)))
        probed = bench.in_turn(
            "stalls while registering",
            {name: _beside(bench, server, wire, frames, PROBE) for name, frames in cases.items()}
            | {"many": _beside(bench, logging, to_logging, many, PROBE)},
        )
    many_what = f"a broker with {_MANY_TOPICS:,} topics, all changed, with the heartbeat log"
    return [
        _pulls("fields", "every topic changed", pulled),
        _stall("fields", "every topic changed", probed, at_most(20)),
        _pulls("version", "DataVersion changed", pulled),
        _stall("version", "DataVersion changed", probed, at_most(20)),
        _stall("quiet", "no registration", probed),
        _stall("many", many_what, probed, at_most(20)),
    ]


def _beside(
    bench: Bench, server: Server, wire: Wire, frames: Frames, flags: Sequence[str] = ()
) -> Callable[[], _Beside]:
    """A function that runs a load while these registrations, if any, are sent in turn."""

    def measured() -> _Beside:
        if not frames:
            return _Beside(run(bench, server, PULLS, *flags))
        in_turn = itertools.cycle(frames)
        with Repeating(lambda: wire.success(next(in_turn)), at_most=_PER_SECOND) as broker:
            load = run(bench, server, PULLS, *flags)
        return _Beside(load, broker.per_second)

    return measured


_Results = Mapping[str, Sequence[_Beside]]


def _pulls(name: str, what: str, results: _Results) -> Figure:
    """The rate of pulls, compared with that of undisturbed ones."""
    beside, undisturbed = ([each.load.per_second for each in results[key]] for key in (name, "quiet"))
    what = f"{what}: pulls / undisturbed"
    ratio = compared(f"registration.{name}.pulls", what, "per_second", (beside, undisturbed), at_least(0.7))
    done = statistics.median(each.registrations_per_second for each in results[name])
    return replace(ratio, details=f"{ratio.details}, {done:.1f} registrations/s")


def _stall(name: str, what: str, results: _Results, target: Target | None = None) -> Figure:
    longest = [each.load.longest_ms for each in results[name]]
    return Figure(f"registration.{name}.stall", f"{what}: longest stall", "milliseconds", longest, target)


# -- cost -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """The average cost of a request in a round, in milliseconds."""

    # the server's processor time in all threads
    server: float
    # time until the response
    round_trip: float


def measure_cost(bench: Bench) -> list[Figure]:
    """Processor time of the server for one registration of 10,000 topics."""
    with (
        daemon(bench, *WITHOUT_LOG) as server,
        daemon(bench) as logging,
        Wire(server) as wire,
        Wire(logging) as to_logging,
    ):
        broker = a_broker()
        changed = changes(broker)
        kinds = {
            "unchanged": ("unchanged, JSON", [broker.json_frame()], at_most(2)),
            "unchanged.compressed": ("unchanged, zlib", [broker.compressed_frame()], at_most(2)),
            "unchanged.native": ("unchanged, native", [broker.native_frame()], at_most(2)),
            "version": ("DataVersion changed, JSON", [broker.changed().json_frame(), broker.json_frame()], None),
            "fields": ("every topic changed, JSON", changed, None),
        }
        cases = {name: cost(server, wire, frames) for name, (_, frames, _) in kinds.items()}
        kinds["fields.log"] = ("every topic changed, JSON, with the heartbeat log", changed, None)
        cases["fields.log"] = cost(logging, to_logging, changed, _LOG_SECONDS)
        results = bench.in_turn("cost of a registration", cases)
    return [
        Figure(
            f"registration_cost.{name}",
            f"{what} ({len(frames[0]) / 1000:,.0f} kB)",
            "milliseconds",
            [each.server for each in results[name]],
            target,
            f"round trip {medians('milliseconds', [each.round_trip for each in results[name]])}",
        )
        for name, (what, frames, target) in kinds.items()
    ]


def cost(server: Server, wire: Wire, frames: Frames, log_seconds: float = 0.0) -> Callable[[], Cost]:
    """A function that measures the cost of these frames, sent in turn, and of log lines written `log_seconds` later."""

    def measured() -> Cost:
        # The first registrations do not count, because the previous case has changed the tables.
        for frame in frames:
            wire.request(frame)
        time.sleep(log_seconds)
        cpu, began = server.cpu_seconds(), time.perf_counter()
        for frame in itertools.islice(itertools.cycle(frames), _REGISTRATIONS):
            wire.request(frame)
        waited = time.perf_counter() - began
        time.sleep(log_seconds)
        return Cost((server.cpu_seconds() - cpu) * 1000 / _REGISTRATIONS, waited * 1000 / _REGISTRATIONS)

    return measured
