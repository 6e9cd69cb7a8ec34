"""Comparison with other registries, in turn on the same core of this machine, with the same routes.

The ratios are the result; absolute figures depend on the machine.
"""

import argparse
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

from benchmarks.harness.command import Command, by_title, measure_and_report, titles
from benchmarks.harness.figures import BenchError, Figure, at_most
from benchmarks.harness.loads import PIPELINED, Field, Load, pulls, run, values
from benchmarks.harness.rounds import FULL, QUICK, Bench, raise_file_limit
from benchmarks.harness.servers import WAITING, temporary_directory
from benchmarks.harness.wire import Wire, register
from benchmarks.peers import connections, scale
from benchmarks.peers.peers import OURS, REGISTRIES, Peer, against, available, started
from benchmarks.peers.registry import Registry
from benchmarks.peers.rocketmq import PULL
from benchmarks.speed.memory import BROKERS, CLUSTERS, LONG_NAME, TOPICS, clustered_broker
from benchmarks.speed.registration import a_broker, changes, cost

# Servers are warmed up with pulls of so many seconds, until three runs in a row are less than a twentieth faster than
# the best run before. On one core a JVM's compilers compete with the measured code, and the rate rises in steps.
_WARM_UP_SECONDS: Final = 2
_MOST_WARM_UPS: Final = 30
_STILL_RISING: Final = 1.05
_NOT_RISING_IN_A_ROW: Final = 3
# Rounds of registrations before those that count, in which a JVM compiles the code.
_REGISTRATION_WARM_UPS: Final = 2
_PULLING_SECONDS: Final = 4
_WATCHERS: Final = (1_000, 10_000)

LoadsByPeer = Mapping[str, Sequence[Load]]


def main(arguments: Sequence[str]) -> int:
    """Measure beside other registries."""
    command = Command("peers", "Measure this NameServer beside other registries.", titles(SUBJECTS))
    command.add_results()
    command.parser.add_argument(
        "--against", nargs="+", choices=list(REGISTRIES), default=[], help="only these; default: all that are available"
    )
    command.parser.add_argument(
        "--clients", type=int, default=connections.CLIENTS, metavar="N", help="clients of `connections` (100,000)"
    )
    command.add_quick()
    options = command.parse(arguments)
    if options.against and options.write is not None:
        command.parser.error("--write needs the figures of all peers: leave out --against")
    with Bench.pinned(QUICK if options.quick else FULL) as bench:
        left_out = _left_out(bench, options)
        peers = list(available(bench, options.against or REGISTRIES))
        others = [peer for peer in peers if not peer.is_for_memory]
        subjects = {name: partial(measure, others) for name, measure in SUBJECTS.items()}
        subjects["memory"] = partial(measure_memory, peers)
        subjects["connections"] = partial(measure_connections, others, clients=options.clients)
        subjects = {name: measure for name, measure in subjects.items() if name not in left_out}
        _, is_complete = measure_and_report(bench, subjects, options, partial(by_title, SUBJECTS))
    return int(not is_complete)


def _left_out(bench: Bench, options: argparse.Namespace) -> Collection[str]:
    """The subjects for which the limit of open files is too low. Raises BenchError if it is one that was requested."""
    try:
        raise_file_limit(connections.files_needed(options.clients))
    except BenchError as why:
        if "connections" in options.only:
            raise
        bench.progress(f"left out: connections: {why}")
        return {"connections"}
    return ()


# -- work -------------------------------------------------------------------------------------------------------------


def measure_work(others: Sequence[Peer], bench: Bench) -> list[Figure]:
    """A NameServer's work on one core: pulls, heartbeats, memory."""
    with ExitStack() as stack:
        running = started(bench, stack, others)
        _warm_up(bench, running)
        pulled = _in_turn(bench, "pulls", running, lambda each: run(bench, each.server, each.pulls))
        name_servers = {peer.key: running[peer.key] for peer in (OURS, *others) if peer.is_name_server}
        pipelined = _in_turn(
            bench,
            "pipelined pulls",
            name_servers,
            lambda each: run(bench, each.server, each.pulls, *PIPELINED),
        )
        heartbeats = _in_turn(
            bench, "heartbeats", running, lambda each: run(bench, each.server, each.heartbeats, seconds=1)
        )
        loaded = {key: [_megabytes(registry)] for key, registry in running.items()}
    return [
        *_work_figures("pulls", "pulls on 200 connections", pulled, others),
        *_work_figures("pipelined", "50 connections x 8 in flight", pipelined, others),
        *_work_figures("heartbeats", "heartbeats on 200 connections", heartbeats, others),
        *against("memory.loaded", "resident after all of that", "megabytes", loaded, others),
    ]


def _work_figures(name: str, what: str, by_peer: LoadsByPeer, others: Sequence[Peer]) -> list[Figure]:
    return [
        *against(f"{name}.rate", f"{what}: rate", "per_second", _each("per_second", by_peer), others),
        *against(f"{name}.p99", f"{what}: p99", "milliseconds", _each("p99_ms", by_peer), others),
        *against(f"{name}.computing", f"{what}: CPU of one", "microseconds", _each("cpu_us", by_peer), others),
    ]


