"""The rows of the scoreboard, by their ids."""

from collections.abc import Mapping
from typing import Final

from tests.scoreboard import detection, simulated
from tests.scoreboard.programs import bench, passing
from tests.scoreboard.row import Row

# heading -> ids
SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Load and connections": ("L1", "L2", "L3", "L4"),
    "Hostile input": tuple(f"H{number}" for number in range(1, 7)),
    "Detection and staleness": tuple(f"D{number}" for number in range(1, 7)),
    "Faults": tuple(f"F{number}" for number in range(1, 19)),
    "Correctness": tuple(f"M{number}" for number in range(1, 8)),
    "Soak": ("S1", "S2"),
}

ROWS: Final[Mapping[str, Row]] = {
    "L1": Row(
        "Route questions a second of one process",
        "0.6 of what a server in C without any look-up answers on the same core",
        "`make bench`, {size} rounds: 200 connections, 1,000 topics, answers of 1.9 KB",
        bench("pulls", {"pulls.json.rate": None, "pulls.json.p99": None, "pulls.native.rate": None}),
        5,
        is_timed=True,
    ),
    "D1": Row(
        "A broker's connection ends: it is in no route",
        "p99 within 100 ms",
        "{size} deaths, one after the other, one client that asks all the time",
        detection.closed_connections,
        1_000,
        short=50,
        is_timed=True,
    ),
    "D2": Row(
        "The same: a client that watches is told",
        "p99 within 250 ms",
        "{size} deaths, one after the other",
        detection.told_watchers,
        1_000,
        short=50,
        is_timed=True,
    ),
    "D3": Row(
        "A broker falls silent over an open connection: it is in no route",
        "always within expiry + scan + 0.2 s",
        "{size} brokers, an expiry of 10 s, a scan every second",
        detection.silent_deaths,
        200,
        is_timed=True,
    ),
    "D4": Row(
        "A client's way to its server falls silent: it notices, and has another server",
        "always within 5 s",
        "{size} clients that watch, whose common proxy forwards nothing any more",
        detection.half_open_connections,
        20,
        is_timed=True,
    ),
    "D6": Row(
        "Live brokers evicted while servers stand still now and then",
        "0",
        "simulation of 24 h: {size} runs of an hour, three servers, five brokers, a server stopped for 30 s every "
        "10 min; times in it are a tenth",
        simulated.stopped_servers,
        24,
        short=1,
    ),
    "F4": Row(
        "A server stands still for 5 min and goes on",
        "no live broker evicted, tables right again",
        "simulation, {size} stops; times in it are a tenth",
        simulated.long_stops,
        100,
        short=5,
    ),
    "F5": Row(
        "A server's wall clock jumps by an hour, a day, to 1970 and back, and 100 times in 10 s",
        "no live broker evicted, no dead one kept",
        "simulation, {size} runs of all these jumps",
        simulated.wrong_clocks,
        50,
        short=2,
    ),
    "F14": Row(
        "Stale removals that meet a newer registration",
        "0",
        "simulation, {size} schedules of brokers that leave, die, lose their connections and come back (of a million)",
        simulated.removals,
        1_000,
        short=20,
    ),
    "M2": Row(
        "The whole system under random faults",
        "every invariant holds",
        "`make simulate`: the first {size} seeds (of 100,000)",
        simulated.all_seeds,
        500,
        short=20,
    ),
    "M4": Row(
        "Watches lose, double and reorder nothing, and never go back",
        "no violation",
        "the recorded histories of the first {size} seeds of `make simulate`",
        simulated.watches,
        500,
        short=20,
    ),
    "M5": Row(
        "Wire compatibility with RocketMQ",
        "every recorded frame is answered as by the Java server, but for listed deviations",
        "the golden recordings of all request codes; real brokers, clients and tools run in `make interop`",
        passing(["tests/golden"]),
        1,
        short=1,
    ),
}

# why there is no row
UNMEASURED: Final[Mapping[str, str]] = {}
