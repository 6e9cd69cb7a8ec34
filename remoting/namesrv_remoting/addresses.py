"""Peer addresses as values, and the network with which an address shares its limits."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address

# The owner of one IPv6 address usually has 2^64 of them.
_IPV6_PREFIX: Final = 64


def address_of(text: str) -> Address | None:
    """The address in a text, without brackets, and an IPv4-mapped IPv6 address as IPv4; None for any other text."""
    try:
        address = ip_address(text.strip("[]"))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


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
