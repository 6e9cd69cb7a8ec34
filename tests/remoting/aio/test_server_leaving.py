"""How a server leaves: who is still answered, and when each connection is closed."""

import asyncio

import pytest

from namesrv_remoting.aio.dispatch import Reply, Request
from tests.support.fake_clock import settle
from tests.support.gate import Gate
from tests.support.raw_peer import RawPeer, until
from tests.support.serving import ECHO, serving
from tests.support.spelling import json_frame

QUESTION = json_frame(ECHO, 7)


async def test_nobody_is_let_in_any_more() -> None:
    """Those who are in stay."""
    async with serving() as served:
        peer = await served.connect()
        served.server.stop_accepting()
        await settle()

        with pytest.raises(OSError, match=r"refused|failed"):
            await RawPeer.connect(served.addresses[0])
        assert 7 == (await peer.ask(QUESTION)).opaque


async def test_connections_are_closed_spread_over_the_time() -> None:
    """Ten over five seconds: one at once, then one every half second."""
    async with serving() as served:
        for _ in range(10):
            await served.connect()
        connections = list(served.server.connections.values())
        closing = asyncio.create_task(served.server.close_connections(connections, 5.0))
        left = []
        for _ in range(10):
            await settle()
            left.append(len(served.server.connections))
            await served.clock.advance(0.5)

        assert [9, 8, 7, 6, 5, 4, 3, 2, 1, 0] == left
        assert closing.done()
        assert list(range(1, 11)) == [number for number, _ in served.heard.closed]


async def test_many_connections_are_closed_in_handfuls() -> None:
    """A sleep per connection would be coarser than the spread: pauses shorter than 10 ms are saved up."""
    async with serving() as served:
        for _ in range(60):
            await served.connect()
        connections = list(served.server.connections.values())
        closing = asyncio.create_task(served.server.close_connections(connections, 0.3))
        await served.clock.advance(0.15)
        assert 26 <= len(served.server.connections) <= 34

        await served.clock.advance(0.15)
        assert closing.done()
        await until(lambda: not served.server.connections)


async def test_closing_connections_at_once_takes_no_time() -> None:
    """Over 0 seconds; those that are closed already are passed over."""
    async with serving() as served:
        for _ in range(3):
            await served.connect()
        connections = list(served.server.connections.values())
        connections[0].close()
        await served.server.close_connections(connections, 0.0)
        await until(lambda: not served.server.connections)

        assert [1, 2, 3] == sorted(number for number, _ in served.heard.closed)


async def test_drain_waits_for_what_is_in_flight() -> None:
    """Until the last answer is sent."""
    gate = Gate()
    async with serving({10: gate}) as served:
        peer = await served.connect()
        assert await served.server.drain(2.0)
        peer.send(json_frame(10, 1))
        await until(lambda: gate.came)
        draining = asyncio.create_task(served.server.drain(2.0))
        await served.clock.advance(1.0)
        assert not draining.done()

        gate.open()
        await peer.receive()
        await served.clock.advance(0.1)
        assert await draining


async def test_drain_gives_up_in_time() -> None:
    """And says that it did."""
    gate = Gate()
    async with serving({10: gate}) as served:
        peer = await served.connect()
        peer.send(json_frame(10, 1))
        await until(lambda: gate.came)
        draining = asyncio.create_task(served.server.drain(2.0))
        await served.clock.advance(2.1)

        assert draining.done()
        assert not await draining
        gate.open()


async def test_drain_waits_for_what_is_unsent() -> None:
    """An answer that the peer has not read is not sent."""

    async def large(request: Request) -> Reply:
        return Reply(bytes(16 * 1024 * 1024 - 4096))

    async with serving({10: large}) as served:
        peer = await served.connect(receive_buffer=4096)
        peer.send(json_frame(10, 1))
        await until(lambda: served.connection_of(peer).unsent_bytes)
        draining = asyncio.create_task(served.server.drain(2.0))
        await served.clock.advance(1.0)
        assert not draining.done()

        await peer.receive()
        await served.clock.advance(0.1)
        assert await draining


async def test_abort_closes_everybody_at_once() -> None:
    """Answers that were not read are lost."""
    async with serving() as served:
        peers = [await served.connect() for _ in range(3)]
        served.server.abort_all()

        assert [True] * 3 == [await peer.at_end() for peer in peers]
        await until(lambda: not served.server.connections)
        assert [1, 2, 3] == sorted(number for number, _ in served.heard.closed)
