"""An agent can be started, stopped and started again in any order, and nothing holds up its start."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from namesrv.routeinfo.records import Registered
from namesrv_broker_agent import BrokerAgent, TopicConfig
from tests.support.agents import (
    TOPICS,
    accepted,
    address_of,
    agent_settings,
    brokers,
    queues,
    registrations,
    running,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.guard import GUARD_SECONDS
from tests.support.in_process import namesrv_in_process
from tests.support.raw_peer import until
from tests.support.scripted_server import ScriptedServer


async def test_started_agent_is_not_started_again(tmp_path: Path) -> None:
    """It says so, and goes on."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, running(clock, address_of(server)) as agent:
        with pytest.raises(RuntimeError, match=r"^the agent is started already$"):
            await agent.__aenter__()

        assert 1 == await agent.registered()
    assert [("full", 2)] == registrations(server)


async def test_nothing_to_stop_and_nothing_to_drain() -> None:
    """Neither does anything before it is started; topics may be changed all the same."""
    clock = FakeClock()
    agent = BrokerAgent(agent_settings("127.0.0.1:1"), TOPICS, clock=clock)
    await agent.create_topic(TopicConfig("refunds"))
    await agent.stop()
    await agent.drain()

    assert 0 == clock.sleepers
    assert {} == agent.servers
    assert ["orders", "bills", "refunds"] == list(agent.topics)


async def test_second_life_of_the_same_agent(tmp_path: Path) -> None:
    """It registers again, with the topics of then, under a number that the server takes for newer."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server:
        agent = BrokerAgent(agent_settings(address_of(server)), TOPICS, clock=clock)
        async with agent:
            await agent.registered()
            await agent.delete_topic("bills")
            await agent.registered()
        assert {} == brokers(server)
        server.effects.clear()
        async with agent:
            assert 1 == await agent.registered()
            assert [("full", 1)] == registrations(server)
            assert ((8, 8, 6), None) == (queues(server, "orders"), queues(server, "bills"))
            assert 3 == server.effects_of(Registered)[0].live.registration_seq


async def test_second_stop_waits_for_the_first() -> None:
    """Whoever returns from it can rely on it; who gives up waiting takes it from nobody."""
    clock = FakeClock()
    async with ScriptedServer() as server:
        agent = BrokerAgent(agent_settings(server.address), TOPICS, clock=clock)
        await agent.__aenter__()
        peer = await accepted(server)
        await agent.registered()
        stops = [asyncio.create_task(agent.stop()) for _ in range(3)]
        assert 104 == (await peer.receive()).code
        stops[0].cancel()
        await settle()
        assert [True, False, False] == [stop.done() for stop in stops]

        # one second before stop_seconds: the rest is for closing
        await clock.advance(1.9)
        assert not stops[1].done()
        await clock.advance(0.1)
        await peer.gone()
        await asyncio.gather(*stops[1:])
        assert {} == agent.servers


async def test_drain_that_is_given_up_while_it_leaves_still_leaves() -> None:
    """As by a signal in that moment: the end of the block waits until the server has been told."""
    clock = FakeClock()
    async with ScriptedServer() as server:
        agent = BrokerAgent(agent_settings(server.address, client_poll_seconds=0.0), TOPICS, clock=clock)
        async with agent:
            peer = await accepted(server)
            await agent.registered()
            draining = asyncio.create_task(agent.drain())
            drained = await peer.receive()
            assert 103 == drained.code
            peer.answer(drained.opaque)
            left = await peer.receive()
            assert 104 == left.code
            draining.cancel()
            await settle()
            assert draining.cancelled()
            peer.answer(left.opaque)
        await peer.gone()
        assert {} == agent.servers


# -- a list that hangs -----------------------------------------------------------------------------------------------


class SilentServer:
    """A web server that takes questions, and answers none until the test says so."""

    def __init__(self) -> None:
        self.url = ""
        self.asked = 0
        self._speaks = asyncio.Event()
        self._body = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One question, one answer, some day."""
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        await self._speaks.wait()
        writer.write(f"HTTP/1.0 200 OK\r\n\r\n{self._body}".encode())
        writer.close()

    def answer(self, body: str) -> None:
        """Answer everybody, from now on."""
        self._body = body
        self._speaks.set()


@asynccontextmanager
async def silent_server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SilentServer]:
    """Serve until the block ends."""
    monkeypatch.setenv("no_proxy", "*")
    silent = SilentServer()
    async with asyncio.timeout(GUARD_SECONDS):
        listening = await asyncio.start_server(silent.serve, "127.0.0.1", 0)
        silent.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        try:
            yield silent
        finally:
            silent.answer("")
            listening.close()
            await settle()


async def test_list_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After three seconds the broker starts without, and says so; the servers join as soon as they are known."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, silent_server(monkeypatch) as silent:
        agent = BrokerAgent(agent_settings(silent.url), TOPICS, clock=clock)
        starting = asyncio.create_task(agent.__aenter__())
        await until(lambda: silent.asked)
        await clock.advance(2.9)
        assert not starting.done()
        await clock.advance(0.1)
        await starting
        assert {} == agent.servers
        assert [f"name servers from {silent.url}: no answer yet"] == [
            record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
        ]

        silent.answer(address_of(server))
        await until(lambda: agent.servers)
        assert 1 == await agent.registered()
        await agent.stop()


async def test_start_that_is_given_up_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task goes on looking, and it can be started again."""
    clock = FakeClock()
    async with silent_server(monkeypatch) as silent:
        agent = BrokerAgent(agent_settings(silent.url), TOPICS, clock=clock)
        starting = asyncio.create_task(agent.__aenter__())
        await until(lambda: silent.asked)
        starting.cancel()
        await asyncio.wait([starting])

        assert starting.cancelled()
        assert [] == [task for task in asyncio.all_tasks() if task.get_name().startswith("namesrv-agent")]
        silent.answer("127.0.0.1:1")
        async with agent:
            assert agent.name_servers_error is None
            assert ["127.0.0.1:1"] == list(agent.servers)
