"""A dead, slow or silent NameServer does not affect the other ones."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.agents import (
    ADDR,
    IDENTITY,
    NAME,
    brokers,
    everywhere,
    heartbeats,
    name_servers,
    queues,
    registrations,
    running,
)
from tests.support.fake_clock import FakeClock, passing, until
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import native_registration
from tests.support.tcp_proxy import TcpProxy


@asynccontextmanager
async def proxied(servers: list[InProcess]) -> AsyncIterator[list[TcpProxy]]:
    """A proxy in front of each server."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(TcpProxy(server.address)) for server in servers]


async def longest_silence(server: InProcess) -> float:
    """The longest time between two heartbeats."""
    return max(later - earlier for earlier, later in pairwise(await heartbeats(server)))


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
        assert began == clock.monotonic()
        assert [brokers(server) for server in servers[1:]] == [{NAME: {0: ADDR}}] * 2

        hole.stall()
        demoting = asyncio.ensure_future(agent.demote(3))
        await until(lambda: brokers(servers[2]) == {NAME: {3: ADDR}})
        assert began == clock.monotonic()
        assert await passing(clock, demoting.done) <= 5.1


async def _restarts_empty(proxy: TcpProxy, successor: InProcess) -> None:
    proxy.cut()
    proxy.target = successor.address
    await proxy.heal()


async def _is_replaced_behind_its_connections(proxy: TcpProxy, successor: InProcess) -> None:
    proxy.switch(successor.address)


async def _dies(proxy: TcpProxy, successor: InProcess) -> None:
    proxy.cut()


async def _hangs(proxy: TcpProxy, successor: InProcess) -> None:
    proxy.stall()


Trouble = Callable[[TcpProxy, InProcess], Awaitable[None]]


@pytest.mark.parametrize("trouble", [_dies, _hangs, _restarts_empty, _is_replaced_behind_its_connections])
async def test_survivor_never_loses_the_broker(trouble: Trouble, tmp_path: Path) -> None:
    """Trouble of one server leaves the other with one registration and punctual heartbeats."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 3) as servers, proxied(servers[:1]) as (proxy,):
        _, successor, survivor = servers
        async with running(clock, f"{proxy.address};{survivor.where}") as agent:
            await agent.registered()
            for _ in range(2):
                await trouble(proxy, successor)
                for _ in range(150):
                    await clock.advance(1)
                    assert brokers(survivor) == {NAME: {0: ADDR}}
                proxy.target = successor.address
                await proxy.heal()
                passed = await passing(clock, lambda: brokers(successor), at_most=30)
                # the agent backs off from a server that hung for minutes, and reconnects to any other one at once
                assert passed <= (5 * 4 + 15 * 0.5 if trouble is _hangs else 1)
            assert survivor.events("evict", "fenced") == []
            assert await registrations(survivor) == [("full", 2)]
            assert await longest_silence(survivor) <= 30
            await passing(clock, lambda: agent.servers[proxy.address].status == "registered")


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
        assert (state.status, state.reconnects) == ("registered", 1)
        assert [error for error in errors if "is taken over" in error and "older than the registered" in error]
