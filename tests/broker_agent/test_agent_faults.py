"""A dead, slow or silent NameServer does not affect the other ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import BrokerAgent, Permission, TopicConfig
from tests.support.agents import (
    ADDR,
    IDENTITY,
    NAME,
    brokers,
    everywhere,
    name_servers,
    queues,
    running,
    unregistration,
)
from tests.support.fake_clock import FakeClock, passing, settle, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import native_registration
from tests.support.scripted_server import HOST, Peer, ScriptedServer
from tests.support.tcp_proxy import TcpProxy

REGISTER, UNREGISTER = 103, 104


@asynccontextmanager
async def proxied(servers: list[InProcess]) -> AsyncIterator[list[TcpProxy]]:
    """A proxy in front of each server."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(TcpProxy(server.address)) for server in servers]


@asynccontextmanager
async def following_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> AsyncIterator[tuple[BrokerAgent, list[InProcess], TcpProxy, TcpProxy]]:
    """An agent that has registered with the first of two servers, their proxies; the second one does not answer."""
    async with name_servers(tmp_path / "data", clock, 2) as servers, proxied(servers) as (old, new):
        new.stall()
        monkeypatch.setenv("SERVERS", old.address)
        async with running(clock, "env:SERVERS", refresh_seconds=2.0) as agent:
            await agent.registered()
            yield agent, servers, old, new


async def test_role_change_does_not_wait_for_unreachable_servers(tmp_path: Path) -> None:
    """Reachable servers have the role when the call returns; a hanging one costs one response timeout."""
    clock = FakeClock()
    async with (
        name_servers(tmp_path, clock, 3) as servers,
        proxied(servers[:2]) as (dead, hole),
        running(clock, f"{everywhere((dead, hole))};{servers[2].where}", broker_id=1) as agent,
    ):
        await agent.registered()
        dead.cut()
        await until(lambda: agent.servers[dead.address].status == "unreachable")
        began = clock.monotonic()
        await agent.promote()
        assert clock.monotonic() == began
        assert [brokers(server) for server in servers[1:]] == [{NAME: {0: ADDR}}] * 2

        hole.stall()
        demoting = asyncio.ensure_future(agent.demote(3))
        await until(lambda: brokers(servers[2]) == {NAME: {3: ADDR}})
        assert clock.monotonic() == began
        assert await passing(clock, demoting.done) <= 5.1


async def test_agent_reconnects_when_its_registration_is_refused_as_stale(tmp_path: Path) -> None:
    """Another peer registers under the agent's id with the highest number over a newer connection."""
    clock = FakeClock()
    errors: list[str] = []
    options = {"on_disconnected": lambda _, error: errors.append(error)}
    async with (
        name_servers(tmp_path, clock, 1) as (server,),
        running(clock, server.where, options=options) as agent,
    ):
        await until(lambda: brokers(server))
        (live,) = server.namesrv.manager.tables.broker_live_table.values()
        forged = {**IDENTITY, "agentId": live.agent_id, "kind": "full", "registrationSeq": 2**63 - 1}
        thief = await server.connect()
        assert (await thief.call(103, forged, native_registration("FORGED"), spelling="native")).code == 0
        assert queues(server, "orders") is None

        await passing(clock, lambda: queues(server, "orders") is not None, at_most=90)

        (state,) = agent.servers.values()
        assert (state.status, state.counts.reconnects) == ("registered", 1)
        assert [error for error in errors if "is taken over" in error and "older than the registered" in error]


async def follows(monkeypatch: pytest.MonkeyPatch, clock: FakeClock, agent: BrokerAgent, addresses: str) -> None:
    """Replace the list of servers in the environment, and wait until the agent uses it."""
    monkeypatch.setenv("SERVERS", addresses)
    await passing(clock, lambda: agent.servers.keys() == set(addresses.split(";")))


