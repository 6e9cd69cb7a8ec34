"""The table of requests that the server answers."""

from typing import get_type_hints

import pytest

from namesrv.net.dispatcher import Reply
from namesrv.net.request import Request
from namesrv.processors.table import served_requests
from namesrv_remoting.requests import REQUESTS
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import MASTER, Spelling, registration


async def test_every_request_has_a_row(server: InProcess) -> None:
    """Each handler takes the header and body of its request; requests that only servers send have no handler."""
    takes = {code: [*get_type_hints(row.handler).values()] for code, row in served_requests(server.namesrv).items()}

    assert takes == {
        kind.code: [Request, *filter(None, (kind.header, kind.body)), Reply]
        for kind in REQUESTS.values()
        if kind.sender != "server"
    }


@pytest.mark.settings(max_connections=10, share_per_ip_percent=100)
async def test_requests_before_the_registration_of_a_broker(server: InProcess) -> None:
    """A peer in a reserved slot may send the requests of brokers and agents; others only once it has registered."""
    for _ in range(9):
        await server.connect()
    peer = await server.connect()
    before: list[tuple[int, Spelling]] = [(20002, "native"), *((code, "json") for code in (104, 322, 901, 904, 103))]
    for code, spelling in before:
        body = registration("T", "U") if code == 103 else b""
        assert (await peer.call(code, MASTER.ext, body, spelling=spelling)).code == 0, code
    assert (await peer.call(105, {"topic": "T"})).code == 0

    await server.hang_up(peer)
    other = await server.connect()
    other.send_request(105, {"topic": "T"})
    assert await other.at_end()
    assert {code for code, row in served_requests(server.namesrv).items() if row.before_registration} == {
        20002,
        104,
        322,
        901,
        904,
        103,
    }
