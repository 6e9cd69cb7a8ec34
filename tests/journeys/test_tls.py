"""A server with TLS, its peers, and those who have or want none: real sockets, real processes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig
from namesrv_client import ClientSettings, RouteClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from tests.support.certificates import Authority
from tests.support.daemon import Daemon, Start
from tests.support.guard import GUARD_SECONDS


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    """An authority that has certified `server` and `client`."""
    return Authority(tmp_path)


def flags(ca: Authority, mode: str = "enforcing", *others: str) -> list[str]:
    """The flags of a server with a certificate of this authority."""
    server = ca.issue("server")
    return [f"--tls-mode={mode}", f"--tls-cert-file={server.cert_file}", f"--tls-key-file={server.key_file}", *others]


def name_server(daemon: Daemon) -> str:
    """Where it listens, as a list of NameServers has it."""
    return f"127.0.0.1:{daemon.address[1]}"


def agent_of(daemon: Daemon, **settings: Any) -> BrokerAgent:
    """The agent of a master with one topic."""
    identity = AgentSettings(
        cluster_name="c1",
        broker_name="broker-a",
        broker_addr="10.0.0.1:10911",
        name_servers=name_server(daemon),
        **settings,
    )
    return BrokerAgent(identity, [TopicConfig("orders", 8, 8)], protocols=ServerProtocols())


def client_of(daemon: Daemon, **settings: Any) -> RouteClient:
    """A client that knows of nothing yet."""
    return RouteClient(ClientSettings(name_servers=name_server(daemon), **settings), protocols=ServerProtocols())


async def test_broker_and_client_meet_over_tls(start: Start, ca: Authority) -> None:
    """With TLS enforced, an agent registers and a client finds it, each with the authority's certificate alone."""
    daemon = start(*flags(ca))

    async with asyncio.timeout(GUARD_SECONDS), agent_of(daemon, **ca.client()) as agent:
        await agent.registered()
        async with client_of(daemon, **ca.client()) as client:
            found = await client.route("orders")

    assert {"broker-a": {0: "10.0.0.1:10911"}} == {
        it.broker_name: dict(it.broker_addrs) for it in found.data.broker_datas
    }
