"""Pulls while a broker with 10,000 topics registers anew, ten times a second."""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks import loads
from benchmarks.figures import Figure, Target, ratios, spelt_medians
from benchmarks.loads import Load
from benchmarks.repeating import Repeating
from benchmarks.rounds import Bench
from benchmarks.seeding import PULLED_TOPICS, Broker, Wire, pulled_body_bytes, pulled_brokers, register, topics
from benchmarks.servers import WITHOUT_LOG, Server, daemon
from namesrv_remoting.codes import SerializeType

TOPICS: Final = 10_000
# what a broker may have
MANY_TOPICS: Final = 100_000
PER_SECOND: Final = 10
# 36 characters, about what RocketMQ's own benchmark uses
TOPIC_NAME: Final = "AbcdefghijklmnopqrstuvwxyzAbcdef%d"


def measure(bench: Bench) -> list[Figure]:
    """Pulls and the longest stall, with every topic changed and with only the DataVersion changed."""
    with (
        daemon(bench, *WITHOUT_LOG) as server,
        daemon(bench) as with_log,
        Wire(server) as wire,
        Wire(with_log) as to_log,
    ):
        # the first of them: its topics are among those that are pulled, so that each change makes every answer anew
        brokers = pulled_brokers(topics(TOPIC_NAME, TOPICS - PULLED_TOPICS))
        register(wire, brokers)
        pulled_body_bytes(wire, SerializeType.JSON)
        broker = brokers[0]
        fields = [broker.changed(read_queue_nums=4).json_frame(), broker.json_frame()]
        # another count than that of the changed topics: equal ones would say that nothing changed
        version = [broker.changed().changed().json_frame(), broker.json_frame()]
        disturbances = {"quiet": [], "fields": fields, "version": version}
        pulls = bench.in_turn(
            "pulls while registering",
            {name: _case(bench, server, wire, frames) for name, frames in disturbances.items()},
        )
        register(to_log, pulled_brokers())
        many = Broker("DefaultCluster", "many", 0, "127.0.0.1:10801", topics("T%d", MANY_TOPICS))
        changes = [many.changed(read_queue_nums=4).json_frame(), many.json_frame()]
        probes = bench.in_turn(
            "stalls while registering",
            {name: _case(bench, server, wire, frames, loads.PROBE) for name, frames in disturbances.items()}
            | {"many": _case(bench, with_log, to_log, changes, loads.PROBE)},
        )
    return [
        *_figures("fields", "every topic changed", pulls, probes),
        *_figures("version", "DataVersion changed", pulls, probes),
        *_waits("quiet", "nobody registers", pulls, probes, target=None),
        Figure(
            "registration.many.stall",
            f"a broker with {MANY_TOPICS:,} topics, all changed, with the heartbeat log: longest stall",
            "milliseconds",
            _longests(probes["many"]),
            Target("<=", 20),
        ),
    ]


@dataclass(frozen=True, slots=True)
class Disturbed:
    """What load found, and what happened meanwhile."""

    load: Load
    # ten, unless the server does not keep up
    registrations_per_second: float = 0.0


def _case(
    bench: Bench, server: Server, wire: Wire, frames: Sequence[bytes], flags: Sequence[str] = ()
) -> Callable[[], Disturbed]:
    """Load while these registrations are sent in turn; none are when there are none."""

    def run() -> Disturbed:
        if not frames:
            return Disturbed(loads.run(bench, server, *flags))
        turns = itertools.cycle(frames)
        with Repeating(lambda: wire.ask_well(next(turns)), at_most=PER_SECOND) as broker:
            load = loads.run(bench, server, *flags)
        return Disturbed(load, broker.per_second)

    return run


def _figures(
    name: str, what: str, pulls: Mapping[str, Sequence[Disturbed]], probes: Mapping[str, Sequence[Disturbed]]
) -> list[Figure]:
    mine, quiet = _rates(pulls[name]), _rates(pulls["quiet"])
    done = statistics.median(found.registrations_per_second for found in pulls[name])
    return [
        Figure(
            f"registration.{name}.pulls",
            f"{what}: pulls / undisturbed",
            "times",
            ratios(mine, quiet),
            Target(">=", 0.7),
            behind=f"{spelt_medians('per_second', mine, quiet)}, {done:.1f} registrations/s",
        ),
        *_waits(name, what, pulls, probes, target=Target("<=", 20)),
    ]


def _waits(
    name: str,
    what: str,
    pulls: Mapping[str, Sequence[Disturbed]],
    probes: Mapping[str, Sequence[Disturbed]],
    *,
    target: Target | None,
) -> list[Figure]:
    stall, longest = _longests(probes[name]), _longests(pulls[name])
    return [
        Figure(f"registration.{name}.stall", f"{what}: longest stall", "milliseconds", stall, target),
        Figure(f"registration.{name}.longest_pull", f"{what}: longest pull of 200", "milliseconds", longest),
    ]


def _rates(found: Sequence[Disturbed]) -> list[float]:
    return loads.rates([each.load for each in found])


def _longests(found: Sequence[Disturbed]) -> tuple[float, ...]:
    return tuple(loads.longests([each.load for each in found]))
