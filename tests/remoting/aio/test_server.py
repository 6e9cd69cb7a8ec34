"""Everybody who may connect is let in, counted while connected, and forgotten when gone."""

import asyncio
import gc
import logging
import socket

import pytest

from namesrv_remoting.aio.connection import ServerConnection
from namesrv_remoting.aio.dispatch import Dispatcher
from namesrv_remoting.aio.limits import ServerLimits
from namesrv_remoting.aio.server import RemotingServer
from tests.support.fake_clock import FakeClock, settle
from tests.support.raw_peer import RawPeer, until
from tests.support.serving import ECHO, Heard, serving
from tests.support.spelling import json_frame

QUESTION = json_frame(ECHO, 7)


def has_ipv6() -> bool:
    """Whether this machine has an IPv6 loopback address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")


# -- listening --------------------------------------------------------------------------------------------------------


async def test_port_0_takes_a_free_port() -> None:
    """The addresses that come back are where it can be reached."""
    async with serving() as served:
        [(host, port)] = served.addresses
        assert "127.0.0.1" == host
        assert port > 0
        assert 7 == (await (await served.connect()).ask(QUESTION)).opaque


@ipv6
async def test_ipv6_peers_are_served() -> None:
    """Their addresses are shown in brackets."""
    async with serving(hosts=["::1"]) as served:
        peer = await served.connect()
        assert 7 == (await peer.ask(QUESTION)).opaque
        [connection] = served.server.connections.values()
        assert connection.peer == peer.address
        assert connection.peer.startswith("[::1]:")


@ipv6
async def test_several_hosts_share_one_port() -> None:
    """Port 0 is drawn once."""
    async with serving(hosts=["127.0.0.1", "::1"]) as served:
        (first, port), (second, other_port) = served.addresses
        assert ("127.0.0.1", "::1", port) == (first, second, other_port)
        for address in served.addresses:
            peer = await RawPeer.connect(address)
            assert 7 == (await peer.ask(QUESTION)).opaque
            peer.close()


async def test_address_in_use_is_an_error() -> None:
    """Whoever starts the server has to know."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = RemotingServer(Dispatcher({}), Heard(), clock=FakeClock(), tasks=asyncio.TaskGroup())
        with pytest.raises(OSError, match="in use"):
            await server.listen(["127.0.0.1"], taken.getsockname()[1])


async def test_accepted_sockets_are_set_up() -> None:
    """No delay, keep-alive, and a bound on how long the kernel waits for a peer that vanished: on the real socket."""
    async with serving(limits=ServerLimits(tcp_user_timeout_seconds=12.5)) as served:
        accepted = served.connection_of(await served.connect()).socket

        assert accepted is not None
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert 12_500 == accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)


# -- who is let in ----------------------------------------------------------------------------------------------------


async def test_connection_beyond_the_limit_is_closed_at_once() -> None:
    """Those who are in are not disturbed; when one of them leaves, the next one is let in."""
    async with serving(limits=ServerLimits(max_connections=2)) as served:
        first, second = await served.connect(), await served.connect()
        third = await served.connect()

        assert await third.at_end()
        assert [(3, "connections", "too many connections, limit 2")] == served.heard.refused
        for peer in (first, second):
            assert 7 == (await peer.ask(QUESTION)).opaque

        first.close()
        await until(lambda: served.heard.closed)
        assert 7 == (await (await served.connect()).ask(QUESTION)).opaque


async def test_connections_of_one_address_are_limited() -> None:
    """Other addresses are let in all the same; the count goes down when one of them leaves."""
    async with serving(hosts=["127.0.0.1"], limits=ServerLimits(max_connections_per_ip=2)) as served:
        first, _ = await served.connect(), await served.connect()
        refused = await served.connect()
        assert await refused.at_end()
        assert [(3, "connections_per_ip", "too many connections from one address, limit 2")] == served.heard.refused

        reader, writer = await asyncio.open_connection(*served.addresses[0], local_addr=("127.0.0.2", 0))
        assert 7 == (await RawPeer(reader, writer).ask(QUESTION)).opaque
        writer.close()

        first.close()
        await until(lambda: 1 in dict(served.heard.closed))
        assert 7 == (await (await served.connect()).ask(QUESTION)).opaque


