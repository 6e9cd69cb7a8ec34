"""The agent and its NameServers: topics, lists of servers, start, stop and drain."""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import BrokerAgent, SyncBrokerAgent, TopicConfig
from namesrv_remoting.codes import Permission
from tests.support.agents import (
    ADDR,
    NAME,
    TOPICS,
    agent_settings,
    brokers,
    everywhere,
    name_servers,
    played,
    queues,
    real,
    registrations,
    running,
    sockets,
    versions,
)
from tests.support.fake_clock import FakeClock, completed, passing, settle, until
from tests.support.hanging_list import opened_by_reader
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.tcp_proxy import TcpProxy

REFUNDS = TopicConfig("refunds", 2, 2)


async def until_each(servers: list[InProcess], topic: str, expected: tuple[int, int, int] | None) -> None:
    """Return once every server has these queues of a topic."""
    await until(lambda: [queues(server, topic) for server in servers] == [expected] * len(servers))


# -- topics -----------------------------------------------------------------------------------------------------------


async def test_every_server_gets_the_table_and_each_change(tmp_path: Path) -> None:
    """Each server has a connection of its own; a change counts the version up and is sent at once."""
    clock = FakeClock(wall=5_000.0)
    async with name_servers(tmp_path, clock) as servers, running(clock, everywhere(servers)) as agent:
        assert await agent.registered() == len(sockets(agent)) == 3
        await clock.advance(1)
        for server in servers:
            assert (await versions(server), len(server.namesrv.slots.connections)) == ([("full", 0, 0, 5_000_000)], 1)
            assert (queues(server, "orders"), queues(server, "bills")) == ((8, 8, 6), (4, 4, 6))
            assert agent.servers[server.where].status == "registered"
        known = "3 of 3 servers | <BrokerTopics [2 topics | version 0]>"
        assert repr(agent) == f"<BrokerAgent [{NAME}:0 at {ADDR} | {known}]>"
        for counter, (change, topic, expected) in enumerate(
            [
                (agent.create_topic(TopicConfig("refunds", 2, 1)), "refunds", (2, 1, 6)),
                (agent.update_topic(TopicConfig("refunds", 3, 3)), "refunds", (3, 3, 6)),
                (agent.set_perm("orders", Permission.READ), "orders", (8, 8, 4)),
                (agent.delete_topic("bills"), "bills", None),
            ],
            start=1,
        ):
            await change
            await until_each(servers, topic, expected)
            for server in servers:
                assert (await versions(server))[-1] == ("delta", counter, 0, 5_001_000)
            assert await agent.registered() == 3
        assert (set(agent.topics), clock.monotonic()) == ({"orders", "refunds"}, 1_001.0)


# -- the list of servers ----------------------------------------------------------------------------------------------


async def test_servers_join_and_leave_with_the_list(tmp_path: Path) -> None:
    """The removed server gets an unregistration and a closed connection, the new one the table, the third nothing."""
    clock = FakeClock()
    source = tmp_path / "servers"
    async with name_servers(tmp_path, clock) as servers:
        stays, leaves, joins = servers
        source.write_text(f"{stays.where}\n{leaves.where}\n")
        async with running(clock, f"file:{source}", refresh_seconds=10.0) as agent:
            await agent.registered()
            source.write_text(f"{joins.where};{stays.where}")
            await clock.advance(10)
            await until(lambda: brokers(joins) and not brokers(leaves))
            await until(lambda: not leaves.namesrv.slots.connections)
            await until(lambda: agent.servers.keys() == {stays.where, joins.where})

            assert len(leaves.events("unregister")) == 1
            assert (await registrations(joins), await registrations(stays)) == ([("full", 2)], [("full", 2)])
            assert await agent.registered() == 2


