"""Addresses are read, and nonsense is refused by value."""

import pytest

from namesrv_runtime.address import parse_address


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876),
        ("namesrv.example:1", "namesrv.example", 1),
        ("[::1]:65535", "::1", 65535),
        ("[fe80::1%eth0]:9876", "fe80::1%eth0", 9876),
    ],
)
def test_address_has_host_and_port(address: str, host: str, port: int) -> None:
    """IPv4, a name, and IPv6 in brackets."""
    assert (host, port) == parse_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "9876",
        ":9876",
        "[]:9876",
        "namesrv",
        "namesrv:",
        "namesrv:http",
        "namesrv:0",
        "namesrv:65536",
        "namesrv:-1",
        "namesrv:+1",
        "namesrv:\u0661",
        "::1:9876",
        "[::1]",
        "[127.0.0.1]:9876",
        "[::1:9876",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    """The message shows it, and what it should have been."""
    with pytest.raises(ValueError, match=r"^address '.*' is not host:port or \[ipv6\]:port$"):
        parse_address(address)