async def test_refusals_are_counted_by_reason() -> None:
    """For metrics."""
    async with serving(limits=ServerLimits(max_connections=1)) as served:
        peer = await served.connect()
        for _ in range(3):
            assert await (await served.connect()).at_end()
        peer.send(bytes(8))
        assert await peer.at_end()

        assert {"connections": 3, "frame_too_short": 1} == served.server.refusals


async def test_connection_ids_never_come_back() -> None:
    """They only grow, also over connections that were refused: removals are fenced with them."""
    async with serving(limits=ServerLimits(max_connections=1)) as served:
        for _ in range(5):
            peer = await served.connect()
            assert await (await served.connect()).at_end()
            peer.close()
            await until(lambda: not served.server.connections)

        assert [1, 3, 5, 7, 9] == served.heard.opened
        assert [2, 4, 6, 8, 10] == [number for number, _, _ in served.heard.refused]


# -- who is told ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "reason"),
    [("peer closes", "closed"), ("peer resets", "reset"), ("server closes", "closed"), ("server aborts", "closed")],
)
async def test_listener_is_told_once_of_a_beginning_and_an_end(ends: str, reason: str) -> None:
    """However it ends, and whatever is called after that."""
    async with serving() as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        {
            "peer closes": peer.close,
            "peer resets": peer.reset,
            "server closes": connection.close,
            "server aborts": connection.abort,
        }[ends]()
        await until(lambda: served.heard.closed)
        connection.close()
        connection.abort()
        connection.write(b"too late")
        await settle()

        assert [1] == served.heard.opened
        assert [(1, reason)] == served.heard.closed
        assert {} == served.server.connections


async def test_listener_is_not_told_of_the_end_of_those_who_were_not_let_in() -> None:
    """For them there was no beginning."""
    async with serving(limits=ServerLimits(max_connections=1)) as served:
        await served.connect()
        refused = await served.connect()
        assert await refused.at_end()
        await settle()

        assert [1] == served.heard.opened
        assert [2] == [number for number, _, _ in served.heard.refused]
        assert [] == served.heard.closed


async def test_nothing_is_left_of_a_thousand_connections(caplog: pytest.LogCaptureFixture) -> None:
    """No connection, no task, no count per address, no object, however they end; and each end was told once."""
    async with serving(limits=ServerLimits(max_connections_per_ip=1000)) as served:
        await served.connect()
        await settle()
        tasks = len(asyncio.all_tasks())
        for batch in range(20):
            await come_and_go(served.addresses[0], batch)
            await until(lambda: len(served.server.connections) == 1)
        await settle()
        gc.collect()

        assert tasks == len(asyncio.all_tasks())
        assert {"127.0.0.1": 1} == served.server._sockets_per_ip
        # other tests' servers may leave theirs to a later collection
        ours = [thing for thing in gc.get_objects() if isinstance(thing, ServerConnection)]
        assert 1 == sum(connection._owner is served.server for connection in ours)
        assert list(range(1, 1002)) == served.heard.opened
        assert list(range(2, 1002)) == sorted(number for number, _ in served.heard.closed)
        assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]


async def come_and_go(address: tuple[str, int], batch: int) -> None:
    """Fifty peers: silent ones, some that ask and read, some that ask and do not wait, closed or reset."""
    peers = await asyncio.gather(*(RawPeer.connect(address) for _ in range(50)))
    for number, peer in enumerate(peers):
        if number % 3 == 1:
            assert 7 == (await peer.ask(QUESTION)).opaque
        elif number % 3 == 2:
            peer.send(QUESTION * 3 + QUESTION[:9])
        if (number + batch) % 2:
            peer.close()
        else:
            peer.reset()
