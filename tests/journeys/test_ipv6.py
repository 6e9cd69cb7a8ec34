"""Agent, client, namesrvctl and a server with IPv6 addresses only."""

from typing import Final, Literal

import pytest

from namesrv_broker_agent import AgentSettings, SyncBrokerAgent, TopicConfig
from namesrv_client import ClientSettings, SyncRouteClient
from tests.support.ctl import run
from tests.support.daemon import Start
from tests.support.http_peer import scrape
from tests.support.ipv6 import can_use_ipv6

# tests/namesrv/net and tests/namesrv/server show the same on both event loops.
pytestmark = pytest.mark.parametrize("loop", ["auto"])

BROKER = "[::1]:10911"
PROTOCOLS: Final[tuple[Literal["native", "rocketmq"], ...]] = ("native", "rocketmq")


@pytest.mark.skipif(not can_use_ipv6(), reason="no IPv6 loopback here")
def test_route_over_ipv6(start: Start) -> None:
    """An agent registers an IPv6 address over IPv6; the client's queues and namesrvctl have it in brackets."""
    daemon = start("--listen-host", "::1", "--listen-port", "0", "--http-listen", "[::1]:0")
    where = daemon.where
    for protocol in PROTOCOLS:
        agent = AgentSettings(
            cluster_name="cluster", broker_name="broker-a", broker_addr=BROKER, name_servers=where, protocol=protocol
        )
        client = ClientSettings(name_servers=where, protocol=protocol, warm_up_seconds=0)
        with (
            SyncBrokerAgent(agent, [TopicConfig("orders", 2, 2), TopicConfig("bills", 2, 2)]) as running,
            SyncRouteClient(client) as routes,
        ):
            running.registered()
            queue, chosen = routes.select_queue("orders"), routes.chosen_server
            shown = run("-s", where, "route", "orders", "-o", "json")
            connections = run("-s", where, "connections", "--role", "broker", "-o", "json")
            metrics = scrape(daemon.http_address)

        assert (queue.broker_name, chosen) == ("broker-a", where), protocol
        assert (shown.code, BROKER in shown.out) == (0, True), protocol
        assert metrics("nameserver_brokers", state="live") == 1
        (connection,) = connections.json["servers"][0]["connections"]
        assert connection["peer"].startswith("[::1]:")