async def test_server_that_comes_back_at_another_address_joins_soon(tmp_path: Path) -> None:
    """Clients believe a server 45 s after its start: by then the agent has to know the server's new address."""
    clock, source = FakeClock(), tmp_path / "servers"
    async with name_servers(tmp_path, clock) as (stays, leaves, joins), TcpProxy(leaves.address) as proxy:
        source.write_text(f"{stays.where};{proxy.address}")
        async with running(clock, f"file:{source}") as agent:
            assert await agent.registered() == 2
            await clock.advance(60.0)
            proxy.cut()
            await passing(clock, lambda: agent.servers[proxy.address].status == "unreachable")
            source.write_text(f"{stays.where};{joins.where}")

            await clock.advance(15.0)
            await until(lambda: brokers(joins))
            assert await registrations(stays) == [("full", 2)]


@pytest.mark.parametrize(
    ("count", "error"),
    [
        (0, "count=0: must be 1 or more"),
        (3, "count=3: the agent has 2 name servers ({addresses})"),
    ],
)
async def test_impossible_count_is_refused(tmp_path: Path, count: int, error: str) -> None:
    """A count above the number of servers could never be reached."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 2) as servers:
        addresses = [server.where for server in servers]
        async with running(clock, ";".join(addresses)) as agent:
            with pytest.raises(ValueError, match=f"^{re.escape(error.format(addresses=', '.join(addresses)))}$"):
                await agent.registered(count=count)
            assert await agent.registered(count=2) == 2


async def test_start_does_not_wait_for_a_hanging_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After three seconds the broker starts without servers and logs it; the servers join once they are known."""
    clock, pipe = FakeClock(), tmp_path / "servers"
    os.mkfifo(pipe)
    async with name_servers(tmp_path, clock, 1) as (server,):
        agent = BrokerAgent(agent_settings(f"file:{pipe}"), TOPICS, clock=clock)
        starting = asyncio.create_task(agent.__aenter__())
        with await opened_by_reader(pipe) as silent:
            await clock.advance(2.9)
            assert not starting.done()
            await clock.advance(0.1)
            await starting
            assert agent.servers == {}
            assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
                f"name servers from file:{pipe}: no answer yet"
            ]
            waiting = asyncio.create_task(agent.registered())
            silent.write(server.where)
        assert await waiting == 1
        await agent.stop()


async def test_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    """A cancelled start leaves no task behind, and the agent can start again."""
    clock, pipe = FakeClock(), tmp_path / "servers"
    os.mkfifo(pipe)
    agent = BrokerAgent(agent_settings(f"file:{pipe}"), TOPICS, clock=clock)
    starting = asyncio.create_task(agent.__aenter__())
    with await opened_by_reader(pipe):
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("namesrv-agent")] == []
    pipe.unlink()
    pipe.write_text("127.0.0.1:1")
    async with agent:
        assert (agent.name_servers_error, list(agent.servers)) == (None, ["127.0.0.1:1"])


# -- restarts ---------------------------------------------------------------------------------------------------------


async def test_agent_starts_again_after_a_stop(tmp_path: Path) -> None:
    """A restarted agent has its topics, write permission after a drain, and higher numbers."""
    async with real(tmp_path) as it:
        with pytest.raises(RuntimeError, match=r"^the agent is already started$"):
            await it.agent.__aenter__()
        await it.agent.delete_topic("bills")
        await it.agent.registered()
        draining = asyncio.ensure_future(it.agent.drain())
        await passing(it.clock, draining.done)
        assert brokers(it.server) == {}
        await it.server.forget()
        async with it.agent:
            assert await it.agent.registered() == 1
            assert await registrations(it.server) == [("full", 1)]
            assert (queues(it.server, "orders"), queues(it.server, "bills")) == ((8, 8, 6), None)
            assert next(iter(it.server.namesrv.manager.tables.broker_live_table.values())).registration_seq == 4


