"""The owner of connections: it admits them up to the limits, counts them, and closes them when the server stops."""

import asyncio
import contextlib
import gc
import logging
import socket
from typing import Any

import pytest

from namesrv.net.dispatcher import Reply
from namesrv.net.request import Request
from namesrv_remoting.aio.socket_options import set_tcp_options
from tests.support.fake_clock import settle, until
from tests.support.raw_peer import RawPeer
from tests.support.serving import ECHO, Gate, Serving, serving
from tests.support.spelling import json_frame

REQUEST = json_frame(ECHO, 7)


async def is_served(peer: RawPeer) -> bool:
    """Return true if the peer's request is answered."""
    return (await peer.ask(REQUEST)).opaque == 7


async def test_options_of_accepted_sockets() -> None:
    """Accepted sockets have no delay, keep-alive, and a bound on the wait for a peer that vanished."""
    async with serving(tcp_user_timeout_seconds=12.5) as served:
        accepted = served.connection_of(await served.connect()).socket

        assert accepted is not None
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_USER_TIMEOUT", 12_500)):
            if hasattr(socket, name):
                assert accepted.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="no such option on this platform")
def test_kernel_keeps_little_for_a_peer_that_does_not_read() -> None:
    """Most of a large response stays in the process, where it counts as memory of the peer."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            set_tcp_options(accepted, user_timeout_seconds=0)
            accepted.setblocking(False)  # noqa: FBT003 - positional only
            kept = 0
            with contextlib.suppress(BlockingIOError):
                while kept < 1024 * 1024:
                    kept += accepted.send(bytes(1024))
    assert kept < 64 * 1024


def test_unsupported_socket_options_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout of 0 s sets no option, and neither do platforms or Unix sockets that lack one."""
    left, right = socket.socketpair()
    with left, right, socket.socket() as tcp:
        set_tcp_options(left, user_timeout_seconds=1.5)
        assert not left.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        set_tcp_options(tcp, user_timeout_seconds=0)
        monkeypatch.delattr(socket, "TCP_USER_TIMEOUT", raising=False)
        monkeypatch.delattr(socket, "TCP_KEEPIDLE", raising=False)
        set_tcp_options(tcp, user_timeout_seconds=1.5)

        assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert option is None or tcp.getsockopt(socket.IPPROTO_TCP, option) == 0


@pytest.mark.parametrize(
    ("limit", "reason", "what"),
    [("max_connections", "connections", ""), ("max_connections_per_ip", "connections_per_ip", " from one address")],
)
async def test_connection_beyond_the_limit_is_closed_at_once(limit: str, reason: str, what: str) -> None:
    """A connection beyond the limit is closed, open ones and other addresses go on, and a closed one makes room.

    The refused connection has no `closed` event, and its number is not used again, because numbers fence removals.
    """
    limits: dict[str, Any] = {limit: 2}
    async with serving(**limits) as served:
        first, second = await served.connect(), await served.connect()
        for number in (3, 4):
            assert await (await served.connect()).at_end()
            message = f"too many connections{what}, limit 2"
            assert served.observer.refused[-1] == (number, reason, message)
        assert (served.observer.reasons, served.observer.closed) == ([reason] * 2, [])
        assert await is_served(second)
        if what:
            reader, writer = await asyncio.open_connection(*served.addresses[0], local_addr=("127.0.0.2", 0))
            assert await is_served(RawPeer(reader, writer))
            writer.close()

        first.close()
        await until(lambda: 1 in dict(served.observer.closed))
        assert await is_served(await served.connect())
        assert served.observer.opened == [1, 2, *([5] if what else []), 6 if what else 5]


