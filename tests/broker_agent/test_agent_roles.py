"""The broker's role on every NameServer, and a slave's knowledge of its master."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import BrokerAgent, MasterInfo, TopicConfig
from namesrv_remoting.bodies.advertised import AdvertisedAddresses
from namesrv_remoting.headers import NotifyMinBrokerIdChangeRequestHeader
from tests.support import agents
from tests.support.fake_clock import FakeClock, passing, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker
from tests.support.tcp_proxy import TcpProxy

M1 = MasterInfo("10.0.0.9:10911", "10.0.0.9:10912")
M2 = MasterInfo("10.0.0.8:10911", "10.0.0.8:10912")


async def routed(server: InProcess) -> dict[str, str]:
    """Broker id to address in the route of topic orders."""
    peer = await server.connect()
    (group,) = (await peer.call(105, {"topic": "orders"})).value["brokerDatas"]
    addrs: dict[str, str] = group["brokerAddrs"]
    return addrs


async def master_on(server: InProcess, master: MasterInfo = M1) -> Callable[[], None]:
    """Register a master of the agent's group on this server only; return the function that closes its connection."""
    peer = await server.connect()
    broker = Broker(agents.NAME, 0, master.master_addr)
    answer = await peer.register(broker, haServerAddr=master.ha_server_addr, enableActingMaster="true")
    assert answer.code == 0, answer
    return peer.close


async def test_promotion_and_demotion_keep_the_address(tmp_path: Path) -> None:
    """The route shows the same address under the new id; the version counts up, with the term if there is one."""
    clock = FakeClock()
    async with (
        agents.name_servers(tmp_path, clock) as servers,
        agents.running(clock, agents.everywhere(servers), broker_id=1) as agent,
    ):
        await agent.registered()
        assert [await routed(server) for server in servers] == [{"1": agents.ADDR}] * 3

        await agent.promote(state_version=7)
        assert [await routed(server) for server in servers] == [{"0": agents.ADDR}] * 3
        assert [(await agents.versions(server))[-1][:3] for server in servers] == [("full", 1, 7)] * 3

        await agent.demote(2)
        assert [await routed(server) for server in servers] == [{"2": agents.ADDR}] * 3
        assert [(await agents.versions(server))[-1][:3] for server in servers] == [("full", 2, 7)] * 3
        assert (agent.broker_id, [event for server in servers for event in server.events("evict")]) == (2, [])


@pytest.mark.parametrize(
    ("broker_id", "error"),
    [
        *((broker_id, ValueError(f"not the id of a slave: {broker_id} ")) for broker_id in (0, -1, 1 << 63)),
        *((broker_id, TypeError(f"broker_id {broker_id!r} is not an integer")) for broker_id in ("1", 1.0, True, None)),
    ],
)
async def test_invalid_slave_id_is_refused(broker_id: Any, error: Exception) -> None:
    """The error names the id, and the role stays."""
    agent = BrokerAgent(agents.agent_settings("127.0.0.1:1"), agents.TOPICS)
    with pytest.raises(type(error), match=f"^{error}"):
        await agent.demote(broker_id)
    assert agent.broker_id == 0


async def test_slave_learns_its_master_from_the_registration(tmp_path: Path) -> None:
    """The callback runs once with address and HA address, for any number of servers; promotion resets the master."""
    clock = FakeClock()
    masters: list[MasterInfo] = []
    async with agents.name_servers(tmp_path, clock) as servers:
        for server in servers:
            await master_on(server)
        async with agents.running(
            clock, agents.everywhere(servers), broker_id=1, options={"on_master_changed": masters.append}
        ) as agent:
            await agent.registered()
            assert (agent.master, masters) == (M1, [M1])
            assert [agents.brokers(server) for server in servers] == [
                {agents.NAME: {0: M1.master_addr, 1: agents.ADDR}}
            ] * 3

            await agent.promote()
            assert agent.master is None
            await agent.demote(3)
            for server in servers:
                await master_on(server, M2)
            await passing(clock, lambda: agent.master == M2, at_most=28.5)


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_slave_without_a_master_registers_until_it_has_one(protocol: str, tmp_path: Path) -> None:
    """A heartbeat's response has no master, so that the slave registers again; a changed HA address is noticed, too.

    A slave keeps its master's address after the master is gone, because the next one is unknown.
    """
    async with agents.real(tmp_path, broker_id=1, protocol=protocol) as it:
        assert not it.agent.master
        ends = [await master_on(it.server)]
        await it.passing(lambda: it.agent.master == M1, at_most=28.5)

        moved = MasterInfo(M1.master_addr, "10.0.0.9:10999")
        ends.append(await master_on(it.server, moved))
        await it.passing(lambda: it.agent.master == moved, at_most=28.5)
        for end in ends:
            end()
        await until(lambda: agents.brokers(it.server) == {agents.NAME: {1: agents.ADDR}})
        await it.clock.advance(60)
        assert it.agent.master == moved
        assert it.state.status == "registered"


