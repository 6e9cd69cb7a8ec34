"""Notifications to systemd: ready, reloading, stopping, watchdog.

The protocol of sd_notify(3): lines in a datagram to the socket that NOTIFY_SOCKET names, for units with `Type=notify`.
Without that variable nothing is sent.
"""

import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Final, Self

from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)


class ServiceManager:
    """The service manager that started the server, if any."""

    def __init__(self, address: str = "", *, has_watchdog: bool = False) -> None:
        # a path, or a name in the abstract namespace after an @; empty when nobody wants to know
        self._address = address
        self._has_watchdog = has_watchdog and bool(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)  # noqa: FBT003 - positional only
        self._is_failing = False

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """The one that the environment names."""
        address = environ.get("NOTIFY_SOCKET", "")
        if address and address[0] not in "/@":
            event(logger, logging.WARNING, "notify_socket_unknown", address=address)
            address = ""
        # a variable that was meant for a parent of ours says nothing to us
        is_meant = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        return cls(address, has_watchdog=is_meant and environ.get("WATCHDOG_USEC", "0") != "0")

    def __repr__(self) -> str:
        return f"<ServiceManager [{self._address or 'none'} | watchdog: {'yes' if self._has_watchdog else 'no'}]>"

    def ready(self, status: str) -> None:
        """It serves, or serves again after a reload."""
        self._send("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """How it is, for people."""
        self._send(f"STATUS={status}")

    def reloading(self) -> None:
        """It reads its settings again; `ready` says when that is done."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reloading")

    def stopping(self, status: str, seconds: float) -> None:
        """It leaves, which takes about so long."""
        self._send("STOPPING=1", f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def alive(self) -> None:
        """It does not hang; said so often, or it is restarted."""
        if self._has_watchdog:
            self._send("WATCHDOG=1")

    def close(self) -> None:
        """Say nothing more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> None:
        if self._socket is None:
            return
        message = "\n".join(line.replace("\n", " ") for line in lines)
        # how the kernel is told that a name is abstract
        target = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            self._socket.sendto(message.encode(), target)
            self._is_failing = False
        except OSError as error:
            # its reader may be slow, or restarting; what we do does not depend on it
            if not self._is_failing:
                event(logger, logging.WARNING, "service_manager_not_told", address=self._address, error=error)
            self._is_failing = True
