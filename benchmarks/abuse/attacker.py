"""Attackers: sockets that send prepared bytes to a server.

Every loop ends when the time of the attack is over, after one attempt at least. The bytes are made before the attack,
so that the attacker uses little processor time.
"""

import itertools
import math
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from benchmarks.harness.figures import BenchError

# Attackers have other addresses than the well-behaved peers; all of 127.0.0.0/8 belongs to this machine.
_SOURCES: Final = "127.0.66.{}"
_MAX_SOURCES: Final = 250
# Longest wait for one response.
_PATIENCE_SECONDS: Final = 60.0
_CONNECTING_SECONDS: Final = 5.0
_AT_ONCE: Final = 256 * 1024
# The server writes a response of this size at once.
_SMALL_BYTES: Final = 4096
_LOOK_SECONDS: Final = 0.05
# Weight of a frame or a connection that has fewer bytes: each is at least a packet.
_LEAST_BYTES: Final = 1024


class Attacker:
    """The connections of an attacker to a server, and the weight of the bytes that they sent."""

    def __init__(self, port: int, http_port: int, seconds: float) -> None:
        self.port = port
        self.http_port = http_port
        self._seconds = seconds
        # end of the attack on the monotonic clock; infinite before `begin`
        self._ends_at = math.inf
        self._open: list[socket.socket] = []
        self._buffer = bytearray(_AT_ONCE)
        # sent bytes, but at least _LEAST_BYTES for each frame and each connection
        self.weight = 0
        # attempts to open a connection of the attack, or to send frames and wait for their responses
        self.attempts = 0
        # attempts after which the connection was ready to attack, or the frames were sent
        self.successes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for peer in self._open:
            peer.close()
        self._open = []

    def begin(self) -> None:
        """Start the time of the attack."""
        self._ends_at = time.monotonic() + self._seconds

    @property
    def is_over(self) -> bool:
        """True once the time of the attack is over; an attacker without any processor time still makes an attempt."""
        return self.attempts > 0 and time.monotonic() >= self._ends_at

    def wait(self) -> None:
        """Sleep until the time of the attack is over."""
        time.sleep(max(0.0, self._ends_at - time.monotonic()))

    def connect(self, source: int = 0, port: int | None = None) -> socket.socket | None:
        """Open a blocking connection from the address of this number; None when the server refuses it."""
        self.weight += _LEAST_BYTES
        port = port or self.port
        address = _SOURCES.format(source % _MAX_SOURCES + 1)
        try:
            peer = socket.create_connection(("127.0.0.1", port), _CONNECTING_SECONDS, (address, 0))
        except OSError:
            return None
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(_PATIENCE_SECONDS)
        self._open.append(peer)
        return peer

    def disconnect(self, peer: socket.socket) -> None:
        """Close one connection."""
        self._open.remove(peer)
        peer.close()

    def check(self) -> None:
        """Make sure that the attack took place.

        Raises:
            BenchError: most attempts failed, for example because the server refused the attacker's TLS handshakes.
        """
        if self.successes <= self.attempts / 2:
            raise BenchError(f"no attack: {self.successes:,} of {self.attempts:,} attempts succeeded")

    # -- one request after another -----------------------------------------------------------------------------------

    def repeat(self, bursts: Sequence[bytes], *, together: int = 1) -> None:
        """Send the bursts of `together` frames again and again on one connection, and wait for their responses."""
        peer, number = None, 0
        while not self.is_over:
            peer = peer or self.connect()
            self.attempts += 1
            if peer is None:
                time.sleep(0.01)
                continue
            is_sent = self._send(peer, bursts[number % len(bursts)], together)
            self.successes += is_sent
            number += 1
            if not (is_sent and self._responded(peer, together)):
                self.disconnect(peer)
                peer = None

    def request(self, peer: socket.socket, frame: bytes) -> bool:
        """Send a request; True if a small response with code 0 comes."""
        try:
            return self._send(peer, frame) and b'"code":0,' in peer.recv(_SMALL_BYTES)
        except OSError:
            return False

    def _send(self, peer: socket.socket, data: bytes, frames: int = 1) -> bool:
        """Send data with this number of frames; False if the connection breaks."""
        at = 0
        try:
            with memoryview(data) as view:
                while at < len(data):
                    at += peer.send(view[at : at + _AT_ONCE])
        except OSError:
            return False
        finally:
            self.count(at, frames)
        return True

    def count(self, size: int, frames: int = 1) -> None:
        """Add sent bytes to the weight, given the number of frames in them."""
        self.weight += max(size, _LEAST_BYTES * frames)

    def _responded(self, peer: socket.socket, count: int) -> bool:
        """Read and discard `count` frames; False if the connection ends."""
        try:
            for _ in range(count):
                left = int.from_bytes(peer.recv(4, socket.MSG_WAITALL)) or 1
                while left:
                    size = peer.recv_into(self._buffer, min(left, _AT_ONCE))
                    if not size:
                        return False
                    left -= size
        except OSError:
            return False
        return True