async def test_closed_connections_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand connections, closed in any way, leave no task, count or object, and each reports its end once."""
    async with serving(max_connections_per_ip=1000) as served:
        await served.connect()
        await settle()
        tasks = len(asyncio.all_tasks())
        for batch in range(20):
            await come_and_go(served.addresses[0], batch)
            await until(lambda: len(served.server.connections) == 1)
        await settle()
        gc.collect()

        assert len(asyncio.all_tasks()) == tasks
        assert served.server.slots._per_network == {"127.0.0.1": 1}
        assert len(served.connections_in_memory()) == 1
        assert list(range(1, 1002)) == served.observer.opened
        assert list(range(2, 1002)) == sorted(number for number, _ in served.observer.closed)
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_closed_connection_is_freed_without_a_garbage_collection() -> None:
    """A closed connection is in no reference cycle: collections of old objects are rare, and a thousand take 2 MB."""
    gc.collect()
    gc.disable()
    try:
        async with serving(proxy_protocol=True) as served:
            answered, begun, silent, refused = [await served.connect() for _ in range(4)]
            assert await is_served(answered)
            begun.send(REQUEST[:9])
            # the error of an invalid address has a cause, which refers to the frame that raised it
            refused.send(b"PROXY TCP4 999.0.2.1 192.0.2.2 56324 9876\r\n")
            assert await refused.at_end()
            for peer in (answered, begun, silent, refused):
                peer.close()

            await until(lambda: not served.connections_in_memory())
    finally:
        gc.enable()


async def come_and_go(address: tuple[str, int], batch: int) -> None:
    """Open fifty connections, silent ones, with a request answered or not, and close or reset them."""
    peers = await asyncio.gather(*(RawPeer.connect(address) for _ in range(50)))
    for number, peer in enumerate(peers):
        if number % 3 == 1:
            assert await is_served(peer)
        elif number % 3 == 2:
            peer.send(REQUEST * 3 + REQUEST[:9])
        if (number + batch) % 2:
            peer.close()
        else:
            peer.reset()


async def open_after_each_step(served: Serving, count: int, over_seconds: float, step: float) -> list[int]:
    """The number of open connections after each step of closing them."""
    for _ in range(count):
        await served.connect()
    connections = list(served.server.connections.values())
    # a closed connection is skipped
    connections[0].close()
    closing = asyncio.create_task(served.server.close_connections(connections, over_seconds))
    left = []
    while not closing.done():
        await settle()
        left.append(len(served.server.connections))
        await served.clock.advance(step)
    await until(lambda: not served.server.connections)
    return left


async def test_closing_is_spread_over_the_time() -> None:
    """One connection is closed at once, then one every half second; over 0 s all at once, and many in groups.

    A sleep per connection would be coarser than the spread, so pauses below 10 ms are added up.
    """
    async with serving() as served:
        assert await open_after_each_step(served, 11, 5.0, 0.5) == [9, 8, 7, 6, 5, 4, 3, 2, 1]
        assert list(range(1, 12)) == [number for number, _ in served.observer.closed]
        assert len(await open_after_each_step(served, 3, 0.0, 0.0)) == 1
        _, half, *_ = await open_after_each_step(served, 61, 0.3, 0.15)
        assert 26 <= half <= 34


async def large_response(request: Request) -> Reply:
    """A handler whose response does not fit into a socket's buffer."""
    return Reply(bytes(16 * 1024 * 1024 - 4096))


@pytest.mark.parametrize("waits_for", ["handler", "reader"])
async def test_drain_waits_for_unsent_responses(waits_for: str) -> None:
    """Draining ends when the last response is sent, or after its time."""
    gate = Gate()
    async with serving({10: gate if waits_for == "handler" else large_response}) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        assert await served.server.drain(2.0)
        peer.send(json_frame(10, 1))
        await until(lambda: gate.came or connection.unsent_bytes)
        late = asyncio.create_task(served.server.drain(0.5))
        draining = asyncio.create_task(served.server.drain(2.0))
        await served.clock.advance(1.0)
        assert (late.done(), draining.done()) == (True, False)
        assert not await late

        gate.open()
        await peer.receive()
        await served.clock.advance(0.1)
        assert await draining


@pytest.mark.parametrize(("host", "network"), [("127.0.0.1", "127.0.0.1"), ("::1", "::/64")])
async def test_limits_of_an_address_are_those_of_its_network(host: str, network: str) -> None:
    """Connections, memory and read shares are counted by network, since an IPv6 host has 2^64 addresses."""
    async with serving(hosts=(host,)) as served:
        peer = await served.connect()
        connection = served.connection_of(peer)

        assert connection.peer.network == connection.read_share.network == network
        assert served.server.slots._per_network == {network: 1}
        assert served.server.budget._used_by.keys() == {network}
