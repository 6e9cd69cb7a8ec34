"""Ways in which a peer's data reaches a server; every frame-level test over sockets sends its own in each of them."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.fake_clock import settle
from tests.support.raw_peer import RawPeer
from tests.support.serving import ECHO
from tests.support.spelling import json_frame

Feed = Callable[[RawPeer, bytes], Awaitable[None]]


async def whole(peer: RawPeer, data: bytes) -> None:
    """In one write."""
    peer.send(data)


async def byte_by_byte(peer: RawPeer, data: bytes) -> None:
    """One byte per read."""
    await peer.send_slowly(data)


async def with_a_tail(peer: RawPeer, data: bytes) -> None:
    """In one write, the beginning of a further frame behind it."""
    peer.send(data + json_frame(ECHO, opaque=-1)[:9])


async def in_halves(peer: RawPeer, data: bytes) -> None:
    """In two reads that end within a frame."""
    peer.send(data[: len(data) // 2 + 1])
    await settle()
    peer.send(data[len(data) // 2 + 1 :])


every_feeding = pytest.mark.parametrize("feed", [whole, byte_by_byte, with_a_tail, in_halves])
