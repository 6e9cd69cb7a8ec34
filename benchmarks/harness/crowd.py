"""A crowd: thousands of clients or brokers in one process, which reconnect when their connections end."""

import heapq
import multiprocessing
import random
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Final

from benchmarks.harness.figures import BenchError
from benchmarks.harness.servers import Server
from namesrv_remoting.codes import SerializeType
from namesrv_remoting.frames import FrameReader

_LOOK_SECONDS: Final = 0.005
_READ_AT_ONCE: Final = 256 * 1024
# The process of a crowd ends by itself after this time, in case the benchmark was killed.
_LIFETIME_SECONDS: Final = 300
# Members have another address than connections on which a benchmark waits: a server reads from each address in turn.
_ADDRESS: Final = "127.0.0.2"
# IP_BIND_ADDRESS_NO_PORT of Linux, which Python 3.11 does not name: the port is chosen when the socket connects.
_BIND_ADDRESS_NO_PORT: Final = 24


@dataclass(frozen=True, slots=True)
class Habits:
    """How each member of a crowd behaves."""

    # Members that connect at the same time: more than the listen backlog would wait for a retransmission.
    at_once: int = 1_000
    # Longest wait for a connection or a response; None: no limit.
    patience_seconds: float | None = None
    # Time until a refused member connects again, randomly varied by up to half of it.
    again_seconds: float = 1.0


class Crowd:
    """The benchmark's end of a crowd."""

    def __init__(self, times: Connection) -> None:
        # the beginning, and each time at which all members were served, on the monotonic clock
        self._times = times
        # when the members began to connect
        self.began_at = self._next()

    def served(self) -> float:
        """Wait until all members have been served, after the last such time, and return when that was.

        Raises:
            BenchError: the crowd's process has ended.
        """
        return self._next()

    def _next(self) -> float:
        try:
            return float(self._times.recv())
        except EOFError:
            raise BenchError("the process of a crowd has ended") from None


@contextmanager
def crowd(
    server: Server, frames: Sequence[bytes], *, members: int | None = None, habits: Habits | None = None
) -> Iterator[Crowd]:
    """A crowd until the block ends; its members send the frames in turn, and by default there is one for each frame."""
    count = len(frames) if members is None else members
    with child(_run, server.port, frames, count, habits or Habits()) as times:
        yield Crowd(times)


@contextmanager
def child(run: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """Run a function with these arguments and a pipe in a process until the block ends; yields the pipe's other end."""
    ours, theirs = multiprocessing.Pipe()
    # A forked process would inherit our connections, and keep them open when we close them.
    process = multiprocessing.get_context("spawn").Process(target=run, args=(*arguments, theirs))
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        process.kill()
        process.join()
        ours.close()


# -- the process of the members ---------------------------------------------------------------------------------------


def _run(port: int, frames: Sequence[bytes], count: int, habits: Habits, times: Connection) -> None:
    signal.alarm(_LIFETIME_SECONDS)
    _Members(port, frames, count, habits, times).run()


@dataclass(slots=True)
class _Member:
    """One client or broker; without a socket it waits until it connects again."""

    number: int
    peer: socket.socket | None = None
    is_connected: bool = False
    is_served: bool = False
    reader: FrameReader = field(default_factory=FrameReader)
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    gives_up_at: float | None = None


class _Members:
    """The members and their event loop."""

    def __init__(self, port: int, frames: Sequence[bytes], count: int, habits: Habits, times: Connection) -> None:
        self._address = ("127.0.0.1", port)
        self._frames = frames
        self._habits = habits
        self._times = times
        self._members = [_Member(number) for number in range(count)]
        self._selector = selectors.DefaultSelector()
        # Heap of members that wait to connect: (time on the monotonic clock, number).
        self._away: list[tuple[float, int]] = [(0.0, number) for number in range(count)]
        self._connecting = 0
        self._served = 0

    def run(self) -> None:
        """Connect, request and connect again until the process is killed."""
        were_served = False
        self._times.send(time.monotonic())
        while True:
            self._connect_due()
            # Patience is compared with the time before this step, so that responses that are already here count.
            before = time.monotonic()
            for key, events in self._selector.select(_LOOK_SECONDS):
                self._step(key.data, events)
            self._give_up(before)
            are_served = self._served == len(self._members)
            if are_served and not were_served:
                self._times.send(time.monotonic())
            were_served = are_served

    def _connect_due(self) -> None:
        now = time.monotonic()
        while self._away and self._away[0][0] <= now and self._connecting < self._habits.at_once:
            self._connect(self._members[heapq.heappop(self._away)[1]])

    def _connect(self, member: _Member) -> None:
        member.peer = socket.socket()
        member.peer.setblocking(False)  # noqa: FBT003 - its only parameter
        member.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        member.peer.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        member.peer.bind((_ADDRESS, 0))
        member.peer.connect_ex(self._address)
        member.reader = FrameReader()
        member.is_served = False
        self._connecting += 1
        member.unsent = memoryview(self._frames[member.number % len(self._frames)])
        patience = self._habits.patience_seconds
        member.gives_up_at = None if patience is None else time.monotonic() + patience
        self._selector.register(member.peer, selectors.EVENT_WRITE, member)

    def _give_up(self, now: float) -> None:
        if self._habits.patience_seconds is None:
            return
        for member in self._members:
            if member.gives_up_at is not None and member.gives_up_at <= now:
                self._leave(member)

    def _step(self, member: _Member, events: int) -> None:
        assert member.peer is not None  # noqa: S101 - it is registered
        try:
            if events & selectors.EVENT_WRITE:
                self._send(member, member.peer)
            else:
                self._receive(member, member.peer)
        except OSError:
            self._leave(member)

    def _send(self, member: _Member, peer: socket.socket) -> None:
        """Send as much of the request as the socket takes. Raises OSError for a connection that was refused."""
        member.unsent = member.unsent[peer.send(member.unsent) :]
        if not member.is_connected:
            member.is_connected = True
            self._connecting -= 1
        self._selector.modify(peer, selectors.EVENT_WRITE if member.unsent else selectors.EVENT_READ, member)

    def _receive(self, member: _Member, peer: socket.socket) -> None:
        data = peer.recv(_READ_AT_ONCE)
        if not data:
            raise ConnectionResetError
        for frame in member.reader.receive_data(data):
            if not _is_success(frame.serialize_type, frame.header):
                raise ConnectionRefusedError
            self._served += 1
            member.is_served, member.gives_up_at = True, None

    def _leave(self, member: _Member) -> None:
        assert member.peer is not None  # noqa: S101 - only members with a connection leave
        self._selector.unregister(member.peer)
        member.peer.close()
        if member.is_connected:
            self._served -= member.is_served
        else:
            self._connecting -= 1
        member.is_connected, member.gives_up_at = False, None
        again_at = time.monotonic() + self._habits.again_seconds * random.uniform(0.5, 1.5)
        heapq.heappush(self._away, (again_at, member.number))


def _is_success(kind: int, header: bytes) -> bool:
    """True for a response with code 0: the first member in JSON, the first element in msgpack."""
    return header[1] == 0 if kind == SerializeType.MSGPACK else header.startswith(b'{"code":0,')
