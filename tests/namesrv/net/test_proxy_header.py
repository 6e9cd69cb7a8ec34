"""The PROXY header: it names the peer's address, and a malformed one is refused."""

import re

import pytest

from namesrv.net.proxy_header import ProxyHeader, read_proxy_header
from namesrv_remoting.errors import RemoteProtocolError

SHAPE = "is not PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT, or PROXY UNKNOWN"
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V2_TCP4 = SIGNATURE + b"\x21\x11\x00\x0c" + b"\x01\x02\x03\x04" + b"\x05\x06\x07\x08" + b"\x04\x57\x08\xae"
V2_TCP6 = SIGNATURE + b"\x21\x21\x00\x24" + bytes(15) + b"\x01" + bytes(15) + b"\x02" + b"\x04\x57\x08\xae"


def read(stream: bytes) -> ProxyHeader | None:
    """The header of a stream, the same for the whole stream, byte by byte, and with a frame after it."""
    whole = read_proxy_header(stream)
    assert whole is not None
    needed = max(whole.size, 1)
    by_byte = [read_proxy_header(stream[:size]) for size in range(needed + 1)]
    assert by_byte[-1] == whole
    assert set(by_byte[:needed]) == {None}
    assert read_proxy_header(stream + b"\x00\x00\x00\x06\x00\x00\x00\x02{}") == whole
    return whole


@pytest.mark.parametrize(
    ("header", "source"),
    [
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1111 2222\r\n", ("1.2.3.4", 1111)),
        (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", ("255.255.255.255", 65535)),
        (b"PROXY TCP6 2001:db8::0:1 ::1 1 2\r\n", ("2001:db8::1", 1)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
        (b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n", None),
        (V2_TCP4, ("1.2.3.4", 1111)),
        (V2_TCP6, ("::1", 1111)),
        (SIGNATURE + b"\x20\x00\x00\x00", None),
        (SIGNATURE + b"\x20\x11\x00\x0c" + bytes(12), None),
        (SIGNATURE + b"\x21\x00\x00\x05abcde", None),
        (SIGNATURE + b"\x21\x31\x00\xd8" + bytes(216), None),
        (V2_TCP4[:14] + b"\x00\x10" + V2_TCP4[16:] + b"\x04\x00\x01x", ("1.2.3.4", 1111)),
    ],
    ids=["v1 tcp4", "v1 largest tcp4", "v1 tcp6", "v1 unknown", "v1 unknown with addresses", "v1 longest",
         "v2 tcp4", "v2 tcp6", "v2 local", "v2 local with addresses", "v2 unspecified", "v2 unix", "v2 with a tlv"],
)  # fmt: skip
def test_header_is_read(header: bytes, source: tuple[str, int] | None) -> None:
    """The size covers the whole header; the source is None for a local connection or one without an IP address."""
    assert ProxyHeader(len(header), source) == read(header)


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1111\r\n", "'PROXY TCP4 1.2.3.4 5.6.7.8 1111' " + SHAPE),
        (b"PROXY TCP5 1.2.3.4 5.6.7.8 1111 2222\r\n", "'PROXY TCP5 1.2.3.4 5.6.7.8 1111 2222' " + SHAPE),
        (b"PROXY  TCP4 1.2.3.4 5.6.7.8 1111 2222\r\n", "'PROXY  TCP4 1.2.3.4 5.6.7.8 1111 2222' " + SHAPE),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 -111 2222\r\n", "'PROXY TCP4 1.2.3.4 5.6.7.8 -111 2222' " + SHAPE),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 111111 2222\r\n", "'PROXY TCP4 1.2.3.4 5.6.7.8 111111 2222' " + SHAPE),
        (b"PROXY \r\n", "'PROXY ' " + SHAPE),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 65536 2222\r\n", "port 65536, at most 65535"),
        (b"PROXY TCP4 1.2.3.400 5.6.7.8 1111 2222\r\n", r"'1.2.3.400' is not an address of TCP4"),
        (b"PROXY TCP4 \xff\xfe 5.6.7.8 1111 2222\r\n", r"'\xff\xfe' is not an address of TCP4"),
        (b"PROXY TCP4 localhost 5.6.7.8 1111 2222\r\n", r"'localhost' is not an address of TCP4"),
        (b"PROXY TCP4 ::1 ::2 1111 2222\r\n", r"'::1' is not an address of TCP4"),
        (b"PROXY TCP6 1.2.3.4 5.6.7.8 1111 2222\r\n", r"'1.2.3.4' is not an address of TCP6"),
        # A zone may contain control characters, which would reach the log.
        (b"PROXY TCP6 fe80::1%\x1b[31m ::1 1111 2222\r\n", r"'fe80::1%\x1b[31m' is not an address of TCP6"),
        (b"PROXY UNKNOWN " + bytes(92) + b"\r\n", "no end of line within 107 bytes"),
        (SIGNATURE + b"\x11\x11\x00\x0c", "version and command 0x11"),
        (SIGNATURE + b"\x22\x11\x00\x0c", "version and command 0x22"),
        (SIGNATURE + b"\x21\x11\x08\x01", "version 2 header of 2049 bytes"),
        (SIGNATURE + b"\x21\x11\x00\x0b" + bytes(11), "version 2 header of 11 bytes is too short for its addresses"),
        (SIGNATURE + b"\x21\x21\x00\x23" + bytes(35), "version 2 header of 35 bytes is too short for its addresses"),
    ],
)
def test_malformed_header_is_refused(header: bytes, error: str) -> None:
    """A malformed header raises, with or without more bytes after it."""
    for stream in (header, header + b"\x00\x00\x00\x06\x00\x00\x00\x02{}"):
        with pytest.raises(RemoteProtocolError, match=f"^PROXY header: {re.escape(error)}$") as caught:
            read_proxy_header(stream)
        assert caught.value.reason == "proxy_header"
