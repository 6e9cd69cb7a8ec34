"""The broker agent and the client against a server with an access file, with and without a key."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from namesrv_client import RouteUnavailableError
from tests.support.agents import brokers, running
from tests.support.fake_clock import passing
from tests.support.in_process import InProcess, guarded_namesrv
from tests.support.route_clients import route_client

FILE = """
[accounts.broker]
secrets = ["broker-secret"]
may = [{ access = "broker-control", clusters = ["cluster-1"], brokers = ["broker-a"], topics = ["orders", "bills"] }]

[accounts.reader]
secrets = ["reader-secret"]
may = [{ access = "route-read", topics = ["orders"] }]
"""
BROKER: dict[str, Any] = {"access_key": "broker", "secret_key": "broker-secret"}
READER: dict[str, Any] = {"access_key": "reader", "secret_key": "reader-secret"}
EVERY_PROTOCOL = pytest.mark.parametrize("protocol", ["native", "rocketmq", "auto"])


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[InProcess]:
    """A server with the access file."""
    async with guarded_namesrv(tmp_path, FILE) as server:
        yield server


@EVERY_PROTOCOL
async def test_peers_with_a_key_sign_their_requests(guarded: InProcess, protocol: str) -> None:
    """The agent registers, and the client gets the routes of its topics; the error names what an account lacks."""
    clock, where = guarded.clock, guarded.where
    async with (
        running(clock, where, protocol=protocol, **BROKER) as agent,
        route_client(clock, where, protocol=protocol, **READER) as client,
    ):
        assert await agent.registered() == 1
        assert (await client.route("orders")).data.queue_datas[0].write_queue_nums == 8
        with pytest.raises(RouteUnavailableError, match="account reader lacks route-read"):
            await client.route("bills")


@pytest.mark.parametrize(
    ("secret", "remark"),
    [
        (None, "request is not signed, and no account matches this address or certificate"),
        ("other", "access key '{}' is unknown, or the request is not signed with its secret"),
    ],
    ids=["no key", "wrong secret"],
)
@EVERY_PROTOCOL
async def test_refused_peers_report_the_remark(
    guarded: InProcess, protocol: str, secret: str | None, remark: str
) -> None:
    """With protocol `auto` the server refuses the request for its information, too."""

    def key(name: str) -> dict[str, Any]:
        return {} if secret is None else {"access_key": name, "secret_key": secret}

    async with (
        running(guarded.clock, guarded.where, protocol=protocol, **key("broker")) as agent,
        route_client(guarded.clock, guarded.where, protocol=protocol, **key("reader")) as client,
    ):
        refused = f"registration refused: {remark.format('broker')}"
        await passing(guarded.clock, lambda: agent.servers[guarded.where].last_error == refused)
        with pytest.raises(RouteUnavailableError, match=remark.format("reader")):
            await client.route("orders")
    assert brokers(guarded) == {}
