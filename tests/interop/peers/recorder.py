"""Records the frames between a peer and a NameServer.

The recorder splits frames and reads headers without the code under test.
"""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

_RESPONSE: Final = 1
_ONEWAY: Final = 2
_READ_BYTES: Final = 1 << 16


@dataclass
class Exchange:
    """A request, and its response as soon as it has arrived."""

    # Connections are numbered from 1, in the order of their first request.
    connection: int
    request: bytes
    header: dict[str, Any]
    # None: the response has not arrived, or the request is one-way.
    answer: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.code = int(self.header["code"])
        self.opaque = int(self.header["opaque"])
        self.body = self.request[8 + _header_bytes(self.request) :]
        self.is_oneway = bool(self.header["flag"] & _ONEWAY)
        self.ext_fields: dict[str, str] = self.header.get("extFields") or {}


class Recorder:
    """A TCP proxy in front of a NameServer that records all requests in order, with their responses."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = []
        self._connections = 0
        self._sockets = [self._listener]
        self._start(self._accept)

    @property
    def address(self) -> str:
        """The proxy's address, which brokers use as the NameServer's."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def exchanges(self, code: int | None = None, **ext_fields: str) -> list[Exchange]:
        """The requests so far of a code and with these fields, without those whose response is missing."""
        with self._lock:
            return [
                exchange
                for exchange in self._exchanges
                if code in (None, exchange.code)
                and ext_fields.items() <= exchange.ext_fields.items()
                and (exchange.is_oneway or exchange.answer is not None)
            ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            sockets = list(self._sockets)
        for end in sockets:
            # The shutdown wakes the thread that waits on the socket; a close alone would not.
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _start(self, run: Any, *args: Any) -> None:
        threading.Thread(target=run, args=args, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                with self._lock:
                    self._sockets += (near, far)
                # The pending exchanges of this connection, by opaque.
                waiting: dict[int, Exchange] = {}
                self._start(self._pump_requests, near, far, waiting)
                self._start(self._pump_answers, far, near, waiting)

    def _pump_requests(self, near: socket.socket, far: socket.socket, waiting: dict[int, Exchange]) -> None:
        connection = 0
        for frame in _frames(near):
            header = _header(frame)
            with self._lock:
                if not header["flag"] & _RESPONSE:
                    if not connection:
                        self._connections += 1
                        connection = self._connections
                    exchange = Exchange(connection, frame, header)
                    self._exchanges.append(exchange)
                    waiting[exchange.opaque] = exchange
            _send(far, frame)
        _end(far)

    def _pump_answers(self, far: socket.socket, near: socket.socket, waiting: dict[int, Exchange]) -> None:
        for frame in _frames(far):
            header = _header(frame)
            with self._lock:
                exchange = waiting.pop(int(header["opaque"]), None)
                if exchange is not None and header["flag"] & _RESPONSE:
                    body = frame[8 + _header_bytes(frame) :].decode()
                    exchange.answer = {"serialize_type": 0, "header": header, "body": body}
            _send(near, frame)
        _end(near)


def _frames(end: socket.socket) -> Iterator[bytes]:
    """The received frames, until the connection ends."""
    data = bytearray()
    while True:
        while len(data) >= 4 and len(data) >= (size := 4 + struct.unpack_from(">I", data)[0]):
            yield bytes(data[:size])
            del data[:size]
        try:
            part = end.recv(_READ_BYTES)
        except OSError:
            return
        if not part:
            return
        data += part


def _header_bytes(frame: bytes) -> int:
    word: int = struct.unpack_from(">I", frame, 4)[0]
    assert word >> 24 == 0, "a header that is not JSON"
    return word & 0xFFFFFF


def _header(frame: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(frame[8 : 8 + _header_bytes(frame)])
    return header


def _send(end: socket.socket, frame: bytes) -> None:
    with suppress(OSError):
        end.sendall(frame)


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_WR)
