"""Requests to one server."""

import asyncio
from pathlib import Path

from namesrv_client.ctl.nameserver import NameServer
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS
from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import MASTER, registration


async def test_many_routes_come_in_short_responses(tmp_path: Path) -> None:
    """250 routes are three responses, since one takes seconds on a busy server of a hundred brokers; all share one."""
    topics = [f"topic-{number}" for number in range(250)]
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(MASTER, registration(*topics))
        nameserver = NameServer(server.where, timeout_seconds=2.0, clock=server.clock)
        assert await nameserver.is_native()

        routes = await nameserver.changed_routes(topics)

        requests = [connection.peer.requests for connection in server.namesrv.slots.connections.values()]
        assert sorted(routes) == sorted(topics)
        assert len(set(map(id, routes.values()))) == 1
        # The registration of the peer; SERVER_INFO and the pulls of the client.
        assert sorted(requests) == [1, 4]
        await nameserver.close()


async def test_tasks_find_out_the_protocol_of_an_apache_server_together(tmp_path: Path) -> None:
    """Apache's server closes the connection on a native request; no request of another task fails because of that."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        for passes in range(0, 100, 2):
            PROCESS_PROTOCOLS.forget(address_of(apache))
            nameserver = NameServer(address_of(apache), timeout_seconds=2.0, clock=server.clock)
            first = asyncio.create_task(nameserver.brokers())
            # the second request finds the first one at any point of its way
            for _ in range(passes):
                await asyncio.sleep(0)
            assert await nameserver.brokers() == await first == []
            await nameserver.close()
