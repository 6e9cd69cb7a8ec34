"""A socket that receives a service's messages to systemd."""

import contextlib
import os
import secrets
import socket
from pathlib import Path
from typing import Self

from tests.support.fake_clock import GUARD_SECONDS


class NotifySocket:
    """A socket like systemd's, at a path or (without one) in the abstract namespace; a context manager."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        name = f"@namesrv-test-{os.getpid()}-{secrets.token_hex(4)}"
        # the value of NOTIFY_SOCKET
        self.address = name if path is None else str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address.replace("@", "\0", 1) if path is None else self.address)

    def receive(self, within: float = GUARD_SECONDS) -> dict[str, str]:
        """The next message.

        Raises:
            TimeoutError: no message arrived in time.
        """
        self._socket.settimeout(within)
        lines = self._socket.recv(65536).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def receive_with(self, name: str) -> dict[str, str]:
        """The next message that contains this variable; earlier messages are dropped."""
        while name not in (message := self.receive()):
            pass
        return message

    def messages(self) -> list[dict[str, str]]:
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self.receive(0))
        return found

    def close(self) -> None:
        self._socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
