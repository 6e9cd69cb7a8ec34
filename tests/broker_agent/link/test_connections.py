"""The connections of the link to one NameServer."""

import asyncio

from namesrv_broker_agent.link.connections import LinkConnections
from namesrv_broker_agent.own_broker import OwnBroker
from namesrv_broker_agent.topics import BrokerTopics
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from tests.support.agents import agent_settings
from tests.support.fake_clock import FakeClock
from tests.support.scripted_server import ScriptedServer


async def test_cancelled_close_of_earlier_connections_leaves_none_open() -> None:
    """The link may be ended at that moment; then the last close closes all connections."""
    async with ScriptedServer() as server:
        connections = LinkConnections(
            server.address,
            OwnBroker(agent_settings(server.address), BrokerTopics(), None),
            clock=FakeClock(),
            protocols=ServerProtocols(),
            on_request=lambda _: None,
            on_lost=lambda: None,
        )
        clients: list[RemotingClient] = []
        for _ in range(3):
            clients.append(client := await connections.replace(1.0))
            await client.oneway(904, timeout_seconds=3.0)
            if len(clients) == 1:
                # From now on the first connection has the registration.
                await connections.close_earlier()
        assert [client.connected for client in clients] == [True] * 3

        closing = asyncio.create_task(connections.close_earlier())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await connections.close()
        assert [client.connected for client in clients] == [False] * 3
