"""Detects an IPv6 loopback."""

import socket


def can_use_ipv6() -> bool:
    """True when a socket can listen on ::1."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False
