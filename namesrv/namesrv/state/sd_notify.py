"""Notifications to systemd: ready, reloading, stopping, watchdog.

The protocol is that of sd_notify(3): lines in a datagram to the socket that NOTIFY_SOCKET names, for units with
`Type=notify`. Without that variable nothing is sent.
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
    """The connection to the service manager that started the server, if there is one."""

    def __init__(self, address: str = "", *, has_watchdog: bool = False) -> None:
        # a path, or @ and a name in the abstract namespace; empty without a service manager
        self._address = address
        self._has_watchdog = has_watchdog and bool(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)  # noqa: FBT003 - positional only
        self._is_failing = False

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """The service manager that the environment names."""
        address = environ.get("NOTIFY_SOCKET", "")
        if address and address[0] not in "/@":
            event(logger, logging.WARNING, "notify_socket_unknown", address=address)
            address = ""
        # Variables inherited from a parent process may be meant for the parent.
        is_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        return cls(address, has_watchdog=is_for_us and environ.get("WATCHDOG_USEC", "0") != "0")

    def __repr__(self) -> str:
        return f"<ServiceManager [{self._address or 'none'} | watchdog: {'yes' if self._has_watchdog else 'no'}]>"

    def ready(self, status: str) -> None:
        """Report that the server serves, after the start or a reload."""
        self._send("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """Report the server's state as a text for people."""
        self._send(f"STATUS={status}")

    def reloading(self) -> None:
        """Report that the server reads its settings again; `ready` reports the end."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reloading")

    def stopping(self, status: str, seconds: float) -> None:
        """Report that the server stops, within about `seconds`."""
        self._send("STOPPING=1", f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def alive(self) -> None:
        """Report to the watchdog, which restarts a server that does not report."""
        if self._has_watchdog:
            self._send("WATCHDOG=1")

    def close(self) -> None:
        """Close the socket; nothing is reported any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> None:
        if self._socket is None:
            return
        message = "\n".join(line.replace("\n", " ") for line in lines)
        # A NUL byte marks a name in the abstract namespace.
        target = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            self._socket.sendto(message.encode(), target)
            self._is_failing = False
        except OSError as error:
            # The service manager may be slow or restarting; the server works without it.
            if not self._is_failing:
                event(logger, logging.WARNING, "service_manager_unreachable", address=self._address, error=error)
            self._is_failing = True
