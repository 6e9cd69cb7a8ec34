"""Agents and NameServers in processes of their own reconnect after one is killed or stopped."""

import asyncio
import signal
from pathlib import Path

import pytest

from namesrv_broker_agent import BrokerAgent
from tests.support.agents import NAME, TOPICS, agent_settings, side_car, sockets
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS, until

# short periods, because the clocks are real
QUICK = {"heartbeat_seconds": 0.5, "answer_timeout_seconds": 0.5, "max_backoff_seconds": 0.2}


async def logged(daemon: Daemon, event: str, *, count: int = 1, **fields: object) -> None:
    """Return once a server has logged an event, without blocking the loop."""
    await asyncio.to_thread(daemon.wait_for, event, count=count, **fields)


def evictions(daemon: Daemon) -> list[str]:
    """The reasons of all evictions."""
    return [line["reason"] for line in daemon.lines("broker_evicted")]


async def test_stopped_server_keeps_the_broker(tmp_path: Path) -> None:
    """The old connection stays until the registration over the new one has arrived."""
    with Daemon(tmp_path / "1") as survivor, Daemon(tmp_path / "2", "--log-level", "debug") as hung:
        settings = agent_settings(f"{survivor.where};{hung.where}", **QUICK)
        async with asyncio.timeout(GUARD_SECONDS), BrokerAgent(settings, TOPICS) as agent:
            assert await agent.registered() == 2
            hung.send_signal(signal.SIGSTOP)
            await until(lambda: agent.servers[hung.where].status == "unreachable")
            # the kernel of the stopped server accepts the next connection
            await until(lambda: len(sockets(agent)) >= 3)
            hung.send_signal(signal.SIGCONT)
            await until(lambda: agent.servers[hung.where].status == "registered")
            await logged(hung, "connection_closed")

            assert (evictions(survivor), evictions(hung)) == ([], [])


@pytest.mark.parametrize("flags", [(), ("--no-evict-on-disconnect",)])
def test_stopped_broker_registers_again(flags: tuple[str, ...], tmp_path: Path) -> None:
    """A broker silent for longer than its expiry is evicted; it registers again when it continues."""
    quick = ("--scan-interval-seconds", "0.2", "--broker-expiry-seconds", "1")
    with Daemon(tmp_path / "1", *quick, *flags) as daemon, side_car(tmp_path / "agent.toml", daemon) as process:
        daemon.wait_for("broker_registered", broker_name=NAME)
        process.send_signal(signal.SIGSTOP)
        assert daemon.wait_for("broker_evicted")["reason"] == "silent"
        process.send_signal(signal.SIGCONT)
        daemon.wait_for("broker_registered", count=2, broker_name=NAME)
        # on a busy machine a second may pass between two heartbeats
        assert {"silent"} == set(evictions(daemon))
