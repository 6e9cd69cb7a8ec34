"""The agent leaves in time, and without a failed send if it is asked to."""

import asyncio
from pathlib import Path

from namesrv.routeinfo.records import Evicted, Unregistered
from namesrv_broker_agent import TopicConfig
from tests.support.agents import (
    ADDR,
    NAME,
    address_of,
    brokers,
    everywhere,
    finished,
    name_servers,
    queues,
    running,
    sockets,
    versions,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.passing_time import passing
from tests.support.raw_peer import until
from tests.support.tcp_proxy import TcpProxy


async def test_stop_unregisters_everywhere_at_once(tmp_path: Path) -> None:
    """No time passes, and a second call does nothing."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers, running(clock, everywhere(servers)) as agent:
        await agent.registered()
        began = clock.monotonic()
        await agent.stop()
        await agent.stop()

        assert began == clock.monotonic()
        for server in servers:
            assert 1 == len(server.effects_of(Unregistered))
            assert ({}, ["unregistered"]) == (
                brokers(server),
                [effect.reason for effect in server.effects_of(Evicted)],
            )
            await until(lambda server=server: not server.namesrv.connections)  # type: ignore[misc]  # bound now
        assert {} == agent.servers


async def test_stop_keeps_its_deadline_when_a_server_hangs(tmp_path: Path) -> None:
    """The others are done at once; the connection to the one that hangs is closed, which tells it enough."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 2) as servers, TcpProxy(servers[1].address) as proxy:
        async with running(clock, f"{address_of(servers[0])};{proxy.address}") as agent:
            await agent.registered()
            proxy.stall()
            began = clock.monotonic()
            stopping = asyncio.ensure_future(agent.stop())
            await until(lambda: not brokers(servers[0]))
            assert began == clock.monotonic()
            assert not stopping.done()

            assert await finished(clock, stopping) <= 3.0 + 0.1
        assert [] == sockets(agent)
        assert {NAME: {0: ADDR}} == brokers(servers[1])
        await proxy.heal()
        await until(lambda: not brokers(servers[1]))


async def test_stop_reaches_servers_that_are_connected_anew(tmp_path: Path) -> None:
    """After a time-out there are two connections for a moment; the broker leaves over the one that there is."""
    clock = FakeClock()
    async with (
        name_servers(tmp_path, clock, 1) as (server,),
        TcpProxy(server.address) as proxy,
        running(clock, proxy.address) as agent,
    ):
        await agent.registered()
        proxy.stall()
        await passing(clock, lambda: agent.servers[proxy.address].status == "unreachable")
        await passing(clock, lambda: proxy.connections == 2)
        stopping = asyncio.ensure_future(agent.stop())
        await settle()
        await proxy.heal()
        await finished(clock, stopping)
        await until(lambda: not brokers(server))
        await until(lambda: proxy.connections == 0)


async def test_drain_takes_writes_away_waits_one_poll_and_leaves(tmp_path: Path) -> None:
    """Nobody sends to a broker that is gone: everybody has polled a route without write permission before."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers, running(clock, everywhere(servers)) as agent:
        await agent.registered()
        draining = asyncio.ensure_future(agent.drain())
        for server in servers:
            await until(lambda server=server: queues(server, "orders") == (8, 8, 4))  # type: ignore[misc]  # bound now
            assert (4, 4, 4) == queues(server, "bills")
            assert ("full", 1, 0) == versions(server)[-1][:3]
        began = clock.monotonic()
        await settle()

        # whatever is created meanwhile cannot be written to either
        await agent.create_topic(TopicConfig("refunds", 2, 2))
        for server in servers:
            await until(lambda server=server: queues(server, "refunds") == (2, 2, 4))  # type: ignore[misc]  # bound now
        await clock.advance(29.9)
        assert not draining.done()
        for server in servers:
            assert {NAME: {0: ADDR}} == brokers(server)
            # still alive
            assert server.touches

        await clock.advance(0.1)
        await draining
        assert began + 30.0 == clock.monotonic()
        for server in servers:
            assert {} == brokers(server)
            assert 1 == len(server.effects_of(Unregistered))


async def test_drain_of_a_server_that_was_away_takes_its_writes_away_too(tmp_path: Path) -> None:
    """It registers with what holds now."""
    clock = FakeClock()
    async with (
        name_servers(tmp_path, clock, 2) as servers,
        TcpProxy(servers[1].address) as proxy,
        running(clock, f"{address_of(servers[0])};{proxy.address}") as agent,
    ):
        await agent.registered()
        proxy.cut()
        await until(lambda: not brokers(servers[1]))
        draining = asyncio.ensure_future(agent.drain())
        await until(lambda: queues(servers[0], "orders") == (8, 8, 4))
        await proxy.heal()
        await passing(clock, lambda: brokers(servers[1]), at_most=1)
        assert (8, 8, 4) == queues(servers[1], "orders")
        await finished(clock, draining)
        assert ({}, {}) == (brokers(servers[0]), brokers(servers[1]))


async def test_agent_that_drained_and_started_again_can_be_written_to(tmp_path: Path) -> None:
    """The drain was of the life before."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 1) as (server,), running(clock, address_of(server)) as agent:
        await agent.registered()
        await finished(clock, agent.drain())
        assert {} == brokers(server)
        async with agent:
            await agent.registered()
            assert (8, 8, 6) == queues(server, "orders")
