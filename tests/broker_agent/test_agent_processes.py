"""Agents and NameServers in processes of their own find each other again when one is killed or stopped."""

import asyncio
import contextlib
import signal
from pathlib import Path

import pytest

from namesrv_broker_agent import BrokerAgent
from tests.support.agents import NAME, TOPICS, agent_settings, side_car, sockets
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS, until

# quick, because these clocks are real
QUICK = {"heartbeat_seconds": 0.5, "answer_timeout_seconds": 0.5, "max_backoff_seconds": 0.2}


async def logged(daemon: Daemon, event: str, *, count: int = 1, **fields: object) -> None:
    """Return once a server has logged an event, without holding up the loop."""
    await asyncio.to_thread(daemon.wait_for, event, count=count, **fields)


def evictions(daemon: Daemon) -> list[str]:
    """Why brokers left."""
    return [line["reason"] for line in daemon.lines("broker_evicted")]


async def test_server_that_hung_goes_on_without_having_lost_the_broker(tmp_path: Path) -> None:
    """It was too slow for one answer; the old connection is there until it has the registration over the new one."""
    with Daemon(tmp_path / "1") as survivor, Daemon(tmp_path / "2", "--log-level", "debug") as hung:
        settings = agent_settings(f"{survivor.where};{hung.where}", **QUICK)
        async with asyncio.timeout(GUARD_SECONDS), BrokerAgent(settings, TOPICS) as agent:
            assert 2 == await agent.registered()
            hung.send_signal(signal.SIGSTOP)
            await until(lambda: agent.servers[hung.where].status == "unreachable")
            # the kernel takes the next connection for it
            await until(lambda: len(sockets(agent)) >= 3)
            hung.send_signal(signal.SIGCONT)
            await until(lambda: agent.servers[hung.where].status == "registered")
            await logged(hung, "connection_closed")

            assert ([], []) == (evictions(survivor), evictions(hung))


def test_crash_of_the_broker_is_noticed_at_once(tmp_path: Path) -> None:
    """The kernel closes its connections, and every server evicts it without waiting for its expiry."""
    with (
        Daemon(tmp_path / "1") as first,
        Daemon(tmp_path / "2") as second,
        side_car(tmp_path / "agent.toml", first, second) as process,
    ):
        for daemon in (first, second):
            daemon.wait_for("broker_registered", broker_name=NAME)
        process.kill()
        for daemon in (first, second):
            assert "disconnected" == daemon.wait_for("broker_evicted", broker_name=NAME)["reason"]


@pytest.mark.parametrize("flags", [(), ("--no-evict-on-disconnect",)])
def test_broker_that_was_stopped_comes_back_by_itself(flags: tuple[str, ...], tmp_path: Path) -> None:
    """Silent for longer than the expiry, it is evicted and hung up on; when it goes on, it registers anew."""
    quick = ("--scan-interval-seconds", "0.2", "--broker-expiry-seconds", "1")
    with Daemon(tmp_path / "1", *quick, *flags) as daemon, side_car(tmp_path / "agent.toml", daemon) as process:
        daemon.wait_for("broker_registered", broker_name=NAME)
        process.send_signal(signal.SIGSTOP)
        assert "silent" == daemon.wait_for("broker_evicted")["reason"]
        process.send_signal(signal.SIGCONT)
        daemon.wait_for("broker_registered", count=2, broker_name=NAME)
        # on a busy machine a second may pass between two heartbeats, too
        assert {"silent"} == set(evictions(daemon))


@pytest.mark.slow
async def test_server_that_was_stopped_keeps_agents_that_gave_it_up(tmp_path: Path) -> None:
    """The end of an agent's old connection is read before its registration over the next one: it leaves no route.

    Eleven agents with the usual time-outs, of which two to six would be gone for a moment.
    """
    with Daemon(tmp_path, "--log-level", "debug") as daemon:
        async with asyncio.timeout(GUARD_SECONDS), contextlib.AsyncExitStack() as stack:
            agents = []
            for number in range(11):
                broker = {"broker_name": f"broker-{number}", "broker_addr": f"10.0.0.{number}:10911"}
                settings = agent_settings(daemon.where, heartbeat_seconds=2.0, **broker)
                agents.append(await stack.enter_async_context(BrokerAgent(settings, TOPICS)))
            for agent in agents:
                assert await agent.registered() == 1
            daemon.send_signal(signal.SIGSTOP)
            # The agents' time-outs run on a real clock: 5 s for a response, and pauses of up to 15 s.
            await asyncio.sleep(22)
            assert {agent.servers[daemon.where].status for agent in agents} == {"unreachable"}
            daemon.send_signal(signal.SIGCONT)
            await until(lambda: all(agent.servers[daemon.where].status == "registered" for agent in agents))
            await logged(daemon, "connection_closed", count=len(agents))

            assert evictions(daemon) == []
