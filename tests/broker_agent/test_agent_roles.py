"""Every NameServer knows the broker's role, and a slave knows its master."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from namesrv.routeinfo.records import Evicted
from namesrv_broker_agent import BrokerAgent
from tests.support.agents import (
    ADDR,
    NAME,
    TOPICS,
    address_of,
    agent_settings,
    brokers,
    everywhere,
    name_servers,
    running,
    versions,
)
from tests.support.fake_clock import FakeClock
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, value
from tests.support.passing_time import passing
from tests.support.raw_peer import until
from tests.support.tcp_proxy import TcpProxy


async def routed(server: InProcess) -> dict[str, str]:
    """Who serves the topic orders, by id, as a client is told."""
    peer = await server.connect()
    (group,) = value(await peer.call(105, {"topic": "orders"}))["brokerDatas"]
    addrs: dict[str, str] = group["brokerAddrs"]
    return addrs


async def test_promotion_and_demotion_keep_the_address(tmp_path: Path) -> None:
    """The route shows the same address under the other id, and the version counts up, with the term if there is one."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers, running(clock, everywhere(servers), broker_id=1) as agent:
        await agent.registered()
        assert [{"1": ADDR}] * 3 == [await routed(server) for server in servers]

        await agent.promote(state_version=7)
        assert [{"0": ADDR}] * 3 == [await routed(server) for server in servers]
        assert [("full", 1, 7)] * 3 == [versions(server)[-1][:3] for server in servers]

        await agent.demote(2)
        assert [{"2": ADDR}] * 3 == [await routed(server) for server in servers]
        assert [("full", 2, 7)] * 3 == [versions(server)[-1][:3] for server in servers]
        assert 2 == agent.broker_id
        assert [] == [effect for server in servers for effect in server.effects_of(Evicted)]


@pytest.mark.parametrize("broker_id", [0, -1, 1 << 63])
async def test_id_that_no_slave_can_have_is_refused(broker_id: int) -> None:
    """By name, and nothing has changed."""
    agent = BrokerAgent(agent_settings("127.0.0.1:1"), TOPICS)
    with pytest.raises(ValueError, match=f"not the id of a slave: {broker_id} "):
        await agent.demote(broker_id)
    assert 0 == agent.broker_id


# address and HA address of masters
M1 = ("10.0.0.9:10911", "10.0.0.9:10912")
M2 = ("10.0.0.8:10911", "10.0.0.8:10912")


async def master_on(server: InProcess, addr: str = M1[0], ha: str = M1[1]) -> Callable[[], None]:
    """A master of the agent's group registers on this server only; what ends it."""
    peer = await server.connect()
    answer = await peer.register(Broker(NAME, 0, addr), haServerAddr=ha, enableActingMaster="true")
    assert 0 == answer.code, answer
    return peer.close


def known_master(agent: BrokerAgent) -> tuple[str, str | None] | None:
    """Where a slave thinks that its master is."""
    return None if agent.master is None else (agent.master.master_addr, agent.master.ha_server_addr)


async def test_slave_learns_its_master_from_the_first_answer(tmp_path: Path) -> None:
    """Address and HA address, once, however many servers say so."""
    clock = FakeClock()
    told: list[tuple[str, str | None]] = []
    async with name_servers(tmp_path, clock) as servers:
        for server in servers:
            await master_on(server)
        async with running(
            clock,
            everywhere(servers),
            broker_id=1,
            options={"on_master_changed": lambda master: told.append((master.master_addr, master.ha_server_addr))},
        ) as agent:
            await agent.registered()
            assert (M1, [M1]) == (known_master(agent), told)
            for server in servers:
                assert {NAME: {0: M1[0], 1: ADDR}} == brokers(server)


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_slave_that_was_first_learns_its_master_with_the_next_heartbeat(protocol: str, tmp_path: Path) -> None:
    """A heartbeat alone would not tell; neither would it that only the HA address is another one."""
    clock = FakeClock()
    async with (
        name_servers(tmp_path, clock, 1) as (server,),
        running(clock, address_of(server), broker_id=1, protocol=protocol) as agent,
    ):
        await agent.registered()
        assert agent.master is None
        await master_on(server)
        await passing(clock, lambda: agent.master, at_most=28.5)
        assert M1 == known_master(agent)

        await master_on(server, ha="10.0.0.9:10999")
        await passing(clock, lambda: known_master(agent) != M1, at_most=28.5)
        assert (M1[0], "10.0.0.9:10999") == known_master(agent)
        assert "registered" == agent.servers[address_of(server)].status


