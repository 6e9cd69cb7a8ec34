"""Cost of one registration of 10,000 topics to the server."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.figures import Figure, Target, spelt_medians
from benchmarks.registration import TOPIC_NAME, TOPICS
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, topics
from benchmarks.servers import WITHOUT_LOG, Server, daemon

# of each kind, in each round
REGISTRATIONS: Final = 40
# until the lines of the last one are written
LOG_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one request, on average over a round, in milliseconds."""

    # computing time of the server, all threads: receiving, reading, applying, answering
    server: float
    # until the answer was here
    round_trip: float


def measure(bench: Bench) -> list[Figure]:
    """Unchanged registrations in each form, and changed ones; and those with the heartbeat log."""
    with (
        daemon(bench, *WITHOUT_LOG) as server,
        daemon(bench) as with_log,
        Wire(server) as wire,
        Wire(with_log) as to_log,
    ):
        broker = Broker("DefaultCluster", "broker0", 0, "127.0.0.1:10911", topics(TOPIC_NAME, TOPICS))
        cases = {
            "unchanged": [broker.json_frame()],
            "fields": [broker.changed(read_queue_nums=4).json_frame(), broker.json_frame()],
            "version": [broker.changed().json_frame(), broker.json_frame()],
            "unchanged.compressed": [broker.compressed_frame()],
            "unchanged.native": [broker.native_frame()],
        }
        logged = {"fields.log": cases["fields"]}
        found = bench.in_turn(
            "cost of a registration",
            {name: case(server, wire, frames) for name, frames in cases.items()}
            | {name: case(with_log, to_log, frames, LOG_SECONDS) for name, frames in logged.items()},
        )
        sizes = {name: len(frames[0]) / 1000 for name, frames in (cases | logged).items()}
    return [
        _figure(name, f"{what} ({sizes[name]:,.0f} kB)", found[name], target)
        for name, what, target in (
            ("unchanged", "unchanged, JSON", Target("<=", 2)),
            ("unchanged.compressed", "unchanged, zlib", Target("<=", 2)),
            ("unchanged.native", "unchanged, native", Target("<=", 2)),
            ("version", "DataVersion changed, JSON", None),
            ("fields", "every topic changed, JSON", None),
            ("fields.log", "every topic changed, JSON, each a name in the heartbeat log", None),
        )
    ]


def case(server: Server, wire: Wire, frames: Sequence[bytes], log_seconds: float = 0.0) -> Callable[[], Cost]:
    """What these cost, sent in turn, REGISTRATIONS in all; and what threads do for them so many seconds later."""

    def run() -> Cost:
        # not counted: the last case left another registration behind
        for frame in frames:
            wire.ask(frame)
        time.sleep(log_seconds)
        cpu, wall = server.cpu_seconds(), time.perf_counter()
        for frame in itertools.islice(itertools.cycle(frames), REGISTRATIONS):
            wire.ask(frame)
        waited = time.perf_counter() - wall
        time.sleep(log_seconds)
        return Cost(
            server=(server.cpu_seconds() - cpu) * 1000 / REGISTRATIONS, round_trip=waited * 1000 / REGISTRATIONS
        )

    return run


def _figure(name: str, what: str, costs: Sequence[Cost], target: Target | None) -> Figure:
    round_trips = spelt_medians("milliseconds", [cost.round_trip for cost in costs])
    return Figure(
        f"registration_cost.{name}",
        f"server's computing time: {what}",
        "milliseconds",
        tuple(cost.server for cost in costs),
        target,
        behind=f"round trip {round_trips}",
    )
