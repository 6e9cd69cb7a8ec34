"""The tests' proxy cuts, stalls, heals and switches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.fake_clock import settle
from tests.support.raw_peer import until
from tests.support.scripted_server import Peer, ScriptedServer
from tests.support.tcp_proxy import TcpProxy


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[TcpProxy, ScriptedServer]]:
    """A proxy and its target."""
    async with ScriptedServer() as target, TcpProxy(("127.0.0.1", target.port)) as proxy:
        yield proxy, target


async def connect(proxy: TcpProxy) -> Peer:
    """One more connection to the proxy."""
    return Peer(*await asyncio.open_connection("127.0.0.1", proxy.port))


async def test_forwards_both_ways_and_both_ends() -> None:
    """What either side sends arrives, the end of the connection included."""
    async with proxied() as (proxy, target):
        for ends_first in ("client", "server"):
            client = await connect(proxy)
            server = await target.accept()
            client.send(b"question")
            assert b"question" == await server.reader.readexactly(8)
            server.send(b"answer")
            first, second = (client, server) if ends_first == "client" else (server, client)
            first.close()
            if ends_first == "server":
                assert b"answer" == await second.reader.readexactly(6)
            assert await second.at_end()
            second.close()
        await until(lambda: proxy.connections == 0)
        assert 2 == proxy.accepted


async def test_stall_keeps_everything_and_loses_nothing() -> None:
    """Neither bytes nor the end of a connection pass while it is stalled; when it is healed, they do."""
    async with proxied() as (proxy, target):
        client = await connect(proxy)
        server = await target.accept()
        proxy.stall()
        client.send(b"question")
        client.close()
        newcomer = await connect(proxy)
        newcomer.send(b"hello")
        await settle()

        assert (2, 1) == (proxy.accepted, target.connections)
        assert not server.reader.at_eof()

        await proxy.heal()
        assert b"question" == await server.reader.readexactly(8)
        assert await server.at_end()
        assert b"hello" == await (await target.accept()).reader.readexactly(5)
        newcomer.close()


@pytest.mark.parametrize("is_stalled", [False, True])
async def test_cut_closes_and_refuses_until_healed(is_stalled: bool) -> None:  # noqa: FBT001 - a case
    """Both sides see the end, and nobody gets in; afterwards it is the same port again."""
    async with proxied() as (proxy, target):
        client = await connect(proxy)
        server = await target.accept()
        if is_stalled:
            proxy.stall()
        proxy.cut()

        assert await client.at_end()
        assert await server.at_end()
        with pytest.raises(ConnectionRefusedError):
            await connect(proxy)

        await proxy.heal()
        again = await connect(proxy)
        again.send(b"hello")
        assert b"hello" == await (await target.accept()).reader.readexactly(5)
        for peer in (client, again):
            peer.close()


async def test_switch_goes_on_behind_the_same_connection() -> None:
    """The old target sees the end, the new one what is sent from then on, and the client nothing."""
    async with proxied() as (proxy, target), ScriptedServer() as other:
        client = await connect(proxy)
        server = await target.accept()
        proxy.switch(("127.0.0.1", other.port))

        assert await server.at_end()
        client.send(b"question")
        successor = await other.accept()
        assert b"question" == await successor.reader.readexactly(8)
        successor.send(b"answer")
        assert b"answer" == await client.reader.readexactly(6)
        assert 1 == proxy.accepted
        client.close()


async def test_target_that_is_not_there_ends_the_connection() -> None:
    """The proxy takes it first, as every proxy does."""
    async with ScriptedServer() as target:
        gone = ("127.0.0.1", target.port)
    async with TcpProxy(gone) as proxy:
        client = await connect(proxy)
        assert await client.at_end()
        client.close()