async def test_slave_follows_the_majority_of_reachable_servers(tmp_path: Path) -> None:
    """One deviating server of three changes nothing, two do; a server without a connection or a master has no vote."""
    clock = FakeClock()
    async with agents.name_servers(tmp_path, clock) as servers, AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(TcpProxy(server.address)) for server in servers]
        ends = [await master_on(server) for server in servers[:2]]
        await master_on(servers[2], M2)
        async with agents.running(clock, agents.everywhere(proxies), broker_id=1) as agent:
            await agent.registered()
            assert agent.master == M1

            # one of the two forgets the master: one against one is not a majority
            ends[0]()
            await until(lambda: agents.brokers(servers[0]) == {agents.NAME: {1: agents.ADDR}})
            await clock.advance(60)
            assert agent.master == M1

            end = await master_on(servers[0], M2)
            await clock.advance(60)
            assert agent.master == M2

            # the last reachable server with a master decides alone
            end()
            await until(lambda: agents.brokers(servers[0]) == {agents.NAME: {1: agents.ADDR}})
            proxies[2].cut()
            await passing(clock, lambda: agent.master == M1, at_most=28.5)


async def test_change_of_the_smallest_id_runs_a_callback(tmp_path: Path) -> None:
    """905 comes over the agent's own connection, and the slave requests its master at once."""
    clock = FakeClock()
    notices: list[tuple[int | None, str | None, str | None]] = []

    def callback(notice: NotifyMinBrokerIdChangeRequestHeader) -> None:
        notices.append((notice.min_broker_id, notice.min_broker_addr, notice.offline_broker_addr))

    how: dict[str, Any] = {
        "broker_id": 1,
        "enable_acting_master": True,
        "options": {"on_min_broker_id_changed": callback},
    }
    async with (
        namesrv_in_process(tmp_path, clock=clock, notify_min_broker_id_changed=True) as server,
        agents.running(clock, server.where, **how) as agent,
    ):
        await agent.registered()
        end = await master_on(server)
        await until(lambda: agent.master == M1)
        assert notices == [(0, M1.master_addr, None)]

        end()
        await until(lambda: len(notices) == 2)
        assert (notices[1], clock.monotonic(), agent.master) == ((1, agents.ADDR, M1.master_addr), 1_000.0, M1)


async def test_every_registration_has_the_advertised_addresses(tmp_path: Path) -> None:
    """A change of topics keeps them; an agent that is started again without them removes them."""
    how: dict[str, Any] = {
        "advertised": {"outside": "203.0.113.7:30911"},
        "advertised_ha": {"outside": "203.0.113.7:30912"},
    }

    async with agents.real(tmp_path, **how) as it:
        tables, topic = it.server.namesrv.manager.tables, TopicConfig("refunds", 2, 2)
        ((_, live),) = tables.broker_live_table.items()
        assert live.advertised == AdvertisedAddresses(how["advertised"], how["advertised_ha"])
        await it.agent.create_topic(topic)
        await until(lambda: agents.queues(it.server, "refunds") is not None)
        assert next(iter(tables.broker_live_table.values())).advertised == live.advertised

        await it.agent.stop()
        async with agents.running(it.clock, it.server.where) as again:
            await again.registered()
            assert next(iter(tables.broker_live_table.values())).advertised == AdvertisedAddresses()
