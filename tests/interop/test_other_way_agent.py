"""Our broker agent and the example broker with Apache's NameServer, checked by Apache's own tools."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from namesrv_broker_agent import AgentSettings, SyncBrokerAgent, TopicConfig
from tests.interop.peers.apache import ApacheNameServer, MqAdmin
from tests.interop.peers.route import brokers_of, route_of, topics_of
from tests.interop.peers.waiting import until, until_equal
from tests.support.ports import free_port

TOPICS = (TopicConfig("orders", 8, 8), TopicConfig("bills", 4, 2))

Protocol = Literal["rocketmq", "auto"]


@pytest.fixture(scope="module")
def apache(place: Path, stack: ExitStack) -> tuple[ApacheNameServer, ApacheNameServer]:
    """Two of Apache's NameServers."""
    first, second = (stack.enter_context(ApacheNameServer(place / name)) for name in ("apache-1", "apache-2"))
    return first.booted(), second.booted()


@pytest.fixture(scope="module")
def mqadmin(place: Path, stack: ExitStack, apache: tuple[ApacheNameServer, ApacheNameServer]) -> MqAdmin:
    """An mqadmin with the address of the first server."""
    return stack.enter_context(MqAdmin(place / "mqadmin", apache[0].address))


def settings(apache: tuple[ApacheNameServer, ...], name: str, protocol: Protocol, **others: Any) -> AgentSettings:
    """Settings of an agent whose broker is unreachable; the tests check the NameServers only."""
    return AgentSettings(
        cluster_name=f"cluster-{name}",
        broker_name=name,
        broker_addr=f"127.0.0.1:{free_port()}",
        name_servers=";".join(server.address for server in apache),
        heartbeat_seconds=1,
        protocol=protocol,
        **others,
    )


@pytest.mark.parametrize("protocol", ["rocketmq", "auto"])
def test_agent_is_in_the_cluster_list(
    apache: tuple[ApacheNameServer, ApacheNameServer], mqadmin: MqAdmin, protocol: Protocol
) -> None:
    """With protocol `rocketmq` and with `auto` both servers and mqadmin know the broker."""
    chosen = settings(apache, f"agent-{protocol}", protocol)
    with SyncBrokerAgent(chosen, TOPICS) as agent:
        assert agent.registered() == 2
        row = [chosen.cluster_name, chosen.broker_name, "0", chosen.broker_addr]
        # The command requests the broker's figures, too, and reports that the broker does not answer.
        assert row in [cells[:4] for cells in mqadmin("clusterList").rows]
        for server in apache:
            assert _addresses(server, chosen.broker_name) == {0: chosen.broker_addr}
            route = route_of(server.address, "bills")
            assert route is not None
            assert route.queues[chosen.broker_name] == (4, 2, 6)
    for server in apache:
        until_equal(None, partial(_addresses, server, chosen.broker_name))


def test_slave_learns_its_master(apache: tuple[ApacheNameServer, ApacheNameServer]) -> None:
    """The response to a slave's registration has the master's address."""
    master = settings(apache, "agent-group", "rocketmq", ha_server_addr="127.0.0.1:10912")
    slave = master.model_copy(update={"broker_id": 1, "broker_addr": f"127.0.0.1:{free_port()}"})
    with SyncBrokerAgent(master, TOPICS) as first, SyncBrokerAgent(slave, TOPICS) as second:
        first.registered()
        second.registered()

        found = until(lambda: second.master)

        assert found is not None
        assert (found.master_addr, found.ha_server_addr) == (master.broker_addr, "127.0.0.1:10912")
        for server in apache:
            assert _addresses(server, "agent-group") == {0: master.broker_addr, 1: slave.broker_addr}


def test_agent_is_back_on_a_server_that_restarted(place: Path) -> None:
    """The agent registers again with a killed and restarted NameServer, which has lost its tables."""
    with ExitStack() as stack:
        killed = stack.enter_context(ApacheNameServer(place / "apache-3")).booted()
        chosen = settings((killed,), "agent-again", "rocketmq")
        agent = stack.enter_context(SyncBrokerAgent(chosen, TOPICS))
        agent.registered()

        killed.kill()
        again = stack.enter_context(ApacheNameServer(place / "apache-3", port=killed.port)).booted()

        until_equal({"agent-again": {0: chosen.broker_addr}}, lambda: brokers_of(again.address))
        assert {"orders", "bills"} <= topics_of(again.address)


def _addresses(server: ApacheNameServer, broker_name: str) -> dict[int, str] | None:
    return brokers_of(server.address).get(broker_name)