async def test_slave_believes_most_servers_and_forgets_nothing(tmp_path: Path) -> None:
    """One server that says something else, or nothing, changes nothing; two of three do."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers:
        ends = [await master_on(server) for server in servers[:2]]
        await master_on(servers[2], *M2)
        async with running(clock, everywhere(servers), broker_id=1) as agent:
            await agent.registered()
            assert M1 == known_master(agent)

            # one of the two forgets it: one against one is no majority
            ends[0]()
            await until(lambda: brokers(servers[0]) == {NAME: {1: ADDR}})
            await clock.advance(60)
            assert M1 == known_master(agent)

            await master_on(servers[0], *M2)
            await clock.advance(60)
            assert M2 == known_master(agent)


async def test_slave_keeps_its_master_when_nobody_knows_it(tmp_path: Path) -> None:
    """Its master's death, or servers that restarted empty, tell it nothing about where the next one is."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 2) as servers:
        ends = [await master_on(server) for server in servers]
        async with running(clock, everywhere(servers), broker_id=1) as agent:
            await agent.registered()
            for end, server in zip(ends, servers, strict=True):
                end()
                await until(lambda server=server: brokers(server) == {NAME: {1: ADDR}})  # type: ignore[misc]
            await clock.advance(60)
            assert M1 == known_master(agent)


async def test_slave_does_not_count_what_dead_servers_said(tmp_path: Path) -> None:
    """Two of three servers die, and then the master moves: the last one alone knows better than two that are gone."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers, AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(TcpProxy(server.address)) for server in servers]
        for server in servers:
            await master_on(server)
        async with running(clock, ";".join(proxy.address for proxy in proxies), broker_id=1) as agent:
            await agent.registered()
            for proxy in proxies[:2]:
                proxy.cut()
            await master_on(servers[2], *M2)
            await passing(clock, lambda: known_master(agent) == M2, at_most=28.5)


async def test_promoted_slave_has_no_master(tmp_path: Path) -> None:
    """And learns where it is when it is demoted again."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 1) as (server,):
        await master_on(server)
        async with running(clock, address_of(server), broker_id=1) as agent:
            await agent.registered()
            await agent.promote()
            assert agent.master is None
            await agent.demote(3)
            await master_on(server, *M2)
            await passing(clock, lambda: known_master(agent) == M2, at_most=28.5)


async def test_change_of_the_smallest_id_arrives_as_a_callback(tmp_path: Path) -> None:
    """905 over the agent's own connection; the slave asks at once where the master is, and does not wait for 30 s."""
    clock = FakeClock()
    told: list[tuple[int | None, str | None, str | None]] = []
    async with (
        namesrv_in_process(tmp_path, clock=clock, notify_min_broker_id_changed=True) as server,
        running(
            clock,
            address_of(server),
            broker_id=1,
            enable_acting_master=True,
            options={
                "on_min_broker_id_changed": lambda notice: told.append(
                    (notice.min_broker_id, notice.min_broker_addr, notice.offline_broker_addr)
                )
            },
        ) as agent,
    ):
        await agent.registered()
        end = await master_on(server)
        await until(lambda: known_master(agent) == M1)
        assert [(0, M1[0], None)] == told

        end()
        await until(lambda: len(told) == 2)
        assert (1, ADDR, M1[0]) == told[1]
        assert 1_000.0 == clock.monotonic()
        assert M1 == known_master(agent)


async def test_callbacks_that_fail_do_not_end_a_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says what the broker's own code did."""

    def fails(_: object) -> None:
        raise ZeroDivisionError

    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock, notify_min_broker_id_changed=True) as server,
        running(
            clock,
            address_of(server),
            broker_id=1,
            options={"on_min_broker_id_changed": fails, "on_master_changed": fails},
        ) as agent,
    ):
        await agent.registered()
        await master_on(server)
        await until(lambda: agent.master)
        await clock.advance(120)
        assert ("registered", {NAME: {0: M1[0], 1: ADDR}}) == (
            agent.servers[address_of(server)].status,
            brokers(server),
        )
        assert [] == server.effects_of(Evicted)
    assert 2 == len([record for record in caplog.records if "callback" in record.getMessage()])
