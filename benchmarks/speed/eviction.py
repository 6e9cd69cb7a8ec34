"""Evictions, seen from outside: the cost of a broker's death in small and large tables, and stalls of the loop."""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Self

import msgspec

from benchmarks.harness.figures import BenchError, Figure, at_most, compared
from benchmarks.harness.probe import Probe
from benchmarks.harness.rounds import Bench, until
from benchmarks.harness.servers import WITHOUT_LOG, Server, daemon, expiring
from benchmarks.harness.wire import Broker, Wire, many_brokers, native_request, route_request
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.command import RemotingCommand

# topics of each broker, which no other broker has
_TOPICS: Final = 1_000
# topics of each broker that are pulled
_PULLED: Final = 20
_SMALL: Final = 10
_LARGE: Final = 1_000
# the value of a round is the median of so many deaths
_DEATHS_A_ROUND: Final = 30
_AT_ONCE: Final = 100
_PATIENCE_SECONDS: Final = 120.0
_EXPIRY_SECONDS: Final = 3.0
# Scan intervals to try: all brokers have to register between two scans, and to expire before the second one.
_SCAN_SECONDS: Final = (20.0, 40.0, 80.0)


def measure_deaths(bench: Bench) -> list[Figure]:
    """Cost of a broker's death, in small and large tables."""
    bench.progress(f"deaths in tables of {_SMALL * _TOPICS:,} and {_LARGE * _TOPICS:,} topics")
    with (
        daemon(bench, *WITHOUT_LOG) as small,
        # Brokers of one address may not have all of the topics that the server allows.
        daemon(bench, *WITHOUT_LOG, "--max-topics", str(2 * _LARGE * _TOPICS)) as large,
        _Table(small, _SMALL) as few,
        _Table(large, _LARGE) as many,
    ):
        results = bench.in_turn(
            "deaths",
            {
                "small, same": lambda: _round(few, lambda: 0),
                "large, same": lambda: _round(many, lambda: 0),
                # The rows of a broker that has just registered are in the processor's caches, however large the tables
                # are. Those of a random broker are not, so that waiting for memory counts.
                "small, any": lambda: _round(few, lambda: random.randrange(_SMALL)),
                "large, any": lambda: _round(many, lambda: random.randrange(_LARGE)),
            },
        )
    sizes = f"{_LARGE * _TOPICS:,} / {_SMALL * _TOPICS:,}"
    what = f"death of a broker with {_TOPICS:,} topics of {sizes}"
    return [
        *(
            compared(
                f"eviction.death.{name}", f"{what}: {which}", "milliseconds",
                (results[f"large, {name}"], results[f"small, {name}"]), at_most(1.5),
            )
            for name, which in (("same", "the same broker again and again"), ("any", "any broker, memory cold"))
        ),
    ]  # fmt: skip


class _Table:
    """A server with brokers, each on a connection of its own."""

    def __init__(self, server: Server, brokers: int) -> None:
        self._server = server
        self._brokers = many_brokers(brokers, "topic-%d", _TOPICS)
        # broker -> its connection
        self._wires = [self._registered(broker) for broker in self._brokers]
        # Opened last, because the server closes a connection that is silent for two minutes.
        self._admin = Wire(server)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for wire in (self._admin, *self._wires):
            wire.close()

    def _registered(self, broker: Broker) -> Wire:
        wire = Wire(self._server)
        wire.success(broker.json_frame())
        # The server caches encoded responses of pulled topics, as a server in use does.
        pulled = broker.topics[:: _TOPICS // _PULLED]
        wire.send(b"".join(route_request(topic.topic_name) for topic in pulled))
        wire.skip(len(pulled))
        return wire

    def death(self, number: int) -> float:
        """Close a broker's connection, and reconnect it; milliseconds of processor time until it is evicted."""
        brokers = self._admin.info()["brokers"]
        cpu = self._server.cpu_seconds()
        self._wires[number].close()
        until("the broker is evicted", lambda: self._admin.info()["brokers"] < brokers, every=0.0)
        took = self._server.cpu_seconds() - cpu
        self._wires[number] = self._registered(self._brokers[number])
        return took * 1000


def _round(table: _Table, which: Callable[[], int]) -> float:
    return statistics.median(table.death(which()) for _ in range(_DEATHS_A_ROUND))


# -- scans ------------------------------------------------------------------------------------------------------------


def mass_expiry(count: int) -> list[Figure]:
    """For the scoreboard: the stall during a scan that evicts `count` brokers."""
    busy_ms, wall_ms, probes = _while_silent(Bench(), count)
    details = f"processor time; {wall_ms:.0f} ms on the clock, {probes:,} responses"
    return [Figure("stall", "longest work between two responses", "milliseconds", (busy_ms,), at_most(20), details)]


def _while_silent(bench: Bench, count: int) -> tuple[float, float, int]:
    for scan_seconds in _SCAN_SECONDS:
        with _silent(bench, count, scan_seconds) as (server, in_time):
            if not in_time:
                continue
            with Probe(server, native_request(RequestCode.SERVER_INFO)) as probe:
                until("all brokers are evicted", lambda: _brokers(probe.send()) == 0, _PATIENCE_SECONDS, 0.0)
            return probe.longest_busy_ms, max(probe.waits_ms), len(probe.waits_ms)
    raise BenchError(f"{count:,} brokers cannot register within {_SCAN_SECONDS[-1] - _EXPIRY_SECONDS:g} s")


def _brokers(info: RemotingCommand) -> int:
    return int(msgspec.msgpack.decode(info.body)["brokers"])


@contextmanager
def _silent(bench: Bench, count: int, scan_seconds: float) -> Iterator[tuple[Server, bool]]:
    """A server with silent brokers, and True if all brokers registered before the next scan."""
    began = time.monotonic()
    with daemon(bench, *expiring(_EXPIRY_SECONDS, scan_seconds)) as server, Wire(server) as brokers:
        register_at_once(brokers, many_brokers(count, "topic-%d", 2))
        yield server, time.monotonic() - began < scan_seconds - _EXPIRY_SECONDS


def register_at_once(wire: Wire, brokers: Sequence[Broker]) -> None:
    """Register brokers, a hundred with one write. Raises BenchError."""
    for first in range(0, len(brokers), _AT_ONCE):
        some = brokers[first : first + _AT_ONCE]
        wire.send(b"".join(broker.native_frame() for broker in some))
        for response in wire.responses(len(some)):
            if response.code:
                raise BenchError(f"response code {response.code}: {response.remark}")
