"""A crowd: thousands of clients or brokers in one process, which reconnect when their connections end."""

import ctypes
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
from multiprocessing.sharedctypes import RawValue
from typing import ClassVar, Final

from benchmarks.harness.figures import BenchError
from benchmarks.harness.servers import Server
from namesrv_remoting.codes import SerializeType
from namesrv_remoting.frames import Frame, FrameReader

_LOOK_SECONDS: Final = 0.005
_READ_AT_ONCE: Final = 256 * 1024
# Members have other addresses than connections on which a benchmark waits: a server reads from each address in turn.
_ADDRESS: Final = "127.0.0.%d"
_FIRST_ADDRESS: Final = 2
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
    # Time from a response until the member's next request, varied likewise; None: a member sends one request.
    every_seconds: float | None = None
    # The next request of a member, made of its first request and of the last response; None: the first request again.
    following: Callable[[bytes, Frame], bytes] | None = None
    # Addresses from which the members connect in turn: each has ports for some 28,000 connections.
    addresses: int = 1
    # The process of a crowd ends by itself after this time, in case the benchmark was killed.
    lifetime_seconds: int = 300


@dataclass(frozen=True, slots=True)
class Plan:
    """What the members of a crowd do."""

    # port of the server on 127.0.0.1
    port: int
    # the members' requests in turn: member N sends frame N modulo their number
    frames: Sequence[bytes]
    members: int
    habits: Habits


class Responses(ctypes.Structure):
    """The responses to all members so far, in memory that both processes share."""

    count: int
    # when the last one came, on the monotonic clock
    last_at: float
    _fields_: ClassVar = [("count", ctypes.c_longlong), ("last_at", ctypes.c_double)]


class Crowd:
    """The benchmark's end of a crowd."""

    def __init__(self, times: Connection, responses: Responses) -> None:
        # the beginning, and each time at which all members were served, on the monotonic clock
        self._times = times
        self.responses = responses
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
    plan = Plan(server.port, frames, len(frames) if members is None else members, habits or Habits())
    responses = RawValue(Responses)
    with child(_run, plan, responses) as times:
        yield Crowd(times, responses)


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


def _run(plan: Plan, responses: Responses, times: Connection) -> None:
    signal.alarm(plan.habits.lifetime_seconds)
    _Members(plan, responses, times).run()


@dataclass(slots=True)
class _Member:
    """One client or broker; without a socket it waits until it connects again."""

    number: int
    peer: socket.socket | None = None
    # what the selector waits for
    events: int = selectors.EVENT_WRITE
    is_connected: bool = False
    is_served: bool = False
    reader: FrameReader = field(default_factory=FrameReader)
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    gives_up_at: float | None = None
    # when the next request is due; None: no request will follow on this connection, or one is in flight
    next_at: float | None = None
    # the last response, if the next request is made of it
    response: Frame | None = None


class _Members:
    """The members and their event loop."""

    def __init__(self, plan: Plan, responses: Responses, times: Connection) -> None:
        self._address = ("127.0.0.1", plan.port)
        self._frames = plan.frames
        self._habits = plan.habits
        self._responses = responses
        self._times = times
        self._members = [_Member(number) for number in range(plan.members)]
        self._selector = selectors.DefaultSelector()
        # Heap of members that wait to connect: (time on the monotonic clock, number).
        self._away: list[tuple[float, int]] = [(0.0, number) for number in range(plan.members)]
        # Heap of members that will send their next request: (time, number). An entry counts only if its time is the
        # member's `next_at`, since the connection may have ended.
        self._waiting: list[tuple[float, int]] = []
        self._connecting = 0
        self._served = 0

    def run(self) -> None:
        """Connect, request and connect again until the process is killed."""
        were_served = False
        self._times.send(time.monotonic())
        while True:
            self._connect_due()
            self._request_due()
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
        member.peer.bind((_ADDRESS % (_FIRST_ADDRESS + member.number % self._habits.addresses), 0))
        member.peer.connect_ex(self._address)
        member.reader = FrameReader()
        member.is_served = False
        self._connecting += 1
        member.unsent = memoryview(self._frames[member.number % len(self._frames)])
        patience = self._habits.patience_seconds
        member.gives_up_at = None if patience is None else time.monotonic() + patience
        member.events = selectors.EVENT_WRITE
        self._selector.register(member.peer, member.events, member)

    def _request_due(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            due_at, number = heapq.heappop(self._waiting)
            member = self._members[number]
            if member.next_at == due_at:
                self._request_again(member)

    def _request_again(self, member: _Member) -> None:
        assert member.peer is not None  # noqa: S101 - a request is due on a connection
        frame = self._frames[member.number % len(self._frames)]
        if self._habits.following is not None and member.response is not None:
            frame = self._habits.following(frame, member.response)
        member.unsent, member.next_at, member.response = memoryview(frame), None, None
        try:
            self._send(member, member.peer)
        except OSError:
            self._leave(member)

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
        events = selectors.EVENT_WRITE if member.unsent else selectors.EVENT_READ
        if events != member.events:
            member.events = events
            self._selector.modify(peer, events, member)

    def _receive(self, member: _Member, peer: socket.socket) -> None:
        data = peer.recv(_READ_AT_ONCE)
        if not data:
            raise ConnectionResetError
        for frame in member.reader.receive_data(data):
            if not _is_success(frame.serialize_type, frame.header):
                raise ConnectionRefusedError
            self._served += not member.is_served
            member.is_served, member.gives_up_at = True, None
            self._responses.count += 1
            self._responses.last_at = time.monotonic()
            if self._habits.every_seconds is not None:
                member.response = frame if self._habits.following else None
                member.next_at = self._responses.last_at + _varied(self._habits.every_seconds)
                heapq.heappush(self._waiting, (member.next_at, member.number))

    def _leave(self, member: _Member) -> None:
        assert member.peer is not None  # noqa: S101 - only members with a connection leave
        self._selector.unregister(member.peer)
        member.peer.close()
        if member.is_connected:
            self._served -= member.is_served
        else:
            self._connecting -= 1
        member.is_connected, member.gives_up_at = False, None
        member.next_at, member.response = None, None
        heapq.heappush(self._away, (time.monotonic() + _varied(self._habits.again_seconds), member.number))


def _varied(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.5)


def _is_success(kind: int, header: bytes) -> bool:
    """True for a response with code 0: the first member in JSON, the first element in msgpack."""
    return header[1] == 0 if kind == SerializeType.MSGPACK else header.startswith(b'{"code":0,')
