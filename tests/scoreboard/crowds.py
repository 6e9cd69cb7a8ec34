"""Many brokers that die at once, and one that dies again and again."""

import resource
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from benchmarks.figures import BenchError, Figure, Target
from benchmarks.repeating import Repeating
from benchmarks.rounds import QUICK, Bench, Cores
from benchmarks.seeding import Broker, Wire, native_question, topics
from benchmarks.servers import Server, daemon
from namesrv_remoting.bodies.base import parts
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.headers import GetRouteInfoRequestHeader
from namesrv_remoting.serializers import encode_command
from tests.scoreboard.row import none_of
from tests.support.peer import Peer

_TOPICS: Final = 2
_AT_ONCE: Final = 100
_PATIENCE_SECONDS: Final = 120.0
_MOST_EVENTS: Final = 1_000
# descriptors that a server has left
_SPARE: Final = 20
# All are registered within one pause between two scans, and expire before the next: the first that is long enough.
_SCAN_SECONDS: Final = (20.0, 40.0, 80.0)
_EXPIRY_SECONDS: Final = 3.0
_BENCH: Final = Bench(QUICK, Cores(None, None), Path(), Path())


def _asked(wire: Wire, code: RequestCode, **members: object) -> Any:
    return msgspec.msgpack.decode(wire.ask_well(native_question(code, members)).body)


class _TooSlowError(BenchError):
    """The brokers could not register between two scans."""


def mass_expiry(count: int) -> list[Figure]:
    """So many brokers are found silent by one scan and evicted."""
    for scan_seconds in _SCAN_SECONDS:
        with suppress(_TooSlowError):
            return _mass_expiry(count, scan_seconds)
    raise BenchError(f"{count:,} brokers cannot register within {_SCAN_SECONDS[-1] - _EXPIRY_SECONDS:g} s")


def _mass_expiry(count: int, scan_seconds: float) -> list[Figure]:
    with _silent(count, scan_seconds) as (server, wire), _Probe(server) as probe, Repeating(probe.ask):
        _until(lambda: _asked(wire, RequestCode.SERVER_INFO)["brokers"] == 0, "all brokers are evicted")
    return [
        Figure(
            "stall",
            "longest work between two answers",
            "milliseconds",
            (probe.longest_cpu_ms,),
            Target("<=", 20),
            f"computing time; {probe.longest_ms:.0f} ms on the clock, {probe.answers:,} answers meanwhile",
        ),
    ]


@contextmanager
def _silent(count: int, scan_seconds: float) -> Iterator[tuple[Server, Wire]]:
    """A server on which so many brokers have registered that will send nothing more, and an operator's wire."""
    began = time.monotonic()
    times = ("--broker-expiry-seconds", str(_EXPIRY_SECONDS), "--scan-interval-seconds", str(scan_seconds))
    with daemon(_BENCH, *times) as server, Wire(server) as wire, Peer(("127.0.0.1", server.port)) as brokers:
        for some in parts(range(count), _AT_ONCE):
            _register(brokers, some)
        if time.monotonic() - began > scan_seconds - _EXPIRY_SECONDS:
            raise _TooSlowError
        yield server, wire


def _register(peer: Peer, numbers: Sequence[int]) -> None:
    """All in one go, as from many brokers."""
    peer.send_bytes(b"".join(_broker(number).native_frame() for number in numbers))
    for _ in numbers:
        answer = peer.receive()
        if answer.code:
            raise BenchError(f"answered with code {answer.code}: {answer.remark}")


def _broker(number: int) -> Broker:
    addr = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:10911"
    return Broker("DefaultCluster", f"broker-{number}", 0, addr, topics(f"topic-{number}-%d", _TOPICS))


def _until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"not {what} after {_PATIENCE_SECONDS:g} s")
        time.sleep(0.05)


class _Probe:
    """A connection that always waits for one answer."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._wire = Wire(server)
        ext_fields = GetRouteInfoRequestHeader(topic="nothing").to_ext()
        self._frame = encode_command(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=ext_fields))
        self.answers = 0
        self.longest_ms = 0.0
        # what the server's loop computed between a question and its answer at most: nobody else makes that longer
        self.longest_cpu_ms = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.__exit__()

    def ask(self) -> None:
        """Ask once, and note how long that took."""
        began, cpu = time.monotonic(), self._loop_seconds()
        self._wire.ask(self._frame)
        took, computed = time.monotonic() - began, self._loop_seconds() - cpu
        self.longest_ms = max(self.longest_ms, 1000 * took)
        self.longest_cpu_ms = max(self.longest_cpu_ms, 1000 * min(took, computed))
        self.answers += 1

    def _loop_seconds(self) -> float:
        """What the thread of the server's loop has computed until now."""
        schedstat = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/schedstat")
        return int(schedstat.read_text(encoding="ascii").split()[0]) / 1e9


def flapping(times: int) -> list[Figure]:
    """A broker registers and dies, again and again, and is there in the end."""
    with daemon(_BENCH, "--wait-for-service-seconds", "0") as server, Wire(server) as wire:
        _flap(server, times // 10)
        before = server.resident_bytes()
        _flap(server, times)
        with Wire(server) as last:
            last.ask_well(_broker(0).native_frame())
            _until(lambda: _asked(wire, RequestCode.SERVER_INFO)["connections"] == 2, "the connections are closed")
            info = _asked(wire, RequestCode.SERVER_INFO)
            grown = (server.resident_bytes() - before) / 1e6
            descriptors = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
            events = len(_asked(wire, RequestCode.RECENT_EVENTS, since=0, limit=_MOST_EVENTS)["events"])
    return [
        none_of("wrong", "brokers too many or too few in the end", abs(info["brokers"] - 1)),
        none_of("topics", "topics too many or too few in the end", abs(info["topics"] - _TOPICS)),
        Figure("events", "events kept", "count", (events,), Target("<=", _MOST_EVENTS)),
        Figure("grown", "memory grown", "megabytes", (grown,), Target("<=", 4), f"{descriptors} descriptors"),
    ]


def _flap(server: Server, times: int) -> None:
    frame = _broker(0).native_frame()
    for _ in range(times):
        with Wire(server) as wire:
            wire.ask_well(frame)


def no_descriptors(seconds: int) -> list[Figure]:
    """A server has no descriptor left for so long."""
    with daemon(_BENCH, "--max-connections", "10000") as server, Wire(server) as wire, ExitStack() as stack:
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + _SPARE, hard))
        crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(3 * _SPARE)]
        began, cpu, asked = time.monotonic(), server.cpu_seconds(), 0
        while time.monotonic() - began < seconds:
            _asked(wire, RequestCode.SERVER_INFO)
            asked += 1
            time.sleep(0.02)
        share = (server.cpu_seconds() - cpu) / (time.monotonic() - began)
        for peer in crowd:
            peer.close()
        began = time.monotonic()
        _until(lambda: _is_served(server), "a newcomer is served")
        resumed = time.monotonic() - began
    return [
        Figure("asked", "questions answered on a connection that was open before", "count", (asked,), Target(">=", 1)),
        Figure("busy", "of a core used meanwhile", "percent", (100 * share,), Target("<=", 20)),
        Figure("resumed", "a newcomer is served after the others left", "seconds", (resumed,), Target("<=", 5)),
    ]


def _is_served(server: Server) -> bool:
    """Whether a newcomer is; without a descriptor it is let in and turned away at once."""
    try:
        with Wire(server) as newcomer:
            _asked(newcomer, RequestCode.SERVER_INFO)
    except (BenchError, OSError):
        return False
    return True
