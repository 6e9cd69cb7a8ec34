"""Three million queue entries: 300 brokers with the same 10,000 topics, registered while a client pulls."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.harness.figures import BenchError, Figure, Unit, percentile
from benchmarks.harness.probe import Probe
from benchmarks.harness.rounds import Bench, Repeating, until
from benchmarks.harness.servers import WITHOUT_LOG, Server
from benchmarks.harness.wire import Broker, Wire, request, topics
from benchmarks.peers import rocketmq
from benchmarks.peers.peers import Peer, against
from namesrv_remoting.codes import RequestCode, ResponseCode

BROKERS: Final = 300
TOPICS: Final = 10_000
_NAME: Final = "AbcdefghijklmnopqrstuvwxyzAbcdefgh%d"
# the heap that Apache's server has
_MEMORY: Final = ("--max-memory-bytes", str(4 << 30))
# brokers that register at the same time
_AT_ONCE: Final = 10
_DEATHS: Final = (1, 100)
_PULLS_A_SECOND: Final = 50
_PATIENCE_SECONDS: Final = 300
_EXPIRY_MS: Final = 600_000


def ours_at_scale(data_dir: Path, *flags: str) -> Peer:
    """Our NameServer, which as by default evicts the brokers of a closed connection."""
    all_flags = (*WITHOUT_LOG, *_MEMORY, "--data-dir", str(data_dir), *flags)
    return Peer("ours", "ours", lambda bench: rocketmq.ours(bench, *all_flags))


def _route(number: int) -> bytes:
    fields = {"topic": _NAME % number, "acceptStandardJsonOnly": "true"}
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)


@contextmanager
def _pulled(server: Server) -> Iterator[list[float]]:
    """The waits in milliseconds of a client that pulls one route until the block ends."""
    with (
        Probe(server, _route(0), _PATIENCE_SECONDS) as probe,
        Repeating(probe.send, at_most=_PULLS_A_SECOND),
    ):
        yield probe.waits_ms


def measured(peer: Peer, restarted: Peer, bench: Bench) -> dict[str, float]:
    """The figures of one server, and of its restart, by the end of their names."""
    tables = topics(_NAME, TOPICS)
    frames = [
        Broker(f"broker-{n}", f"10.1.{n >> 8}.{n & 255}:10911", tables, expiry_ms=_EXPIRY_MS).json_frame()
        for n in range(BROKERS)
    ]
    with ExitStack() as stack:
        server = stack.enter_context(peer.start(bench)).server
        wires = [stack.enter_context(Wire(server, _PATIENCE_SECONDS)) for _ in frames]
        figures: dict[str, float] = {}
        for name in ("registered", "again"):
            bench.progress(f"{peer.label}: {BROKERS} brokers register, {name}")
            with _pulled(server) as latencies:
                figures[f"{name}.seconds"] = _registered(wires, frames)
            figures[f"{name}.p99"] = percentile(latencies, 0.99)
            figures[f"{name}.longest"] = max(latencies)
        if (known := _brokers(wires[-1])) != BROKERS:
            raise BenchError(f"{peer.label}: a route has {known} brokers, not {BROKERS}")
        for count in _DEATHS:
            bench.progress(f"{peer.label}: {count} brokers die")
            with _pulled(server) as latencies:
                figures[f"death{count}.seconds"] = _gone(wires, count)
            figures[f"death{count}.longest"] = max(latencies)
        # All brokers are there again before the server is restarted.
        _registered([stack.enter_context(Wire(server, _PATIENCE_SECONDS)) for _ in frames], frames)
        figures["memory"] = server.status_bytes("VmHWM") / 1e6
        began = time.monotonic()
    bench.progress(f"{peer.label}: restart")
    with restarted.start(bench) as registry, ExitStack() as stack:
        _registered([stack.enter_context(Wire(registry.server, _PATIENCE_SECONDS)) for _ in frames], frames)
        until("the last route has all brokers", lambda: _is_complete(registry.server), _PATIENCE_SECONDS)
        figures["restart.seconds"] = time.monotonic() - began
    return figures


def _registered(wires: Sequence[Wire], frames: Sequence[bytes]) -> float:
    """Register all brokers, some at a time, and return how long that took."""
    began = time.perf_counter()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(Wire.success, wires, frames))
    return time.perf_counter() - began


def _gone(wires: Sequence[Wire], count: int) -> float:
    """Close the connections of some brokers, and return the time until the last topic has no dead one any more."""
    left = _brokers(wires[-1]) - count
    for wire in wires[BROKERS - left - count : BROKERS - left]:
        wire.close()
    return until("no route has a dead broker", lambda: _brokers(wires[-1]) == left, _PATIENCE_SECONDS, 0.0)


def _is_complete(server: Server) -> bool:
    # A server that waits for brokers closes the connection of a client that requests a route.
    try:
        with Wire(server, _PATIENCE_SECONDS) as wire:
            return _brokers(wire) == BROKERS
    except BenchError:
        return False


def _brokers(wire: Wire) -> int:
    response = wire.request(_route(TOPICS - 1))
    if response.code != ResponseCode.SUCCESS:
        raise BenchError(f"response code {response.code}: {response.remark}")
    return len(msgspec.json.decode(response.body)["brokerDatas"])


# end of a figure's name -> description and unit; in the order of the table
_FIGURES: Final[Mapping[str, tuple[str, Unit]]] = {
    "registered.seconds": ("all brokers registered", "seconds"),
    "registered.p99": ("p99 of pulls meanwhile", "milliseconds"),
    "registered.longest": ("longest stall meanwhile", "milliseconds"),
    "again.seconds": ("all registered again, unchanged", "seconds"),
    "again.p99": ("p99 of pulls then", "milliseconds"),
    "again.longest": ("longest stall then", "milliseconds"),
    "death1.seconds": ("a dead broker is gone", "seconds"),
    "death100.seconds": ("a hundred dead brokers are gone", "seconds"),
    "death100.longest": ("longest stall then (a hundred deaths)", "milliseconds"),
    "restart.seconds": ("from SIGTERM until all brokers are back", "seconds"),
    "memory": ("largest resident memory", "megabytes"),
}


def figures_of(results: Mapping[str, Mapping[str, float]], others: Sequence[Peer]) -> list[Figure]:
    """The figures of all servers, as ratios; `results` has those of each, by its key."""
    figures: list[Figure] = []
    for key, (what, unit) in _FIGURES.items():
        samples = {peer: [found[key]] for peer, found in results.items()}
        figures += against(f"scale.{key}", what, unit, samples, others)
    return figures
