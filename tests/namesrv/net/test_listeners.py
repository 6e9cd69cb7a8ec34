"""The listening sockets of a server."""

import asyncio
import contextlib
import socket

import pytest

from namesrv.net.dispatcher import Dispatcher
from namesrv.net.listeners import Listeners
from namesrv.net.tls.detector import ServerTls
from tests.support.fake_clock import FakeClock, settle, until
from tests.support.ipv6 import can_use_ipv6
from tests.support.raw_peer import RawPeer
from tests.support.serving import ECHO, RecordingObserver, server_of, serving
from tests.support.spelling import json_frame

REQUEST = json_frame(ECHO, 7)


@pytest.mark.skipif(not can_use_ipv6(), reason="no IPv6 on this machine")
async def test_several_hosts_share_one_port() -> None:
    """Port 0 is chosen once for all hosts, and the returned addresses are reachable; IPv6 ones have brackets."""
    async with serving(hosts=["127.0.0.1", "::1"]) as served:
        (first, port), (second, other_port) = served.addresses
        assert (first, second, other_port) == ("127.0.0.1", "::1", port)
        for address, shown in zip(served.addresses, ("127.0.0.1:", "[::1]:"), strict=True):
            peer = await RawPeer.connect(address)
            assert (await peer.ask(REQUEST)).opaque == 7
            [connection] = served.server.connections.values()
            assert connection.peer.address == peer.address
            assert connection.peer.address.startswith(shown)
            assert address[0] == connection.peer.ip
            peer.close()
            await until(lambda: not served.server.connections)


async def test_server_without_hosts_listens_nowhere() -> None:
    """An empty list of hosts ends at once, with no addresses."""
    async with serving(hosts=[]) as served:
        assert served.addresses == []


async def test_address_in_use_is_an_error() -> None:
    """Listening on a used port raises, and leaves no socket listening."""
    with socket.socket() as taken, socket.socket() as other:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = server_of(Dispatcher({}), RecordingObserver(), FakeClock(), asyncio.TaskGroup())
        listeners = Listeners(server, ServerTls())
        with pytest.raises(OSError, match="in use"):
            await listeners.open(["127.0.0.2", "127.0.0.1"], port)
        # uvloop closes the sockets in its next iteration
        await asyncio.sleep(0)
        # A closed connection of another test may still use this port; a listening socket would still prevent the bind.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.2", port))
        with pytest.raises(OSError, match="in use"):
            await listeners.open(["127.0.0.3", "127.0.0.3"], 0)


async def test_several_connections_are_accepted_in_one_iteration() -> None:
    """A newcomer does not wait for one iteration of the loop for each connection before it."""
    async with serving() as served:
        with contextlib.ExitStack() as stack:
            for _ in range(24):
                peer = stack.enter_context(socket.socket())
                peer.setblocking(False)  # noqa: FBT003 - its only parameter
                peer.connect_ex(served.addresses[0])
            iterations = 0
            while len(served.observer.opened) < 24 and iterations < 100:
                await asyncio.sleep(0)
                iterations += 1

            # an accepted connection is opened in the next iteration
            assert iterations <= 24 // 8 + 2


async def test_closed_listeners_accept_no_connection() -> None:
    """After `Listeners.close` open connections are served, until `abort_all` closes them without sending the rest."""
    async with serving() as served:
        peers = [await served.connect() for _ in range(3)]
        served.listeners.close()
        await settle()

        with pytest.raises(OSError, match=r"refused|failed"):
            await RawPeer.connect(served.addresses[0])
        assert (await peers[0].ask(REQUEST)).opaque == 7
        served.server.abort_all()
        assert [await peer.at_end() for peer in peers] == [True] * 3
        await until(lambda: not served.server.connections)
        assert sorted(number for number, _ in served.observer.closed) == [1, 2, 3]
