"""A NameServer's work on one core: pulls, heartbeats, a change told to 1,000 watchers, memory."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, TypeVar

from benchmarks import loads
from benchmarks.connections import raise_file_limit
from benchmarks.figures import BenchError, Figure
from benchmarks.loads import Load
from benchmarks.peers.contestants import OURS, OURS_WITH_LOG, Contestant, Peers, against, fewer_rounds, started
from benchmarks.peers.rocketmq import Asked, NameServer
from benchmarks.rounds import Bench

# Each is asked for so long at a time, a JVM until three times in a row bring less than a twentieth more than the best
# before: on one core its compilers have to wait for what they are to make faster, and it rises in steps.
_WARM_UP_SECONDS: Final = 2
_MOST_WARM_UPS: Final = 30
_STILL_RISING: Final = 1.05
_NOT_RISING_IN_A_ROW: Final = 3

T = TypeVar("T", bound=Asked)
Found = Mapping[str, Sequence[Load]]


def measure(bench: Bench, peers: Peers) -> list[Figure]:
    """All of them run, one of them is busy."""
    raise_file_limit()
    others = [OURS_WITH_LOG, *peers.had(bench)]
    with ExitStack() as stack:
        running = started(bench, stack, [OURS, *others])
        fresh = {key: [asked.server.resident_bytes() / 1e6] for key, asked in running.items()}
        warm_up(bench, running, [OURS, *others])
        pulls = in_turn(bench, "pulls", running, lambda asked: asked.pull())
        name_servers = {key: asked for key, asked in running.items() if isinstance(asked, NameServer)}
        pipelined = in_turn(fewer_rounds(bench), "pipelined pulls", name_servers, NameServer.pull_pipelined)
        beats = in_turn(bench, "heartbeats", running, lambda asked: asked.beat(1))
        loaded = {key: [asked.server.resident_bytes() / 1e6] for key, asked in running.items()}
        # asked once before it counts
        watching = {key: asked for key, asked in running.items() if asked.tell() is not None}
        told = in_turn(bench, "watches", watching, _told)
    return [
        *figures("pulls", "pulls on 200 connections", pulls, others),
        *figures("pipelined", "50 connections x 8 in flight", pipelined, others),
        *figures("beats", "heartbeats on 200 connections", beats, others),
        *against("watch.p50", "half of the watchers know", "milliseconds", _each(_p50s, told), others),
        *against("watch.longest", "all watchers know", "milliseconds", _each(loads.longests, told), others),
        *against("memory.fresh", "resident when it answers first", "megabytes", fresh, others),
        *against("memory.loaded", "resident after all of that", "megabytes", loaded, others),
    ]


def figures(name: str, what: str, found: Found, others: Sequence[Contestant]) -> list[Figure]:
    """How often, how late at most, and at which cost."""
    return [
        *against(f"{name}.rate", f"{what}: rate", "per_second", _each(loads.rates, found), others),
        *against(f"{name}.p99", f"{what}: p99", "milliseconds", _each(loads.p99s, found), others),
        *against(f"{name}.computing", f"{what}: CPU of one", "microseconds", _each(loads.computing, found), others),
    ]


def warm_up(bench: Bench, running: Mapping[str, Asked], contestants: Sequence[Contestant]) -> None:
    """Seed each, and ask it until it is as fast as it gets."""
    # Apache's last: it closes a connection of brokers that say nothing for two minutes
    for contestant in reversed([each for each in contestants if each.key in running]):
        bench.progress(f"seeding {contestant.label}")
        asked = running[contestant.key]
        asked.seed()
        best, not_rising = asked.pull(_WARM_UP_SECONDS).answers_per_second, 0
        for _ in range(_MOST_WARM_UPS - 1 if contestant.warms_up else 0):
            rate = asked.pull(_WARM_UP_SECONDS).answers_per_second
            not_rising = 0 if rate > best * _STILL_RISING else not_rising + 1
            best = max(best, rate)
            if not_rising == _NOT_RISING_IN_A_ROW:
                break


def in_turn(bench: Bench, what: str, running: Mapping[str, T], case: Callable[[T], Load]) -> Found:
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
