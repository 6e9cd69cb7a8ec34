"""What strangers do to any server meanwhile: half a frame, nonsense, names that nobody has, keys that come and go."""

import contextlib
import itertools
import random
import socket
import struct
import threading
import time
from typing import Final, Self

from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.serializers import encode_command

_EVERY_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 1.0
# the reasons for which the server closes their connections, and says so in its log
EXPECTED_REFUSALS: Final = frozenset({"frame_too_large", "slow_frame"})


class Noise:
    """A thread of one connection after another, from `churn` on for so long."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._random = random.Random(seed)
        # ever new ones, as with the brokers
        self._names = itertools.count()
        self._thread: threading.Thread | None = None
        self._connections = 0
        # nobody waits for the rest of it
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
            # the server may be stopped, and has a right to close
            with contextlib.suppress(OSError), _connected(self._port) as peer:
                self._connections += 1
                peer.sendall(self._said())
                if self._random.random() < 0.5:
                    peer.recv(65_536)
            time.sleep(_EVERY_SECONDS)

    def _said(self) -> bytes:
        name = f"nobody-{next(self._names)}"
        key = {"namespace": "SOAK", "key": name, "value": "v" * 100}
        pull = NATIVE.encode({"topics": [name], "wait_ms": 60_000})
        return self._random.choice(
            [
                b"GET / HTTP/1.1\r\n\r\n",
                # a giant, and one that never comes whole
                struct.pack(">I", 0x7FFFFFFF),
                struct.pack(">II", 100, 50) + b"{",
                _frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": name}),
                # a watch that is given up
                _frame(RequestCode.PULL_ROUTES, {}, pull, SerializeType.MSGPACK),
                _frame(RequestCode.PUT_KV_CONFIG, key) + _frame(RequestCode.DELETE_KV_CONFIG, key),
            ]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self.settle()


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), _PATIENCE_SECONDS)


def _frame(code: int, fields: dict[str, str], body: bytes = b"", kind: SerializeType = SerializeType.JSON) -> bytes:
    return encode_command(RemotingCommand(code, ext_fields=fields, body=body, serialize_type=kind))