@asynccontextmanager
async def with_refused_topic(
    tmp_path: Path, clock: FakeClock, **settings: Any
) -> AsyncIterator[tuple[InProcess, BrokerAgent, TcpProxy]]:
    """An agent whose access file refuses the topic `refunds`, which the broker has created."""
    rule = 'access = "broker-control", clusters = ["cluster-*"], brokers = ["broker-*"], topics = ["orders", "bills"]'
    access = tmp_path / "access.toml"
    access.write_text(f'[accounts.brokers]\nnetworks = ["127.0.0.0/8"]\nmay = [{{ {rule} }}]\n')
    async with (
        namesrv_in_process(tmp_path / "data", clock=clock, access=str(access)) as server,
        TcpProxy(server.address) as proxy,
        running(clock, proxy.address, **settings) as agent,
    ):
        await agent.registered()
        await agent.create_topic(TopicConfig("refunds", 4, 4))
        await until(lambda: agent.servers[proxy.address].counts.refusals == 1)
        yield server, agent, proxy


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_changes_reach_a_server_while_a_topic_is_refused(tmp_path: Path, protocol: str) -> None:
    """A slave becomes master, and permissions, deletions and a drain reach the server; nothing is sent twice."""
    clock = FakeClock()
    async with with_refused_topic(tmp_path, clock, broker_id=1, protocol=protocol) as (server, agent, proxy):
        assert brokers(server) == {NAME: {1: ADDR}}
        promoting = asyncio.ensure_future(agent.promote())
        await until(lambda: brokers(server) == {NAME: {0: ADDR}})
        assert agent.servers[proxy.address].status == "registered"
        await passing(clock, promoting.done, at_most=120)

        await agent.set_perm("bills", Permission.READ)
        await until(lambda: queues(server, "bills") == (4, 4, Permission.READ))
        if protocol == "native":
            # A registration in RocketMQ's protocol deletes no topic.
            await agent.delete_topic("bills")
            await until(lambda: queues(server, "bills") is None)
        applied = len(server.events("register"))
        await clock.advance(28.5)
        await settle()
        assert len(server.events("register")) == applied

        draining = asyncio.ensure_future(agent.drain())
        await until(lambda: queues(server, "orders") == (8, 8, Permission.READ))
        await passing(clock, draining.done, at_most=120)


@pytest.mark.parametrize(
    "lists",
    [
        # A server with IPv4 and IPv6 is two entries of a list, of which one leaves the list for a while.
        ["direct;proxied", "direct", "direct;proxied", "proxied", "direct;proxied"],
        # The list has another name of the same server: the agent registers there before it leaves the old one.
        ["proxied", "direct", "proxied"],
    ],
    ids=["two addresses", "renamed"],
)
async def test_broker_stays_when_an_address_of_its_server_leaves_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lists: list[str]
) -> None:
    """The agent unregisters from a server once, at its own end."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "data", clock=clock) as server,
        TcpProxy(server.address) as proxy,
    ):
        lists = [names.replace("direct", server.where).replace("proxied", proxy.address) for names in lists]
        monkeypatch.setenv("SERVERS", lists[0])
        async with running(clock, "env:SERVERS", refresh_seconds=10.0) as agent:
            await agent.registered()
            for addresses in lists[1:]:
                await follows(monkeypatch, clock, agent, addresses)
                await agent.registered()
                await until(lambda: not agent._links._leaving)
                await settle()
                assert brokers(server) == {NAME: {0: ADDR}}
            assert server.events("unregister") == []
        assert (brokers(server), len(server.events("unregister"))) == ({}, 1)


async def test_broker_registers_again_after_leaving_a_server_without_boot_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache's server removes the broker at the old name's unregister request, whichever connection sends it."""
    clock, codes = FakeClock(), list[int]()

    async def answer_all(server: ScriptedServer) -> None:
        peer = await server.accept()
        while True:
            request = await peer.receive()
            codes.append(request.code)
            peer.answer(request.opaque)

    async with ScriptedServer() as server, TcpProxy((HOST, server.port)) as proxy:
        monkeypatch.setenv("SERVERS", server.address)
        async with running(clock, "env:SERVERS", refresh_seconds=10.0, protocol="rocketmq") as agent:
            answering = [asyncio.create_task(answer_all(server)) for _ in range(2)]
            await agent.registered()
            await follows(monkeypatch, clock, agent, proxy.address)
            await until(lambda: UNREGISTER in codes and not agent._links._leaving)
            await settle()
            assert codes == [REGISTER, REGISTER, UNREGISTER, REGISTER]
        await asyncio.gather(*answering, return_exceptions=True)


