"""Heartbeats per second."""

from functools import partial
from typing import Final

from benchmarks import loads
from benchmarks.figures import Figure, Target, ratios, spelt_medians
from benchmarks.loads import Load
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, register
from benchmarks.servers import WITHOUT_LOG, Server, daemon, limit
from namesrv_remoting.bodies.dialects import JSON
from namesrv_remoting.bodies.topic import DataVersion

BROKERS: Final = 1_000
# load's own names, so that it speaks for these
_FROM_ALL: Final = ("--brokers", str(BROKERS))
BEAT: Final = ("--mode", "heartbeat", *_FROM_ALL)
# the version that is registered: the answer is "not changed", as nearly always
VERSION: Final = ("--mode", "version", "--data-version", "1,0", *_FROM_ALL)
NATIVE_BEAT: Final = (*BEAT, "--header", "native")


def measure(bench: Bench) -> list[Figure]:
    """904 and 322 of many brokers, against the limit server with answers of the same size."""
    # without it, the end of each round would evict every broker whose last heartbeat came over one of its connections
    with daemon(bench, *WITHOUT_LOG, "--no-evict-on-disconnect") as server, Wire(server) as wire:
        register(wire, _brokers())
        with limit(bench, 0) as empty, limit(bench, len(JSON.encode(DataVersion(1)))) as versions:
            found = bench.in_turn("heartbeats", _cases(bench, server, empty, versions))
    return [
        *_figures("904", "904 JSON", found["904"], found["904 limit"]),
        *_figures("322", "322 JSON", found["322"], found["322 limit"]),
        *_figures("904.native", "904 native", found["904 native"], found["904 native limit"]),
    ]


def _brokers() -> list[Broker]:
    return [
        Broker("DefaultCluster", f"broker-{number}", 0, f"127.0.0.1:{number}", counter=1) for number in range(BROKERS)
    ]


def _cases(bench: Bench, server: Server, empty: Server, versions: Server) -> "dict[str, partial[Load]]":
    return {
        "904": partial(loads.run, bench, server, *BEAT, seconds=1),
        "904 limit": partial(loads.run, bench, empty, *BEAT, seconds=1),
        "322": partial(loads.run, bench, server, *VERSION, seconds=1),
        "322 limit": partial(loads.run, bench, versions, *VERSION, seconds=1),
        "904 native": partial(loads.run, bench, server, *NATIVE_BEAT, seconds=1),
        "904 native limit": partial(loads.run, bench, empty, *NATIVE_BEAT, seconds=1),
    }


def _figures(name: str, what: str, subject: list[Load], reference: list[Load]) -> list[Figure]:
    mine, theirs = loads.rates(subject), loads.rates(reference)
    return [
        Figure(
            f"heartbeats.{name}.rate",
            f"{what} of {BROKERS:,} brokers",
            "per_second",
            tuple(mine),
            Target(">=", 100_000),
        ),
        Figure(
            f"heartbeats.{name}.ratio",
            f"{what}: rate / limit server's",
            "times",
            ratios(mine, theirs),
            behind=spelt_medians("per_second", mine, theirs),
        ),
        Figure(
            f"heartbeats.{name}.computing",
            f"{what}: computing time of an answer / limit server's",
            "times",
            ratios(loads.computing(subject), loads.computing(reference)),
            behind=spelt_medians("microseconds", loads.computing(subject), loads.computing(reference)),
        ),
    ]