def _warm_up(bench: Bench, running: dict[str, Registry]) -> None:
    """Seed the registries, and pull from each until its rate does not rise any more."""
    # Apache's is last, because it closes connections of brokers that are silent for two minutes.
    for key, registry in reversed(running.items()):
        bench.progress(f"warming up {key}")
        registry.seed()
        best, not_rising = 0.0, 0
        for _ in range(_MOST_WARM_UPS):
            rate = run(bench, registry.server, registry.pulls, seconds=_WARM_UP_SECONDS).per_second
            not_rising = 0 if rate > best * _STILL_RISING else not_rising + 1
            best = max(best, rate)
            if not_rising == _NOT_RISING_IN_A_ROW:
                break


def _in_turn(bench: Bench, what: str, running: Mapping[str, Registry], case: Callable[[Registry], Load]) -> LoadsByPeer:
    """The load of each registry, round by round, after registering brokers that may have expired again."""
    for registry in running.values():
        registry.seed()
    return bench.in_turn(what, {key: partial(case, registry) for key, registry in running.items()})


def measure_watches(others: Sequence[Peer], bench: Bench) -> list[Figure]:
    """A change notified to 1,000 and to 10,000 watchers on one core, and pulls from ours meanwhile."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        running = started(bench, stack, others)
        for count in _WATCHERS:
            watching = dict(_watching(bench, running, count))
            what = f"of {count:,} watchers know"
            notified = _in_turn(bench, f"{count:,} watches", watching, partial(_notified, bench, count))
            pulled = _in_turn(
                bench,
                f"{count:,} watches beside pulls",
                {OURS.key: running[OURS.key]},
                partial(_notified, bench, count, beside=PULL),
            )
            figures += [
                *against(f"watch.{count}.p50", f"half {what}", "milliseconds", _each("p50_ms", notified), others),
                *against(f"watch.{count}", f"all {what}", "milliseconds", _each("longest_ms", notified), others),
                Figure(
                    f"watch.{count}.pulls",
                    f"p99 of pulls until all {what}",
                    "milliseconds",
                    tuple(values("beside_p99_ms", pulled[OURS.key])),
                    at_most(5),
                    column=OURS.label,
                ),
            ]
    return figures


def _watching(bench: Bench, running: Mapping[str, Registry], watchers: int) -> Iterator[tuple[str, Registry]]:
    """The registries that notify so many watchers, by key; ours has to. The first notification does not count."""
    for key, registry in running.items():
        registry.seed()
        try:
            _notified(bench, watchers, registry)
        except BenchError as why:
            if key == OURS.key:
                raise
            bench.progress(f"left out: {key} with {watchers:,} watchers: {why}")
        else:
            yield key, registry


def _notified(bench: Bench, watchers: int, registry: Registry, *, beside: bytes = b"") -> Load:
    """Notify watchers of a change, from which latencies count, and send a request beside it if there is one."""
    script = replace(registry.watch(), beside=beside)
    return run(bench, registry.server, script, "--watch", "--connections", str(watchers))


def _each(name: Field, by_peer: LoadsByPeer) -> dict[str, list[float]]:
    return {key: values(name, rounds) for key, rounds in by_peer.items()}


def _megabytes(registry: Registry) -> float:
    return registry.server.status_bytes() / 1e6


def measure_two_cores(others: Sequence[Peer], bench: Bench) -> list[Figure]:
    """Pulls on two cores, which the load shares."""
    if bench.cores.load is None:
        raise BenchError("two cores are needed, this process may use one")
    # All registries run at the same time, of which one is busy. Ours uses one core, and leaves the other to the load.
    with bench.on_both_cores() as bench_on_both, ExitStack() as stack:
        running = started(bench_on_both, stack, others)
        _warm_up(bench, running)
        pulled = _in_turn(bench, "pulls on two cores", running, lambda each: run(bench, each.server, each.pulls))
    return _work_figures("two_cores", "pulls on 200 connections", pulled, others)


# -- other subjects ---------------------------------------------------------------------------------------------------


def measure_startup(others: Sequence[Peer], bench: Bench) -> list[Figure]:
    """Time until the port responds, and memory then."""

    def start(peer: Peer) -> tuple[float, float]:
        with peer.start(bench) as registry:
            return registry.server.listening_after_seconds, _megabytes(registry)

    starts = bench.in_turn("starts", {peer.key: partial(start, peer) for peer in (OURS, *others)})
    seconds, megabytes = ({key: [each[which] for each in rounds] for key, rounds in starts.items()} for which in (0, 1))
    return [
        *against("startup.first_response", "from exec to the first response", "seconds", seconds, others),
        *against("startup.resident", "resident then", "megabytes", megabytes, others),
    ]


def measure_registration(others: Sequence[Peer], bench: Bench) -> list[Figure]:
    """A registration of 10,000 topics, as its broker waits for it and as the server pays for it."""
    name_servers = [peer for peer in others if peer.is_name_server]
    broker = a_broker()
    kinds = {
        "registration.unchanged": ("unchanged", [broker.json_frame()]),
        "registration.fields": ("every topic changed", changes(broker)),
    }
    with ExitStack() as stack:
        running = started(bench, stack, name_servers)
        wires = {key: stack.enter_context(Wire(registry.server)) for key, registry in running.items()}
        first = {key: [_round_trip(wire, broker.json_frame())] for key, wire in wires.items()}
        what = "the first of a fresh server: round trip"
        figures = against("registration.first", what, "milliseconds", first, name_servers)
        for name, (what, frames) in kinds.items():
            cases = {key: cost(registry.server, wires[key], frames) for key, registry in running.items()}
            bench.progress(f"registrations, {what}, until they are compiled")
            for case in cases.values():
                for _ in range(_REGISTRATION_WARM_UPS):
                    case()
            costs = bench.in_turn(f"registrations, {what}", cases)
            waited = {key: [each.round_trip for each in rounds] for key, rounds in costs.items()}
            computed = {key: [each.server for each in rounds] for key, rounds in costs.items()}
            figures += against(name, f"{what}: round trip", "milliseconds", waited, name_servers)
            figures += against(f"{name}.computing", f"{what}: processor time", "milliseconds", computed, name_servers)
    return figures


def _round_trip(broker: Wire, frame: bytes) -> float:
    began = time.perf_counter()
    broker.success(frame)
    return (time.perf_counter() - began) * 1000


def measure_memory(peers: Sequence[Peer], bench: Bench) -> list[Figure]:
    """Memory with 4 clusters of 8 brokers, which share 10,000 topics each."""
    others = [peer for peer in peers if peer.is_name_server]
    script = pulls(TOPICS * CLUSTERS, LONG_NAME)
    registered: dict[str, list[float]] = {}
    pulled: dict[str, list[float]] = {}
    for peer in (OURS, *others):
        bench.progress(f"memory of {peer.label}")
        with peer.start(bench) as registry, Wire(registry.server) as brokers:
            register(brokers, [clustered_broker(number, is_shared=True) for number in range(CLUSTERS * BROKERS)])
            registered[peer.key] = [_megabytes(registry)]
            run(bench, registry.server, script, *PIPELINED, seconds=_PULLING_SECONDS)
            pulled[peer.key] = [_megabytes(registry)]
    what = f"{TOPICS * CLUSTERS:,} topics"
    after = f"{what}: and pulled for {_PULLING_SECONDS} s"
    return [
        *against("memory.registered", f"{what}: resident when registered", "megabytes", registered, others),
        *against("memory.pulled", after, "megabytes", pulled, others),
    ]


def measure_scale(others: Sequence[Peer], bench: Bench) -> list[Figure]:
    """Three million queue entries: 300 brokers with the same 10,000 topics each."""
    name_servers = [peer for peer in others if peer.is_name_server]
    with temporary_directory("scale") as data_dir:
        first, restarted = scale.ours_at_scale(data_dir), scale.ours_at_scale(data_dir, *WAITING)
        results = {OURS.key: scale.measured(first, restarted, bench)}
    for peer in name_servers:
        try:
            results[peer.key] = scale.measured(peer, peer, bench)
        except BenchError as why:
            bench.progress(f"{peer.label} did not survive: {why}")
    return scale.figures_of(results, name_servers)


def measure_connections(others: Sequence[Peer], bench: Bench, clients: int = connections.CLIENTS) -> list[Figure]:
    """100,000 connections: clients that pull, or of which half watch, beside 200 brokers."""
    # A server takes minutes: only the newest of Apache's versions is measured.
    name_servers = [peer for peer in others if peer.is_name_server and peer.is_newest]
    results = {OURS.key: _ours_connected(bench, clients)}
    watched = _ours_connected(bench, clients, watching=clients // 2)
    for peer in name_servers:
        try:
            results[peer.key] = connections.measured(peer, peer, bench, clients)
        except BenchError as why:
            bench.progress(f"{peer.label} did not survive: {why}")
    return connections.figures_of(results, watched, name_servers)


def _ours_connected(bench: Bench, clients: int, *, watching: int = 0) -> dict[str, float]:
    with temporary_directory("connections") as data_dir:
        first = connections.ours_with(clients, data_dir)
        restarted = connections.ours_with(clients, data_dir, *WAITING)
        return connections.measured(first, restarted, bench, clients, watching=watching)


# in the order of the report
SUBJECTS: Final[Mapping[str, Callable[[Sequence[Peer], Bench], list[Figure]]]] = {
    "work": measure_work,
    "watches": measure_watches,
    "two_cores": measure_two_cores,
    "startup": measure_startup,
    "registration": measure_registration,
    "memory": measure_memory,
    "scale": measure_scale,
    "connections": measure_connections,
}
