"""Cost of the heartbeat log for pulls and heartbeats."""

from collections.abc import Callable
from functools import partial
from typing import Final

from benchmarks import heartbeats, loads
from benchmarks.figures import Figure, Target, Unit, ratios, spelt_medians
from benchmarks.loads import Load
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, pulled_brokers, register
from benchmarks.servers import WITHOUT_LOG, daemon

# what a client does: it asks for its topics every 30 s
_AGAIN: Final = ("--topics", "20")
_BEATING: Final = [
    Broker("DefaultCluster", f"broker-{number}", 0, f"127.0.0.1:{number}", counter=1)
    for number in range(heartbeats.BROKERS)
]


def measure(bench: Bench) -> list[Figure]:
    """The same load on a server with the log and on one without, in turn."""
    flags = ("--no-evict-on-disconnect",)
    with (
        daemon(bench, *flags) as with_log,
        daemon(bench, *WITHOUT_LOG, *flags) as without,
        Wire(with_log) as to_one,
        Wire(without) as to_other,
    ):
        for wire in (to_one, to_other):
            register(wire, pulled_brokers())
            register(wire, _BEATING)
        pulls = _in_turn(
            bench,
            "pulls",
            partial(loads.run, bench, with_log, *_AGAIN),
            partial(loads.run, bench, without, *_AGAIN),
        )
        first = _in_turn(bench, "first pulls", partial(loads.run, bench, with_log), partial(loads.run, bench, without))
        # after the pulls: the lines of a hundred thousand heartbeats take a while to be written and compressed
        beat = partial(loads.run, seconds=1)
        beats = _in_turn(
            bench,
            "heartbeats",
            lambda: beat(bench, with_log, *heartbeats.BEAT),
            lambda: beat(bench, without, *heartbeats.BEAT),
        )
    return [
        _rate("pulls", "pulls of 20 topics each, again and again", *pulls, Target(">=", 0.95)),
        _p99("pulls", "pulls of 20 topics each, again and again", *pulls),
        _rate("first_pulls", "pulls of 1,000 topics each: nearly every answer is a first one, a line", *first, None),
        _p99("first_pulls", "the same", *first),
        _rate("904", "904 JSON, each a line", *beats, None),
    ]


def _in_turn(
    bench: Bench, name: str, with_log: Callable[[], Load], without: Callable[[], Load]
) -> tuple[list[Load], list[Load]]:
    found = bench.in_turn(f"{name} and the heartbeat log", {"with": with_log, "without": without})
    return found["with"], found["without"]


def _rate(name: str, what: str, with_log: list[Load], without: list[Load], target: Target | None) -> Figure:
    found = (loads.rates(with_log), loads.rates(without))
    return _compared(f"{name}.rate", f"{what}: rate", "per_second", found, target)


def _p99(name: str, what: str, with_log: list[Load], without: list[Load]) -> Figure:
    return _compared(f"{name}.p99", f"{what}: p99", "milliseconds", (loads.p99s(with_log), loads.p99s(without)))


def _compared(
    name: str, what: str, unit: Unit, found: tuple[list[float], list[float]], target: Target | None = None
) -> Figure:
    what = f"{what} with the log / without"
    return Figure(f"heartbeat_log.{name}", what, "times", ratios(*found), target, behind=spelt_medians(unit, *found))
