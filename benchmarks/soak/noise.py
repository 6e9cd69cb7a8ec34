"""What strangers do to any server: half a frame, garbage, topics that do not exist, keys that come and go."""

import contextlib
import itertools
import random
import socket
import struct
import threading
import time
from typing import Final, Self

from benchmarks.harness.wire import native_request, request, route_request
from namesrv_remoting.codes import RequestCode

_EVERY_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 1.0
# the reasons for which the server closes their connections, and logs that
EXPECTED_REFUSALS: Final = frozenset({"frame_too_large", "slow_frame"})


class Noise:
    """A thread of one connection after another, from `churn` on for so long."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._random = random.Random("strangers")
        # ever new ones, as with the brokers
        self._names = itertools.count()
        self._thread: threading.Thread | None = None
        self._connections = 0
        # the rest of the time is not waited for
        self._is_over = False

    def churn(self, seconds: float) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, args=(time.monotonic() + seconds,))
        self._thread.start()

    def settle(self) -> int:
        """Wait for the end; all connections are closed then, that many since the last time."""
        if self._thread is not None:
            self._thread.join()
        count, self._connections = self._connections, 0
        return count

    def _run(self, ends_at: float) -> None:
        while time.monotonic() < ends_at and not self._is_over:
            # the server may be stopped, and may close
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self._port), _PATIENCE_SECONDS) as peer,
            ):
                self._connections += 1
                peer.sendall(self._sent())
                if self._random.random() < 0.5:
                    peer.recv(65_536)
            time.sleep(_EVERY_SECONDS)

    def _sent(self) -> bytes:
        name = f"unknown-{next(self._names)}"
        key = {"namespace": "SOAK", "key": name, "value": "v" * 100}
        return self._random.choice(
            [
                b"GET / HTTP/1.1\r\n\r\n",
                # a giant, and one that never comes whole
                struct.pack(">I", 0x7FFFFFFF),
                struct.pack(">II", 100, 50) + b"{",
                route_request(name),
                # a watch that is given up
                native_request(RequestCode.PULL_ROUTES, topics=[name], wait_ms=60_000),
                request(RequestCode.PUT_KV_CONFIG, key) + request(RequestCode.DELETE_KV_CONFIG, key),
            ]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self.settle()
