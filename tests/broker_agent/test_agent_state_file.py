"""No server hears of anything that is not on disk, whoever fails or gives up."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from namesrv_broker_agent import BrokerAgent, TopicConfig, TopicStateError
from namesrv_remoting.codes import Permission
from tests.support.agents import (
    TOPICS,
    address_of,
    agent_settings,
    brokers,
    heartbeats,
    queues,
    registrations,
    running,
    versions,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.guard import GUARD_SECONDS
from tests.support.in_process import namesrv_in_process
from tests.support.passing_time import passing
from tests.support.raw_peer import until

REFUNDS = TopicConfig("refunds", 2, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the topics are kept."""
    return tmp_path / "topics.json"


class SlowDisk:
    """Every write of the topics' file waits until the test lets it through."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fsync = os.fsync
        self._gate = threading.Semaphore(0)
        # writes that have come this far
        self.began = 0

    def fsync(self, descriptor: int) -> None:
        """What the write calls once everything is written."""
        if Path(f"/proc/self/fd/{descriptor}").readlink().name.startswith(f".{self._path.name}."):
            self.began += 1
            assert self._gate.acquire(timeout=GUARD_SECONDS)
        self._fsync(descriptor)

    def write(self, count: int = 1) -> None:
        """Let some through."""
        self._gate.release(count)


@pytest.fixture
def slow_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], SlowDisk]:
    """Makes the disk slow from now on."""

    def begin() -> SlowDisk:
        disk = SlowDisk(path)
        monkeypatch.setattr(os, "fsync", disk.fsync)
        return disk

    return begin


async def test_topics_and_version_survive_the_broker(tmp_path: Path, path: Path) -> None:
    """A second life registers what the first one had, under the version it had."""
    clock = FakeClock(wall=1_000.0)
    async with namesrv_in_process(tmp_path, clock=clock) as server:
        async with running(clock, address_of(server), state_file=path) as agent:
            await agent.create_topic(REFUNDS)
            await agent.promote(4)
            await agent.registered()
        assert [("full", 2, 4, 1_000_000)] == versions(server)[-1:]
        server.effects.clear()

        await clock.advance(60.0)
        async with running(clock, address_of(server), (), state_file=path) as agent:
            await agent.registered()
            assert {*TOPICS, REFUNDS} == set(agent.topics.values())
        assert [("full", 2, 4, 1_000_000)] == versions(server)


async def test_damaged_file_is_an_error_before_anything_is_said(tmp_path: Path, path: Path) -> None:
    """The agent cannot be made, and the file is as it was."""
    path.write_bytes(b"damaged")
    with pytest.raises(TopicStateError, match=f"^state file {path} cannot be used: truncated or not a sealed file"):
        BrokerAgent(agent_settings("127.0.0.1:1", state_file=path), TOPICS)

    assert b"damaged" == path.read_bytes()


async def test_change_that_cannot_be_kept_is_not_told(tmp_path: Path, path: Path) -> None:
    """Neither a topic nor a role; once the disk is well again, everything goes on from where it was."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), state_file=path) as agent,
    ):
        await agent.registered()
        content = path.read_bytes()
        path.unlink()
        path.mkdir()
        server.effects.clear()

        for change in (
            agent.create_topic(REFUNDS),
            agent.set_perm("orders", Permission.READ),
            agent.replace_topics([]),
            agent.promote(9),
            agent.demote(1),
        ):
            with pytest.raises(IsADirectoryError):
                await change
        await settle()
        assert [] == server.effects
        assert set(TOPICS) == set(agent.topics.values())
        assert 0 == agent.broker_id

        path.rmdir()
        path.write_bytes(content)
        await agent.create_topic(REFUNDS)
        await agent.registered()
        assert (2, 2, 6) == queues(server, "refunds")
        assert [("delta", 1)] == [(kind, counter) for kind, counter, *_ in versions(server)]


async def test_broker_whose_disk_is_full_can_still_be_drained(tmp_path: Path, path: Path) -> None:
    """That may be why it is: its topics lose their write permission, and then it leaves."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), state_file=path, client_poll_seconds=30.0) as agent,
    ):
        await agent.registered()
        path.unlink()
        path.mkdir()
        draining = asyncio.create_task(agent.drain())
        await passing(clock, lambda: queues(server, "orders") == (8, 8, 4))
        assert not draining.done()
        await passing(clock, draining.done)

        assert {} == brokers(server)
    path.rmdir()


async def test_change_is_told_once_it_is_on_disk(tmp_path: Path, path: Path, slow_disk: Callable[[], SlowDisk]) -> None:
    """Not while the disk is slow; heartbeats go on, and the next change waits for this one."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), state_file=path) as agent,
    ):
        await agent.registered()
        server.effects.clear()
        disk = slow_disk()
        create = asyncio.create_task(agent.create_topic(REFUNDS))
        change = asyncio.create_task(agent.set_perm("refunds", Permission.READ))
        await until(lambda: disk.began == 1)
        await clock.advance(30.0)
        await until(lambda: heartbeats(server))
        assert [] == registrations(server)
        assert "refunds" not in agent.topics

        disk.write()
        await create
        await until(lambda: queues(server, "refunds") == (2, 2, 6))
        await until(lambda: disk.began == 2)
        assert not change.done()
        disk.write()
        await change
        await until(lambda: queues(server, "refunds") == (2, 2, 4))


async def test_who_gives_up_waiting_does_not_leave_half_a_change(
    tmp_path: Path, path: Path, slow_disk: Callable[[], SlowDisk]
) -> None:
    """A change that is being written is made, and told; one that still waited for its turn, too."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), state_file=path) as agent,
    ):
        await agent.registered()
        disk = slow_disk()
        changes = [asyncio.create_task(agent.create_topic(REFUNDS)), asyncio.create_task(agent.delete_topic("bills"))]
        await until(lambda: disk.began == 1)
        for change in changes:
            change.cancel()
        await settle()
        assert [False, False] == [change.done() for change in changes]
        disk.write(2)
        await asyncio.wait(changes)

        assert [True, True] == [change.cancelled() for change in changes]
        await until(lambda: queues(server, "refunds") == (2, 2, 6))
        await until(lambda: queues(server, "bills") is None)
        assert {"orders", "refunds"} == set(agent.topics)


async def test_given_up_change_that_fails_says_nothing(
    tmp_path: Path, path: Path, slow_disk: Callable[[], SlowDisk]
) -> None:
    """Nobody waits for its error, and nothing has changed."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), state_file=path) as agent,
    ):
        await agent.registered()
        server.effects.clear()
        path.unlink()
        path.mkdir()
        disk = slow_disk()
        change = asyncio.create_task(agent.create_topic(REFUNDS))
        await until(lambda: disk.began == 1)
        change.cancel()
        await settle()
        disk.write()
        await asyncio.wait([change])

        assert change.cancelled()
        await settle()
        assert [] == registrations(server)
        assert set(TOPICS) == set(agent.topics.values())
