"""Options of TCP sockets, for clients and servers."""

import socket
from typing import Final

# a probe after a minute of silence, then three more, fifteen seconds apart
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
# Bytes that the kernel takes for a peer that does not read; without this limit, up to several MiB. Further bytes wait
# in the process, whose memory limits count them.
_UNSENT_BYTES: Final = 16 * 1024


def set_tcp_options(connected: socket.socket, *, user_timeout_seconds: float) -> None:
    """Send small frames without delay, keep little in the kernel for peers that do not read, and notice vanished peers.

    A timeout of 0 leaves the kernel's default.
    Unacknowledged data ends the connection after the user timeout on Linux, and after about a quarter of an hour on
    other platforms. Keep-alive ends an idle connection to a vanished peer after two minutes; on Linux with a user
    timeout of up to 75 s, already after 75 s, at the second probe.
    """
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**_KEEPALIVE, "TCP_NOTSENT_LOWAT": _UNSENT_BYTES}.items():
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if user_timeout_seconds and hasattr(socket, "TCP_USER_TIMEOUT"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(user_timeout_seconds * 1000))