# -- many connections -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Flow:
    """One of many connections, and the chunks that it sends one after another."""

    peer: socket.socket
    # size of one frame or record, which are counted
    unit_bytes: int
    chunks: Iterator[memoryview]
    # True: the connection reads the server's responses, and discards them.
    is_reading: bool = False
    # True: the connection stays open after its last chunk.
    is_staying: bool = False
    # between two chunks
    pause_seconds: float = 0.0
    # the unsent rest of the current chunk
    left: memoryview = field(default_factory=lambda: memoryview(b""))
    # time of the next chunk, on the monotonic clock
    due: float = 0.0


# Opens a connection: (attacker, number of the connection, number of its address); None if the server refuses it.
Opening = Callable[[Attacker, int, int], Flow | None]


def holding(data: bytes, *, frames: int = 1, to_http: bool = False, every: float = 0.0) -> Opening:
    """Connections that send the same data, never read, and stay open.

    With `every` they send a single byte every so many seconds.
    """
    whole = memoryview(data)

    def opening(attacker: Attacker, _: int, source: int) -> Flow | None:
        peer = attacker.connect(source, attacker.http_port if to_http else None)
        if peer is None:
            return None
        chunks = [whole[at : at + 1] for at in range(len(data))] if every else [whole] if data else []
        unit = 1 if every else max(1, len(data) // frames)
        return Flow(peer, unit, iter(chunks), is_staying=True, pause_seconds=every)

    return opening


class Flows:
    """Many connections that send as fast as the server reads; a closed one is replaced unless it had to stay."""

    def __init__(self, attacker: Attacker, count: int, opening: Opening, *, sources: int = 1) -> None:
        """Open the connections without sending."""
        self._attacker = attacker
        self._opening = opening
        self._sources = sources
        self._buffer = bytearray(_AT_ONCE)
        flows = [self._opened(number) for number in range(count) if not attacker.is_over]
        # flows that are between two chunks
        self._waiting = [flow for flow in flows if flow is not None]
        # flows that have sent everything and stay open
        self._staying: list[Flow] = []
        self._numbers = itertools.count(count)

    def send(self) -> None:
        """Send until the time of the attack is over, or until all flows have sent everything and stay open."""
        count = len(self._waiting)
        with selectors.DefaultSelector() as selector:
            while not self._attacker.is_over and (self._waiting or selector.get_map()):
                self._register_due(selector)
                for key, events in selector.select(_LOOK_SECONDS):
                    self._go_on(selector, key.data, events)
                missing = count - len(selector.get_map()) - len(self._waiting) - len(self._staying)
                for number in itertools.islice(self._numbers, missing):
                    if (flow := self._opened(number)) is not None:
                        self._waiting.append(flow)

    def hold(self) -> None:
        """Send, keep the connections open until the time of the attack is over, and close them."""
        self.send()
        self._attacker.wait()
        self.close()

    def close(self) -> None:
        """Close the connections that stayed open."""
        for flow in self._staying:
            self._attacker.disconnect(flow.peer)
        self._staying = []

    def _opened(self, number: int) -> Flow | None:
        flow = self._opening(self._attacker, number, number % self._sources)
        self._attacker.attempts += 1
        self._attacker.successes += flow is not None
        return flow

    def _register_due(self, selector: selectors.BaseSelector) -> None:
        now = time.monotonic()
        for flow in self._waiting:
            if flow.due <= now:
                flow.peer.setblocking(False)  # noqa: FBT003 - its only parameter
                reading = selectors.EVENT_READ if flow.is_reading else 0
                selector.register(flow.peer, selectors.EVENT_WRITE | reading, flow)
        self._waiting = [flow for flow in self._waiting if flow.due > now]

    def _go_on(self, selector: selectors.BaseSelector, flow: Flow, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and not flow.peer.recv_into(self._buffer):
                raise ConnectionResetError
            if events & selectors.EVENT_WRITE:
                self._send(flow)
        except BlockingIOError:
            pass
        except (OSError, StopIteration):
            selector.unregister(flow.peer)
            if flow.is_staying:
                self._staying.append(flow)
            else:
                self._attacker.disconnect(flow.peer)
        else:
            if flow.pause_seconds and not flow.left:
                selector.unregister(flow.peer)
                flow.due = time.monotonic() + flow.pause_seconds
                self._waiting.append(flow)

    def _send(self, flow: Flow) -> None:
        if not flow.left:
            flow.left = next(flow.chunks)
        size = flow.peer.send(flow.left[:_AT_ONCE])
        self._attacker.count(size, size // flow.unit_bytes)
        flow.left = flow.left[size:]
