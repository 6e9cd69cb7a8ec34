"""How a client ends."""

import asyncio
from typing import Any

import pytest

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import ConnectionClosedError
from tests.support.dead_ends import full_queue
from tests.support.fake_clock import FakeClock, settle
from tests.support.scripted_server import ScriptedServer


def ask(client: RemotingClient) -> asyncio.Task[RemotingCommand]:
    """A question on its way."""
    return asyncio.create_task(client.invoke(106, timeout_seconds=3.0))


async def close(client: RemotingClient) -> None:
    """Close, in a task of its own."""
    await client.close()


async def test_close_fails_what_waits_and_closes_the_connection() -> None:
    """The caller learns that it was us; the server reads the end; the loss is nobody's news."""
    losses: list[Any] = []
    async with ScriptedServer() as server:
        client = RemotingClient(server.address, clock=FakeClock(), on_connection_lost=losses.append)
        call = ask(client)
        peer = await server.accept()
        await peer.receive()

        await client.close()

        with pytest.raises(ConnectionClosedError, match=rf"^connection to {server.address} was closed on this side$"):
            await call
        assert await peer.at_end()
        assert (False, 0, []) == (client.connected, client.pending_count, losses)


async def test_close_sends_what_was_written() -> None:
    """A oneway farewell of a mebibyte arrives, although the client is closed right after it."""
    async with ScriptedServer() as server:
        async with RemotingClient(server.address, clock=FakeClock()) as client:
            await client.oneway(104, body=bytes(1 << 20), timeout_seconds=3.0)
            closing = asyncio.create_task(close(client))
            peer = await server.accept()
            assert bytes(1 << 20) == (await peer.receive()).body
            await closing
        assert await peer.at_end()


async def test_closed_client_takes_no_questions() -> None:
    """It never connects again, and says that it is closed."""
    async with ScriptedServer() as server:
        async with RemotingClient(server.address, clock=FakeClock()) as client:
            pass
        with pytest.raises(ConnectionClosedError, match=rf"^client of {server.address} is closed$"):
            await client.invoke(106, timeout_seconds=3.0)
        with pytest.raises(ConnectionClosedError, match=rf"^client of {server.address} is closed$"):
            await client.oneway(904, timeout_seconds=3.0)
        assert server.connections == 0


async def test_close_may_be_called_again() -> None:
    """Twice at once and once more afterwards: all return when the connection is closed."""
    async with ScriptedServer() as server:
        client = RemotingClient(server.address, clock=FakeClock())
        await client.oneway(904, timeout_seconds=3.0)

        await asyncio.gather(client.close(), client.close())
        await client.close()

        assert not client.connected


async def test_close_ends_a_connect() -> None:
    """Whoever waits for the connect learns that the client is closed, without waiting for the connect's end."""
    with full_queue() as address:
        client = RemotingClient(address, clock=FakeClock())
        call = ask(client)
        await settle()

        await client.close()

        with pytest.raises(ConnectionClosedError, match=rf"^client of {address} is closed$"):
            await call


async def test_close_in_any_moment_of_a_connect() -> None:
    """Whichever pass of the loop it falls into, no connection is left open and no caller is left waiting."""
    for passes in range(12):
        async with ScriptedServer() as server:
            client = RemotingClient(server.address, clock=FakeClock())
            call = ask(client)
            for _ in range(passes):
                await asyncio.sleep(0)

            await client.close()

            with pytest.raises(ConnectionClosedError):
                await call
            assert not client.connected
            if server.connections:
                await (await server.accept()).gone()
