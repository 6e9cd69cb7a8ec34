"""Rows about a broker that flaps, a server without free descriptors, and one whose disk is stuck."""

import resource
import socket
import time
from contextlib import ExitStack
from functools import partial
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, at_least, at_most, none_of
from benchmarks.harness.loads import Load, compared_loads, run
from benchmarks.harness.rounds import Bench, Cores, Effort, until
from benchmarks.harness.servers import Server, daemon, temporary_directory
from benchmarks.harness.wire import Wire, many_brokers, pulled_brokers, register
from namesrv_remoting.codes import RequestCode
from tests.support.disk_faults import FaultyDisk

_TOPICS: Final = 2
_MOST_EVENTS: Final = 1_000
# free descriptors of the server
_SPARE: Final = 20


def flapping(times: int) -> list[Figure]:
    """A broker registers and disconnects many times, and is registered in the end."""
    frame = many_brokers(1, "topic-%d", _TOPICS)[0].native_frame()
    with daemon(Bench()) as server, Wire(server) as wire:
        _flap(server, frame, times // 10)
        before = server.status_bytes()
        _flap(server, frame, times)
        with Wire(server) as last:
            last.success(frame)
            until("the connections are closed", lambda: wire.info()["connections"] == 2)
            info = wire.info()
            grown = (server.status_bytes() - before) / 1e6
            descriptors = server.descriptors()
            events = len(wire.native(RequestCode.RECENT_EVENTS, since=0, limit=_MOST_EVENTS)["events"])
    return [
        none_of("wrong", "wrong brokers in the end", abs(info["brokers"] - 1)),
        none_of("topics", "wrong topics in the end", abs(info["topics"] - _TOPICS)),
        Figure("events", "events kept", "count", (events,), at_most(_MOST_EVENTS)),
        Figure("grown", "memory grown", "megabytes", (grown,), at_most(4), f"{descriptors} descriptors"),
    ]


def _flap(server: Server, frame: bytes, times: int) -> None:
    for _ in range(times):
        with Wire(server) as wire:
            wire.success(frame)


def no_descriptors(seconds: int) -> list[Figure]:
    """A server has no free descriptor for some seconds."""
    with daemon(Bench(), "--max-connections", "10000") as server, Wire(server) as wire, ExitStack() as stack:
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (server.descriptors() + _SPARE, hard))
        crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(3 * _SPARE)]
        if _is_served(server):
            raise BenchError("the server has free descriptors")
        began, cpu, responses = time.monotonic(), server.cpu_seconds(), 0
        while time.monotonic() - began < seconds:
            wire.info()
            responses += 1
            time.sleep(0.02)
        busy = 100 * (server.cpu_seconds() - cpu) / (time.monotonic() - began)
        for peer in crowd:
            peer.close()
        resumed = until("a newcomer is served", lambda: _is_served(server))
    what = "responses on an open connection"
    return [
        Figure("responses", what, "count", (responses,), at_least(1)),
        Figure("busy", "of a core", "percent", (busy,), at_most(20)),
        Figure("resumed", "a newcomer is served after", "seconds", (resumed,), at_most(5)),
    ]


def _is_served(server: Server) -> bool:
    """True if a new client gets a response; a server without free descriptors closes new connections at once."""
    try:
        with Wire(server) as newcomer:
            newcomer.info()
    except (BenchError, OSError):
        return False
    return True


def stuck_log(rounds: int) -> list[Figure]:
    """p99 of pulls while writes of the heartbeat log are stuck, compared with normal writes."""
    bench = Bench(Effort(rounds, 2), Cores.ours())
    with temporary_directory("scoreboard") as root:
        data = root / "data"
        disk = FaultyDisk(data, root)
        with daemon(bench, "--data-dir", str(data), environ=disk.environ) as server, Wire(server) as wire:
            register(wire, pulled_brokers())

            def pulls(mode: str) -> Load:
                disk.turn(mode)
                return run(bench, server)

            results = bench.in_turn("pulls", {mode: partial(pulls, mode) for mode in ("slow", "ok")})
            disk.turn("ok")
    slow_and_ok = results["slow"], results["ok"]
    return [compared_loads("p99", "p99 with stuck writes / without", "p99_ms", slow_and_ok, at_most(1.2))]