async def test_broker_stays_when_its_server_returns_to_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is still leaving the server, because the server that replaced it has not answered."""
    clock = FakeClock()
    async with following_the_list(tmp_path, monkeypatch, clock) as (agent, servers, old, new):
        for address in (new.address, old.address):
            await follows(monkeypatch, clock, agent, address)
        await agent.registered()
        await passing(clock, lambda: not agent._links._leaving)
        await settle()
        assert (brokers(servers[0]), servers[0].events("unregister")) == ({NAME: {0: ADDR}}, [])


async def test_forked_child_closes_the_connections_of_servers_that_the_agent_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent keeps the old connection while the new server does not answer, and a child inherits its socket."""
    clock = FakeClock()
    async with following_the_list(tmp_path, monkeypatch, clock) as (agent, _, _, new):
        before = agent._links.socket_descriptors()
        assert len(before) == 1
        await follows(monkeypatch, clock, agent, new.address)
        assert agent._links._leaving
        assert set(before) <= set(agent._links.socket_descriptors())


async def test_registration_over_a_connection_that_was_given_up_does_not_count() -> None:
    """`registered` waits for the connection that takes the place of one which a forked child shares."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address, protocol="rocketmq") as agent:

        async def registering(number: int) -> tuple[Peer, int]:
            await passing(clock, lambda: server.connections == number)
            peer = await server.accept()
            request = await peer.receive()
            assert request.code == REGISTER
            return peer, request.opaque

        first, opaque = await registering(1)
        first.answer(opaque)
        await agent.registered()
        agent._links.reconnect_except(())
        shared, opaque = await registering(2)
        registered = asyncio.create_task(agent.registered())
        agent._links.reconnect_except(())
        shared.answer(opaque)
        own, opaque = await registering(3)
        assert not registered.done()

        own.answer(opaque)
        assert await registered == 1


@pytest.mark.parametrize("replaced", ["unreachable", "silent", "stopped"])
async def test_wait_for_new_servers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: str) -> None:
    """The agent leaves a server although the new one does not answer, and at once when the agent is stopped."""
    clock = FakeClock()
    async with name_servers(tmp_path / "data", clock, 2) as servers, proxied(servers) as (old, new):
        if replaced == "unreachable":
            new.cut()
        else:
            new.stall()
        monkeypatch.setenv("SERVERS", old.address)
        async with running(clock, "env:SERVERS", refresh_seconds=10.0) as agent:
            await agent.registered()
            monkeypatch.setenv("SERVERS", new.address)
            await passing(clock, lambda: list(agent.servers) == [new.address])
            if replaced != "stopped":
                seconds = await passing(clock, lambda: not brokers(servers[0]))
                assert seconds == pytest.approx(0.0 if replaced == "unreachable" else 5.0, abs=0.3)
        assert brokers(servers[0]) == {}


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
@pytest.mark.parametrize("event", ["none", "reconnect", "unregister"])
async def test_refused_topic_does_not_end_the_registration(tmp_path: Path, protocol: str, event: str) -> None:
    """The access file refuses a registration with the new topic; heartbeats go on, and the other topics stay.

    After a reconnect, and on a server that has lost the broker, the agent registers the other topics again.
    """
    async with with_refused_topic(tmp_path, clock := FakeClock(), protocol=protocol) as (server, agent, proxy):
        if event == "reconnect":
            proxy.cut()
            await until(lambda: not brokers(server))
            await proxy.heal()
        if event == "unregister":
            # A broker that registered in RocketMQ's protocol has no agent id.
            fields = unregistration(server) if protocol == "native" else IDENTITY
            await (await server.connect()).call(104, fields)
            assert brokers(server) == {}
        for _ in range(20):
            await clock.advance(28.5)

        assert (brokers(server), queues(server, "orders")) == ({NAME: {0: ADDR}}, (8, 8, 6))
        state = agent.servers[proxy.address]
        assert (state.status, state.is_settled) == ("registered", False)
        assert "lacks broker-control" in str(state.last_error)