async def test_start_waits_for_a_stop_whose_caller_was_cancelled(tmp_path: Path) -> None:
    """The stop goes on, and must not end the links of the agent that is started again."""
    async with real(tmp_path) as it:
        stopping = asyncio.create_task(it.agent.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait([stopping])
        async with it.agent:
            assert await it.agent.registered() == 1
            await settle()
            assert (list(it.agent.servers), brokers(it.server)) == ([it.proxy.address], {NAME: {0: ADDR}})


def test_agent_starts_again_in_another_loop(tmp_path: Path) -> None:
    """A stopped agent may start in a second `asyncio.run`, also after waits and concurrent changes in the first."""
    servers = tmp_path / "servers"
    agent = BrokerAgent(agent_settings(f"file:{servers}"))

    async def run(number: int) -> int:
        async with namesrv_in_process(tmp_path / str(number)) as server:
            servers.write_text(server.where)
            async with agent:
                await asyncio.gather(*(agent.create_topic(TopicConfig(f"t{number}-{each}")) for each in range(3)))
                return await agent.registered()

    assert [asyncio.run(run(number)) for number in (1, 2)] == [1, 1]


# -- stopping ---------------------------------------------------------------------------------------------------------


async def test_stop_unregisters_everywhere_at_once(tmp_path: Path) -> None:
    """A stop takes no time, and a second one does nothing."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock) as servers, running(clock, everywhere(servers)) as agent:
        await agent.registered()
        await agent.stop()
        await agent.stop()

        assert (clock.monotonic(), agent.servers) == (1_000.0, {})
        for server in servers:
            assert len(server.events("unregister")) == 1
            assert [event["reason"] for event in server.events("evict")] == ["unregistered"]
        await until(lambda: not any(server.namesrv.slots.connections for server in servers))
        # no task is left
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("namesrv-agent")] == []


@pytest.mark.parametrize(("stop_seconds", "asking"), [(3.0, 2.0), (1.0, 0.5)])
async def test_second_stop_waits_for_the_first(stop_seconds: float, asking: float) -> None:
    """A cancelled second stop does not cancel the first."""
    async with played(stop_seconds=stop_seconds) as it:
        peer = await it.registers()
        stops = [asyncio.create_task(it.agent.stop()) for _ in range(3)]
        assert (await peer.receive()).code == 104
        stops[0].cancel()
        await settle()
        assert [stop.done() for stop in stops] == [True, False, False]

        # the rest of the time is for closing
        await it.clock.advance(asking - 0.1)
        assert not stops[1].done()
        await it.clock.advance(0.1)
        await peer.gone()
        await asyncio.gather(*stops[1:])
        assert it.agent.servers == {}


async def test_stop_keeps_its_deadline_when_a_server_hangs(tmp_path: Path) -> None:
    """The other servers are unregistered at once, and the connection to the hanging one is closed."""
    clock = FakeClock()
    async with name_servers(tmp_path, clock, 2) as servers, TcpProxy(servers[1].address) as proxy:
        async with running(clock, f"{servers[0].where};{proxy.address}") as agent:
            await agent.registered()
            proxy.stall()
            stopping = asyncio.ensure_future(agent.stop())
            await until(lambda: not brokers(servers[0]))
            assert (clock.monotonic(), stopping.done()) == (1_000.0, False)

            assert await completed(clock, stopping) <= 3.0 + 0.1
        assert (sockets(agent), brokers(servers[1])) == ([], {NAME: {0: ADDR}})
        await proxy.heal()
        await until(lambda: not brokers(servers[1]))


async def test_stop_unregisters_over_a_new_connection(tmp_path: Path) -> None:
    """After a timeout two connections exist for a moment; the broker unregisters over the remaining one."""
    async with real(tmp_path) as it:
        it.proxy.stall()
        await it.passing(lambda: it.state.status == "unreachable")
        await it.passing(lambda: it.proxy.connections == 2)
        stopping = asyncio.ensure_future(it.agent.stop())
        await settle()
        await it.proxy.heal()
        await completed(it.clock, stopping)
        await until(lambda: not brokers(it.server) and it.proxy.connections == 0)


async def test_drain_removes_write_permission_then_unregisters(tmp_path: Path) -> None:
    """A drain lasts one poll period, so that all clients see the removed write permission before the broker leaves.

    Topics created during the drain are read-only, and a server that was unreachable gets the current table.
    """
    clock = FakeClock()
    async with (
        name_servers(tmp_path, clock, 3) as servers,
        TcpProxy(servers[2].address) as proxy,
        running(clock, f"{everywhere(servers[:2])};{proxy.address}") as agent,
    ):
        await agent.registered()
        proxy.cut()
        await until(lambda: not brokers(servers[2]))
        draining = asyncio.ensure_future(agent.drain())
        await until_each(servers[:2], "orders", (8, 8, 4))
        for server in servers[:2]:
            assert (queues(server, "bills"), (await versions(server))[-1][:3]) == ((4, 4, 4), ("full", 1, 0))
        began = clock.monotonic()
        await settle()
        await agent.create_topic(REFUNDS)
        await until_each(servers[:2], "refunds", (2, 2, 4))
        await proxy.heal()
        await passing(clock, lambda: queues(servers[2], "orders") == (8, 8, 4), at_most=1)

        await clock.advance(29.9 - (clock.monotonic() - began))
        assert not draining.done()
        for server in servers[:2]:
            assert brokers(server) == {NAME: {0: ADDR}}
            # the broker is still registered
            assert server.heartbeats
        await clock.advance(0.1)
        await draining
        assert began + 30.0 == pytest.approx(clock.monotonic())
        assert [(brokers(server), len(server.events("unregister"))) for server in servers] == [({}, 1)] * 3


async def test_drain_does_not_stop_a_later_start(tmp_path: Path) -> None:
    """A drain that another task has cut short with a stop leaves the agent alone when it starts again."""
    async with real(tmp_path) as it:
        draining = asyncio.ensure_future(it.agent.drain())
        await until(lambda: queues(it.server, "orders") == (8, 8, 4))
        await it.agent.stop()
        async with it.agent:
            assert await it.agent.registered() == 1
            await it.clock.advance(30.0)
            await draining
            assert queues(it.server, "orders") == (8, 8, 6)


async def test_agent_that_is_not_started_is_neither_registered_nor_drained() -> None:
    """Both calls fail at once, because nothing registers the broker; after a stop, a drain has nothing left to do."""
    agent = BrokerAgent(agent_settings("127.0.0.1:1"), clock=FakeClock())
    calls: list[Callable[[], Awaitable[object]]] = [agent.registered, agent.drain]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"^the agent is not started$"):
            await call()
    async with agent:
        pass
    with pytest.raises(RuntimeError, match=r"^the agent is not started$"):
        await agent.registered()
    await agent.drain()


@pytest.mark.parametrize("make", [BrokerAgent, SyncBrokerAgent])
@pytest.mark.parametrize("settings", ["127.0.0.1:1", {"tls_key_password": "secret"}, None])
def test_settings_of_another_type_are_refused(make: Any, settings: object) -> None:
    """The error names the type, and not the value, which may hold a secret."""
    with pytest.raises(TypeError, match=rf"^settings: {type(settings).__name__} instead of AgentSettings$"):
        make(settings)


async def _changed(_: object) -> None:
    """A callback that would never be awaited."""


@pytest.mark.parametrize("name", ["on_ready", "on_master_changed", "on_min_broker_id_changed", "state"])
@pytest.mark.parametrize(
    ("callback", "reason"),
    [(_changed, "a coroutine function would never be awaited"), ({"depth": 17}, "{'depth': 17} is not a function")],
)
def test_value_in_place_of_a_function_is_refused(name: str, callback: Any, reason: str) -> None:
    """The constructor refuses a value that the agent would fail to call later."""
    with pytest.raises(TypeError, match=f"^{name}: {reason}"):
        BrokerAgent(agent_settings("127.0.0.1:1"), **{name: callback})
