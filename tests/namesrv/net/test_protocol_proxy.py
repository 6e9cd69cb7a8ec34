"""The peer's address behind a proxy."""

import struct
from typing import Any

import pytest

from tests.support.fake_clock import settle
from tests.support.serving import ECHO, Feed, every_feeding, serving
from tests.support.spelling import json_frame, native_frame

V2 = b"\r\n\r\n\x00\r\nQUIT\n"
ON: dict[str, Any] = {"proxy_protocol": True}
V6_ADDRESSES = bytes.fromhex("20010db8000000000000000000000001") * 2 + struct.pack(">HH", 56324, 9876)

# test_proxy_header has every form of a header
HEADERS = {
    "v1": (b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 9876\r\n", "192.0.2.1:56324"),
    "v2": (V2 + b"\x21\x21\x00\x24" + V6_ADDRESSES, "[2001:db8::1]:56324"),
    "v2-local": (V2 + b"\x20\x00\x00\x00", None),
    "none": (b"", None),
}


@every_feeding
@pytest.mark.parametrize(("header", "proxied"), list(HEADERS.values()), ids=list(HEADERS))
async def test_header_names_the_peer(header: bytes, proxied: str | None, feed: Feed) -> None:
    """Frames after a PROXY header are answered, and the header's address is kept beside the socket's own."""
    async with serving(**ON) as served:
        peer = await served.connect()
        await feed(peer, header + json_frame(ECHO, 7) + native_frame(ECHO, 8))

        assert [(await peer.receive()).opaque for _ in range(2)] == [7, 8]
        assert served.connection_of(peer).peer.proxied == proxied


@pytest.mark.parametrize(
    ("size", "seconds", "reason"), [(None, 121, "silent"), (9, 11, "slow_frame")], ids=["whole", "begun"]
)
async def test_header_does_not_count_as_a_frame(size: int | None, seconds: float, reason: str) -> None:
    """A peer that sends only a header is closed as silent; one that sends part of a header, as slow."""
    async with serving(**ON) as served:
        peer = await served.connect()
        peer.send(HEADERS["v1"][0][:size])
        await settle()
        await served.clock.advance(seconds - 1)
        assert served.observer.refused == []
        await served.clock.advance(1)

        assert await peer.at_end()
        assert served.observer.reasons == [reason]


@pytest.mark.parametrize("name", ["v1", "v2"])
@pytest.mark.parametrize("is_on", [True, False])
async def test_unexpected_header_is_garbage(name: str, is_on: bool) -> None:
    """After a frame, or without `proxy_protocol`, a header is read as the length of a frame that is too large."""
    async with serving(proxy_protocol=is_on) as served:
        peer = await served.connect()
        header = HEADERS[name][0]
        peer.send((header if is_on else b"") + json_frame(ECHO, 7) + header)

        assert (await peer.receive()).opaque == 7
        assert await peer.at_end()
        assert served.observer.reasons == ["frame_too_large"]
