"""PROXY protocol (versions 1 and 2): a proxy sends the address of the real peer before the first frame."""

import ipaddress
import re
from struct import Struct
from typing import Final, NamedTuple

from namesrv_remoting.addresses import MAX_PORT
from namesrv_remoting.errors import RemoteProtocolError

V1_PREFIX: Final = b"PROXY "
V2_PREFIX: Final = b"\r\n\r\n\x00\r\nQUIT\n"
# the specification's limit for a version 1 line, with its CRLF
_V1_MAX_BYTES: Final = 107
_V1_LINE: Final = re.compile(rb"PROXY (?:(TCP4|TCP6) (\S+) (\S+) (\d{1,5}) (\d{1,5})|UNKNOWN[^\r]*)\r\n")
# name of the address family in a version 1 line -> class of its addresses
_V1_ADDRESSES: Final = {b"TCP4": ipaddress.IPv4Address, b"TCP6": ipaddress.IPv6Address}
# prefix, version with command, family with transport, number of bytes that follow
_V2_HEAD: Final = Struct(">12sBBH")
# Addresses and a few hundred bytes of TLVs fit; no known proxy sends more.
_V2_MAX_BYTES: Final = 2048
# TCP over IPv4 and TCP over IPv6 -> bytes of an address
_V2_ADDRESS_BYTES: Final = {0x11: 4, 0x21: 16}


class ProxyHeader(NamedTuple):
    """The size of a PROXY header in bytes, and host and port of the source.

    The source is None if the proxy connects for itself, or if the header has no TCP addresses over IPv4 or IPv6.
    """

    size: int
    source: tuple[str, int] | None


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """The PROXY header at the beginning of a connection's bytes; None while incomplete, size 0 for other bytes.

    Raises RemoteProtocolError for a malformed header.
    """
    if data.startswith(V1_PREFIX):
        return _read_v1(data)
    if data.startswith(V2_PREFIX):
        return _read_v2(data)
    if V1_PREFIX.startswith(data) or V2_PREFIX.startswith(data):
        return None
    return ProxyHeader(0, None)


def _read_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _V1_MAX_BYTES)
    if end < 0:
        if len(data) < _V1_MAX_BYTES:
            return None
        raise _broken("no end of line within 107 bytes")
    match = _V1_LINE.fullmatch(data, 0, end + 2)
    if match is None:
        line = data[:end].decode("latin-1")
        raise _broken(f"{line!a} is not PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT, or PROXY UNKNOWN")
    if match[1] is None:
        return ProxyHeader(end + 2, None)
    port = int(match[4])
    if port > MAX_PORT:
        raise _broken(f"port {port}, at most {MAX_PORT}")
    try:
        address = _V1_ADDRESSES[match[1]](match[2].decode())
    except ValueError as error:
        raise _wrong_address(match) from error
    if getattr(address, "scope_id", None) is not None:
        # Any characters may follow the % of an IPv6 zone, and no proxy sends one.
        raise _wrong_address(match)
    return ProxyHeader(end + 2, (str(address), port))


def _read_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < _V2_HEAD.size:
        return None
    _, version_command, family, length = _V2_HEAD.unpack_from(data)
    if version_command not in (0x20, 0x21):
        raise _broken(f"version and command {version_command:#x}")
    if length > _V2_MAX_BYTES:
        raise _broken(f"version 2 header of {length} bytes")
    size = _V2_HEAD.size + length
    if len(data) < size:
        return None
    width = _V2_ADDRESS_BYTES.get(family)
    if version_command == 0x20 or width is None:
        # The command LOCAL marks a health check by the proxy itself; other address families are ignored.
        return ProxyHeader(size, None)
    if length < 2 * width + 4:
        raise _broken(f"version 2 header of {length} bytes is too short for its addresses")
    at = _V2_HEAD.size
    host = str(ipaddress.ip_address(data[at : at + width]))
    port = int.from_bytes(data[at + 2 * width : at + 2 * width + 2])
    return ProxyHeader(size, (host, port))


def _wrong_address(match: re.Match[bytes]) -> RemoteProtocolError:
    return _broken(f"{match[2].decode('latin-1')!a} is not an address of {match[1].decode()}")


def _broken(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"PROXY header: {what}", reason="proxy_header")
