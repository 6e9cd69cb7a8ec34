"""Peer addresses as values, and the network with which an address shares its limits."""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address

# The owner of one IPv6 address usually has 2^64 of them.
_IPV6_PREFIX: Final = 64
# Python encodes no name with an empty label, or one of more than 63 characters, for its resolver: UnicodeError.
HOST_NAME: Final = re.compile(r"(?!.*\.\.)(?!.*[^.]{64})[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
MAX_PORT: Final = 65535


def address_of(text: str) -> Address | None:
    """The address in a text, without brackets, and an IPv4-mapped IPv6 address as IPv4; None for any other text."""
    try:
        address = ip_address(text.strip("[]"))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(text: str) -> bool:
    """Whether a text is an address that only this machine can connect to."""
    address = address_of(text)
    return address is not None and address.is_loopback


def is_host(text: str) -> bool:
    """Whether a text is an IP address, without brackets, or a host name."""
    try:
        ip_address(text)
    except ValueError:
        # Digits and dots are meant as an address, here an invalid one.
        return HOST_NAME.fullmatch(text) is not None and not re.fullmatch(r"[\d.]+", text)
    return True


def is_endpoint(text: str, *, least_port: int = 0) -> bool:
    """Whether a text is a host and a port: 10.0.0.1:9876, [::1]:9876, ns1.example.com:9876."""
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if is_bracketed else host
    is_port = re.fullmatch("[0-9]{1,5}", port) is not None and least_port <= int(port) <= MAX_PORT
    return is_port and is_host(bare) and is_bracketed == (":" in bare)


def host_of(address: str) -> str:
    """The host of an address with a port, without brackets."""
    return address.rpartition(":")[0].strip("[]")


@lru_cache(maxsize=4096)
def network_of(text: str) -> str:
    """The key of all limits, budgets and shares of a peer address: an IPv4 address, or the /64 of an IPv6 address."""
    if ":" not in text:
        return text
    address = address_of(text)
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), _IPV6_PREFIX), strict=False))
    return text if address is None else str(address)
