"""An attacker with nothing but sockets.

Every loop here ends when the attack's time is over. What is sent is made before, so that an attack costs the attacker
next to nothing.
"""

import contextlib
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import msgpack

from benchmarks.abuse import network
from benchmarks.abuse.payloads import native_pull

# Attackers have addresses of their own, as on a network: those of 127.0.0.0/8 are all this machine's.
_SOURCES: Final = "127.0.66.{}"
_MAX_SOURCES: Final = 250
# for one answer; a frame that takes the server a minute has shown what it can do
_PATIENCE_SECONDS: Final = 60.0
_CONNECTING_SECONDS: Final = 5.0
_AT_ONCE: Final = 256 * 1024
# A frame or a connection is a packet or more, however few bytes it has.
LEAST_BYTES: Final = 1024


@dataclass(slots=True)
class _Sending:
    """How far one connection of a crowd is."""

    peer: socket.socket
    at: int = 0


@dataclass(slots=True)
class _Storming:
    """One connection of a storm: which payload it sends, and how far it is."""

    peer: socket.socket
    number: int
    source: int
    at: int = 0


class Attacker:
    """Sockets to one server, and how much went through them, until the block ends."""

    def __init__(self, port: int, http_port: int, seconds: float, *, is_ipv6: bool = False) -> None:
        self.port = port
        self.http_port = http_port
        self._seconds = seconds
        self._is_ipv6 = is_ipv6
        self._ends_at = time.monotonic() + seconds
        self._open: list[socket.socket] = []
        self._crowd: list[socket.socket] = []
        self._buffer = bytearray(_AT_ONCE)
        self.sent_bytes = 0
        # the same, each frame and each connection with LEAST_BYTES at least
        self.weight = 0
        # connections that could not be opened, or that the server has closed
        self.closed = 0

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
        """Count the attack's time from now on."""
        self._ends_at = time.monotonic() + self._seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._ends_at

    def connect(self, source: int = 0, port: int | None = None) -> socket.socket | None:
        """A blocking connection from one of our addresses; None when the server refuses it."""
        self.weight += LEAST_BYTES
        port = port or self.port
        address = _SOURCES.format(source % _MAX_SOURCES + 1)
        try:
            if self._is_ipv6:
                peer = network.connected(port, source, _CONNECTING_SECONDS)
            else:
                peer = socket.create_connection(("127.0.0.1", port), _CONNECTING_SECONDS, (address, 0))
        except OSError:
            self.closed += 1
            return None
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(_PATIENCE_SECONDS)
        self._open.append(peer)
        return peer

    def repeat(self, frames: Sequence[bytes], *, together: int = 1, port: int | None = None) -> None:
        """On one connection, over and over, the next frames once those before are answered."""
        bursts = [b"".join(frames[at : at + together]) for at in range(0, len(frames), together)]
        peer, number = None, 0
        while not self.is_over:
            peer = peer or self.connect(port=port)
            if peer is None:
                time.sleep(0.01)
            elif self.send(peer, bursts[number % len(bursts)], together) and self._answered(peer, together):
                number += 1
            else:
                self.disconnect(peer)
                self.closed += 1
                peer, number = None, number + 1

    def repeat_on(self, connections: int, frames: Sequence[bytes]) -> None:
        """On several connections at once, over and over, the next frame of each without waiting for its answer."""
        peers = [peer for _ in range(connections) if (peer := self.connect()) is not None]
        number = 0
        while not self.is_over:
            # each has one frame in the server's hands while the other's is read
            if not all(self.send(peer, frames[number % len(frames)]) for peer in peers):
                return
            if number and not all(self._answered(peer, 1) for peer in peers):
                return
            number += 1

    def reconnecting(self, data: bytes, *, port: int | None = None) -> None:
        """One connection after another: each sends its bytes, and takes what comes until the server closes."""
        while not self.is_over:
            peer = self.connect(port=port)
            if peer is None:
                time.sleep(0.01)
                continue
            peer.settimeout(1)
            if data:
                self.send(peer, data)
                with contextlib.suppress(OSError):
                    while peer.recv_into(self._buffer):
                        pass
            self.disconnect(peer)

    def crowd(  # noqa: PLR0913 - each attack has a few of them
        self,
        count: int,
        data: bytes = b"",
        *,
        frames: int = 1,
        sources: int = 1,
        port: int | None = None,
        every: float = 0.0,
    ) -> None:
        """Many connections that send the same bytes, so many frames, and never read; they stay until the time is up.

        With `every`, one byte each so often.
        """
        self._crowd = self._connected(count, sources, port)
        if every:
            self._trickle(self._crowd, data, every)
        else:
            self._push(self._crowd, data, frames)
        self.wait()
        self.leave_crowd()

    def enter_crowd(self, count: int, data: bytes, *, frames: int = 1, sources: int = 1) -> None:
        """The same, and return when all is sent; `leave_crowd` ends it."""
        self._crowd = self._connected(count, sources, None)
        self._push(self._crowd, data, frames)

    def _connected(self, count: int, sources: int, port: int | None) -> list[socket.socket]:
        peers = [peer for number in range(count) if not self.is_over and (peer := self.connect(number % sources, port))]
        for peer in peers:
            peer.setblocking(False)  # noqa: FBT003 - its only parameter
        return peers

    def leave_crowd(self) -> None:
        """Count those that the server has closed, and close all."""
        self.closed += sum(_is_closed(peer) for peer in self._crowd)
        for peer in self._crowd:
            self.disconnect(peer)
        self._crowd = []

    def storm(self, payloads: Sequence[bytes], count: int, *, sources: int) -> None:
        """Many connections, each of which sends one payload after the other and comes back when it is closed."""
        views = [memoryview(payload) for payload in payloads]
        with selectors.DefaultSelector() as selector:
            for number in range(count):
                self._enter(selector, number, number % sources)
            while not self.is_over:
                if not selector.get_map():
                    time.sleep(0.01)
                for key, events in selector.select(0.1):
                    if not self._stormed(key.data, views, events):
                        selector.unregister(key.fileobj)
                        self.disconnect(key.data.peer)
                        self.closed += 1
                        self._enter(selector, key.data.number + 1, key.data.source)

    def _enter(self, selector: selectors.BaseSelector, number: int, source: int) -> None:
        peer = self.connect(source)
        if peer is not None:
            peer.setblocking(False)  # noqa: FBT003 - its only parameter
            selector.register(peer, selectors.EVENT_READ | selectors.EVENT_WRITE, _Storming(peer, number, source))

    def _stormed(self, one: _Storming, views: Sequence[memoryview], events: int) -> bool:
        """Send some, and throw away what comes; whether the connection still stands."""
        view = views[one.number % len(views)]
        try:
            if events & selectors.EVENT_READ and not one.peer.recv_into(self._buffer):
                return False
            if events & selectors.EVENT_WRITE:
                size = one.peer.send(view[one.at : one.at + _AT_ONCE])
                self.count(size, 0 if one.at else 1)
                one.at += size
        except BlockingIOError:
            return True
        except OSError:
            return False
        if one.at == len(view):
            one.number, one.at = one.number + 1, 0
        return True

    def wait(self) -> None:
        """Do nothing until the time is up."""
        time.sleep(max(0.0, self._ends_at - time.monotonic()))

    def disconnect(self, peer: socket.socket) -> None:
        """Close one."""
        self._open.remove(peer)
        peer.close()

    def ask(self, peer: socket.socket, frame: bytes) -> bool:
        """Whether one frame is answered."""
        return self.send(peer, frame) and self._answered(peer, 1)

    def send(self, peer: socket.socket, data: bytes, frames: int = 1) -> bool:
        """Whether the server takes it."""
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
        """Note that so many bytes were sent, in so many frames."""
        self.sent_bytes += size
        self.weight += max(size, LEAST_BYTES * frames)

    def revision(self) -> tuple[str, int]:
        """Which boot of the server this is, and how many changes of routes it has seen: what a watch has to know.

        Raises:
            OSError: the server does not say.
        """
        with socket.create_connection(("127.0.0.1", self.port), _PATIENCE_SECONDS) as peer:
            peer.sendall(native_pull(1))
            data = _exactly(peer, int.from_bytes(_exactly(peer, 4)))
        known = msgpack.unpackb(data[4 + int.from_bytes(data[1:4]) :])
        return known["boot_id"], known["revision"]

    def _answered(self, peer: socket.socket, count: int) -> bool:
        """Read so many frames, and throw them away."""
        try:
            for _ in range(count):
                left = int.from_bytes(_exactly(peer, 4))
                while left:
                    left -= _some(peer, self._buffer, left)
        except OSError:
            return False
        return True

    def _push(self, peers: Sequence[socket.socket], data: bytes, frames: int) -> None:
        with selectors.DefaultSelector() as selector, memoryview(data) as view:
            for peer in peers:
                if data:
                    selector.register(peer, selectors.EVENT_WRITE, _Sending(peer))
            while selector.get_map() and not self.is_over:
                for key, _ in selector.select(0.1):
                    if self._is_done(key.data, view, frames):
                        selector.unregister(key.fileobj)

    def _is_done(self, sending: _Sending, data: memoryview, frames: int) -> bool:
        """Send some; whether there is no more to send, or the server has closed."""
        try:
            size = sending.peer.send(data[sending.at : sending.at + _AT_ONCE])
        except BlockingIOError:
            return False
        except OSError:
            return True
        self.count(size, max(1, frames * size // len(data)))
        sending.at += size
        return sending.at == len(data)

    def _trickle(self, peers: Sequence[socket.socket], data: bytes, every: float) -> None:
        for at in range(len(data)):
            for peer in peers:
                with contextlib.suppress(OSError):
                    self.count(peer.send(data[at : at + 1]))
            time.sleep(every)
            if self.is_over:
                return


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = peer.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionResetError
    return data


def _some(peer: socket.socket, buffer: bytearray, most: int) -> int:
    size = peer.recv_into(buffer, min(most, len(buffer)))
    if not size:
        raise ConnectionResetError
    return size


def _is_closed(peer: socket.socket) -> bool:
    """Whether the server has closed it, seen behind whatever was never read."""
    try:
        while peer.recv(_AT_ONCE):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
