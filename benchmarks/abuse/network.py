"""A network of this process's own, in which all addresses of one IPv6 network are this machine's.

A network namespace with a loopback alone: nothing outside of it is touched, and it ends with the processes in it.
"""

import ctypes
import os
import shutil
import socket
import subprocess
from types import TracebackType
from typing import Final, Self

from benchmarks.harness.figures import BenchError

# unique local addresses, RFC 4193
NETWORK: Final = "fd00:66::/64"
_CLONE_NEWNET: Final = 0x40000000
# <linux/in6.h>; Python has no name for it
_IPV6_FREEBIND: Final = 78
_COMMAND_SECONDS: Final = 10
_libc: Final = ctypes.CDLL(None, use_errno=True)


class NoNetworkError(BenchError):
    """This machine, or this user, cannot have one."""


class PrivateNetwork:
    """The network of the calling thread, and of processes that it starts, until the block ends."""

    def __enter__(self) -> Self:
        self._before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _libc.unshare(_CLONE_NEWNET):
                raise NoNetworkError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
            _ip("link", "set", "lo", "up")
            _ip("-6", "route", "add", "local", NETWORK, "dev", "lo")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _libc.setns(self._before, _CLONE_NEWNET)
        os.close(self._before)


def connected(port: int, number: int, seconds: float) -> socket.socket:
    """A connection to ::1 from one of the network's addresses.

    Raises:
        OSError: it is refused.
    """
    peer = socket.socket(socket.AF_INET6)
    try:
        peer.settimeout(seconds)
        peer.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        peer.bind((f"fd00:66::{number + 1:x}", 0))
        peer.connect(("::1", port))
    except OSError:
        peer.close()
        raise
    return peer


def _ip(*arguments: str) -> None:
    program = shutil.which("ip")
    if program is None:
        raise NoNetworkError("no `ip` on PATH (package iproute2)")
    command = [program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS)
    if done.returncode:
        raise NoNetworkError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
