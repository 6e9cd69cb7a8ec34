"""Connections of clients are closed at a maximum age, so that clients spread over all servers."""

import asyncio

import pytest

from tests.support.in_process import InProcess
from tests.support.namesrv_peer import MASTER

pytestmark = pytest.mark.settings(client_connection_max_age=100.0)


async def test_old_connection_of_a_client_is_closed(server: InProcess) -> None:
    """A client's connection ends at 80 to 120 s; those of brokers and operators stay."""
    broker, client, operator = [await server.connect() for _ in range(3)]
    await broker.register(MASTER)
    for peer in (client, broker):
        assert (await peer.call(105, {"topic": "T"})).code == 0
    await operator.call(20002, spelling="native")

    await server.clock.advance(79.0)
    assert (await client.call(105, {"topic": "T"})).code == 0
    await server.clock.advance(42.0)

    assert await client.at_end()
    for peer in (broker, operator):
        assert (await peer.call(20002, spelling="native")).code == 0


async def test_burst_of_requests_is_not_interrupted(server: InProcess) -> None:
    """A client sends its next request right after a response, so that an old connection is closed after the burst.

    Java's client requests TBW102 as soon as a topic has no route.
    """
    client = await server.connect()
    await server.clock.advance(79.0)
    for _ in range(430):
        assert (await client.call(105, {"topic": "missing"})).code == 17
        await server.clock.advance(0.1)

    assert (await client.call(105, {"topic": "TBW102"})).code == 17
    await server.clock.advance(1.3)
    assert await client.at_end()


async def test_connection_that_is_never_quiet_is_closed_after_twice_its_age(server: InProcess) -> None:
    """The polls of a client may always come shortly before the check, so that no check finds the connection quiet."""
    client = await server.connect()
    await server.clock.advance(79.0)
    for _ in range(1000):
        assert (await client.call(105, {"topic": "T"})).code == 17
        await server.clock.advance(0.1)

    async def request_until_closed() -> None:
        for _ in range(430):
            await client.call(105, {"topic": "T"})
            await server.clock.advance(0.1)

    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await request_until_closed()
