"""Options of TCP sockets, for either side."""

import socket
from typing import Final

# a minute of silence, then four questions fifteen seconds apart
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


def set_tcp_options(connected: socket.socket, *, user_timeout_seconds: float) -> None:
    """No delay for small frames, and a peer that vanished without a word is noticed; 0 leaves the kernel's patience.

    What has been sent is given up after the user timeout where the platform knows one (Linux), after about a quarter of
    an hour where it does not; a connection on which nothing is sent, by keep-alive, after two minutes.
    """
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if user_timeout_seconds and hasattr(socket, "TCP_USER_TIMEOUT"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(user_timeout_seconds * 1000))
