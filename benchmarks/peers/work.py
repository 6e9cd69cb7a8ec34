"""A NameServer's work on one core: pulls, heartbeats, a change told to 1,000 watchers, memory."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from benchmarks import loads
from benchmarks.connections import raise_file_limit
from benchmarks.figures import BenchError, Figure
from benchmarks.loads import Load
from benchmarks.peers.contestants import OURS, OURS_WITH_LOG, Contestant, Peers, against
from benchmarks.peers.rocketmq import Asked
from benchmarks.rounds import Bench

# A JVM compiles what it does often while it does it. Each is asked for so long at a time, until that brings less than a
# tenth more.
_WARM_UP_SECONDS: Final = 3
_MOST_WARM_UPS: Final = 8
_STILL_RISING: Final = 1.1

Found = Mapping[str, Sequence[Load]]


def measure(bench: Bench, peers: Peers) -> list[Figure]:
    """All of them run, one of them is busy."""
    raise_file_limit()
    others = [OURS_WITH_LOG, *peers.had(bench)]
    with ExitStack() as stack:
        running = started(bench, stack, [OURS, *others])
        fresh = {key: [asked.server.resident_bytes() / 1e6] for key, asked in running.items()}
        for asked in running.values():
            asked.seed()
            warm_up(asked)
        pulls = in_turn(bench, "pulls", running, lambda asked: asked.pull())
        beats = in_turn(bench, "heartbeats", running, lambda asked: asked.beat(1))
        loaded = {key: [asked.server.resident_bytes() / 1e6] for key, asked in running.items()}
        watching = {key: asked for key, asked in running.items() if asked.tell() is not None}
        told = in_turn(bench, "watches", watching, _told)
    return [
        *against("pulls.rate", "pulls", "per_second", _each(loads.rates, pulls), others),
        *against("pulls.p99", "pulls: p99", "milliseconds", _each(loads.p99s, pulls), others),
        *against("pulls.computing", "pulls: computing time", "microseconds", _each(loads.computing, pulls), others),
        *against("beats.rate", "heartbeats", "per_second", _each(loads.rates, beats), others),
        *against(
            "beats.computing", "heartbeats: computing time", "microseconds", _each(loads.computing, beats), others
        ),
        *against("watch.p50", "change: half of the watchers know", "milliseconds", _each(_p50s, told), others),
        *against(
            "watch.longest", "change: all of the watchers know", "milliseconds", _each(loads.longests, told), others
        ),
        *against("memory.fresh", "resident when it answers first", "megabytes", fresh, others),
        *against("memory.loaded", "resident after all of that", "megabytes", loaded, others),
    ]


def started(bench: Bench, stack: ExitStack, contestants: Sequence[Contestant]) -> dict[str, Asked]:
    """All of them, by key, until the stack is left."""
    running: dict[str, Asked] = {}
    for contestant in contestants:
        bench.progress(f"starting {contestant.label}")
        running[contestant.key] = stack.enter_context(contestant.start(bench))
    return running


def warm_up(asked: Asked) -> None:
    """Ask until it is as fast as it gets."""
    rate, before = asked.pull(_WARM_UP_SECONDS).answers_per_second, 0.0
    for _ in range(_MOST_WARM_UPS - 1):
        if rate < before * _STILL_RISING:
            break
        before = rate
        rate = asked.pull(_WARM_UP_SECONDS).answers_per_second


def in_turn(bench: Bench, what: str, running: Mapping[str, Asked], case: Callable[[Asked], Load]) -> Found:
    """What each finds, round by round. Brokers that were silent for two minutes are registered anew before."""
    for asked in running.values():
        asked.seed()
    return bench.in_turn(what, {key: partial(case, asked) for key, asked in running.items()})


def _told(asked: Asked) -> Load:
    load = asked.tell()
    if load is None:
        raise BenchError("nobody watches")
    return load


def _p50s(found: Sequence[Load]) -> list[float]:
    return [load.p50_us / 1000 for load in found]


def _each(read: Callable[[Sequence[Load]], list[float]], found: Found) -> dict[str, list[float]]:
    return {key: read(rounds) for key, rounds in found.items()}
