"""Requests to one server."""

from pathlib import Path

from namesrv_client.ctl.nameserver import NameServer
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
