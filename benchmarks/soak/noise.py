"""Strangers: connections that send garbage, half a frame, or requests for names that no broker has."""

import contextlib
import itertools
import random
import socket
import struct
from typing import Final

from benchmarks.harness.wire import native_request, request, route_request
from namesrv_remoting.codes import RequestCode

_PATIENCE_SECONDS: Final = 1.0
# The reasons for which the server closes such connections, as its log names them.
EXPECTED_REFUSALS: Final = frozenset({"frame_too_large", "slow_frame"})


class Strangers:
    """Connects to a server as a stranger, once per call of `connect`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._random = random.Random("strangers")
        # Each name is new: whatever a server keeps of an unknown name adds up.
        self._names = itertools.count()
        self.connections = 0

    def connect(self) -> None:
        """Connect, send something, and disconnect, half the time without reading a response."""
        # The server may be stopped, and may close the connection.
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._port), _PATIENCE_SECONDS) as peer,
        ):
            self.connections += 1
            peer.sendall(self._data())
            if self._random.random() < 0.5:
                peer.recv(65_536)

    def _data(self) -> bytes:
        name = f"unknown-{next(self._names)}"
        key = {"namespace": "SOAK", "key": name, "value": "v" * 100}
        giant_frame = struct.pack(">I", 0x7FFFFFFF)
        partial_frame = struct.pack(">II", 100, 50) + b"{"
        return self._random.choice(
            [
                b"GET / HTTP/1.1\r\n\r\n",
                giant_frame,
                partial_frame,
                route_request(name),
                # a watch whose client disconnects
                native_request(RequestCode.PULL_ROUTES, topics=[name], wait_ms=60_000),
                request(RequestCode.PUT_KV_CONFIG, key) + request(RequestCode.DELETE_KV_CONFIG, key),
            ]
        )
