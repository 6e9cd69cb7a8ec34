"""Parsing of `host:port` addresses."""

from typing import Final

_PORTS: Final = range(1, 1 << 16)


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `10.0.0.1:9876`, `namesrv.example:9876` or `[::1]:9876`; a ValueError for anything else."""
    host, _, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not host or bracketed != (":" in host) or not (port.isascii() and port.isdigit()) or int(port) not in _PORTS:
        raise ValueError(f"address {address!r} is not host:port or [ipv6]:port")
    return host, int(port)
