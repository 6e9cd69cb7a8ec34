"""Ends of a connection: garbage closes it after the responses to earlier requests, and watches end with it."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from namesrv.net.protocol import ServerConnection
from tests.support.fake_clock import settle, until
from tests.support.raw_peer import RawPeer
from tests.support.serving import ECHO, Gate, serving
from tests.support.spelling import JSON, ONEWAY, binary_frame, cut, json_frame, native_frame

LIMITS: dict[str, Any] = {"max_frame_bytes": 64 * 1024, "max_header_bytes": 1024}
PULL = 105

# Bytes, reason and message of the refusal; tests/remoting has every malformed frame and header.
GARBAGE = {
    "length 3": (b"\0\0\0\3\0\0\0\0", "frame_too_short", "frame length 3, minimum 4"),
    "header too large": (b"\0\0\x08\0\0\0\x04\x01", "header_too_large", "header of 1025 bytes, limit 1024"),
    "http": (
        b"GET / HTTP/1.1\r\n\r\n",
        "frame_too_large",
        "HTTP request received: this port is not for HTTP, --http-listen has one",
    ),
    "malformed json header": (
        cut(0, b"{,}"),
        "header",
        "header cannot be read: JSON is malformed: object keys must be strings near ',}'",
    ),
}


def pulls(connection: ServerConnection, frame: bytes) -> bytes | None:
    """A fast path that answers JSON route requests."""
    return cut(JSON, b'{"code":0,"opaque":0}') if b'"code":105' in frame else None


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [GARBAGE[name][:2] for name in ("length 3", "malformed json header")],
    ids=["length", "header"],
)
@pytest.mark.parametrize(
    "good",
    [
        [json_frame(PULL, 0)],
        [json_frame(ECHO, 0)],
        [json_frame(PULL, 0), json_frame(ECHO, 0), native_frame(ECHO, 0)],
        [json_frame(ECHO, 0), *[json_frame(PULL, 0)] * 3],
        [binary_frame(ECHO, 0)] * 40,
    ],
    ids=["fast", "dispatched", "fast-dispatched", "dispatched-fast", "many"],
)
@pytest.mark.parametrize("cut_off", [0, 3, 12], ids=["one-write", "garbage-later", "good-in-two"])
async def test_good_frames_before_garbage_are_answered(
    garbage: bytes, reason: str, good: list[bytes], cut_off: int
) -> None:
    """Frames before the garbage are answered on either path; then the connection is closed."""
    async with serving(fast_path=pulls, **LIMITS) as served:
        peer = await served.connect()
        requests = b"".join(good)
        data = requests + garbage
        where = {0: len(data), 3: len(requests) + 3, 12: 12}[cut_off]
        peer.send(data[:where])
        await settle()
        peer.send(data[where:])

        assert [0] * len(good) == [(await peer.receive()).opaque for _ in good]
        assert await peer.at_end()
        assert served.observer.reasons == [reason]


async def test_refused_frames_are_freed_at_once() -> None:
    """A refused frame is freed by its reference count, without the garbage collector."""
    garbage = cut(JSON, b"{'a':" + bytes(60_000))
    async with serving() as served:
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(20):
                peer = await served.connect()
                peer.send(garbage)
                assert await peer.reader.read() == b""
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            gc.enable()

    assert held < 10 * len(garbage)


async def test_requests_after_garbage_are_dropped() -> None:
    """Bytes after garbage are dropped, also while earlier requests are being answered.

    They are read from the socket, because unread bytes would reset the connection and lose the response.
    """
    gate = Gate()
    async with serving({10: gate}, fast_path=pulls) as served:
        peer = await served.connect()
        peer.send(json_frame(10, 1) + bytes(8) + json_frame(10, 2))
        await until(lambda: served.observer.refused)
        peer.send(json_frame(10, 3) * 100 + json_frame(PULL, 4))
        await settle()
        gate.open()

        assert (await peer.receive()).opaque == 1
        assert await peer.reader.read() == b""
        await until(lambda: served.observer.closed)
        assert (gate.came, served.observer.closed, len(served.observer.refused)) == (
            [1],
            [(1, "closed")],
            1,
        )


async def test_requests_of_a_closed_connection_are_handled() -> None:
    """Requests that arrived before the peer closed its connection are handled, such as an unregistration."""
    gate = Gate()
    async with serving({10: gate}) as served:
        peer = await served.connect()
        peer.send(json_frame(10, 1) + json_frame(10, 2, flag=ONEWAY))
        await until(lambda: gate.came)
        peer.close()
        await until(lambda: served.observer.closed)

        gate.open()
        await until(lambda: len(gate.done) == 2)
        assert (gate.done, gate.cancelled) == ([1, 2], [])


ENDS: dict[str, tuple[Callable[[RawPeer, ServerConnection], None], str]] = {
    "peer closes": (lambda peer, _: peer.close(), "closed"),
    "peer resets": (lambda peer, _: peer.reset(), "reset"),
    "server closes": (lambda _, connection: connection.close(), "closed"),
    "server aborts": (lambda _, connection: connection.abort(), "closed"),
    "garbage": (lambda peer, _: peer.send(bytes(8)), "closed"),
}


@pytest.mark.parametrize(("end", "reason"), list(ENDS.values()), ids=list(ENDS))
async def test_watches_end_with_their_connection(end: Callable[[RawPeer, ServerConnection], None], reason: str) -> None:
    """Watches of a closed connection are cancelled, those of others go on, and the end is reported once."""
    gate = Gate()
    async with serving({10: gate}, concurrent=frozenset({10})) as served:
        peer, other = await served.connect(), await served.connect()
        peer.send(json_frame(10, 1) + json_frame(10, 2))
        other.send(json_frame(10, 3))
        await until(lambda: len(gate.came) == 3)
        connection = served.connection_of(peer)
        end(peer, connection)
        await until(lambda: len(gate.cancelled) == 2)
        await until(lambda: served.observer.closed and not connection.in_flight)
        connection.close()
        connection.abort()
        connection.write(b"too late")
        await settle()

        assert sorted(gate.cancelled, key=str) == [1, 2]
        assert served.connection_of(other).in_flight == 1
        assert (served.observer.opened, served.observer.closed) == ([1, 2], [(1, reason)])
        assert list(served.server.connections) == [2]
