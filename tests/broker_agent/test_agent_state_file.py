"""Changes reach servers only after they are on disk."""

import asyncio
import os
import re
import resource
import threading
from pathlib import Path

import pytest

from namesrv_broker_agent import TopicConfig
from namesrv_broker_agent.topics import BrokerTopics
from namesrv_remoting.codes import Permission
from tests.support.agents import ADDR, NAME, TOPICS, brokers, queues, real, versions
from tests.support.fake_clock import GUARD_SECONDS, passing, settle, until

REFUNDS = TopicConfig("refunds", 2, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the topics' file."""
    return tmp_path / "topics.json"


class SlowDisk:
    """From now on every write of the topics' file waits until the test releases it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        self._fsync = os.fsync
        self._gate = threading.Semaphore(0)
        # writes that are waiting
        self.began = 0
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor: int) -> None:
        """The last call of a write."""
        if Path(f"/proc/self/fd/{descriptor}").readlink().name.startswith(f".{self._path.name}."):
            self.began += 1
            assert self._gate.acquire(timeout=GUARD_SECONDS)
        self._fsync(descriptor)

    def write(self, count: int = 1) -> None:
        self._gate.release(count)


async def test_change_that_cannot_be_saved_is_not_sent(tmp_path: Path, path: Path) -> None:
    """Neither a topic nor a role is sent; after the disk is repaired, changes continue from the old state."""
    async with real(tmp_path, state_file=path) as it:
        content = path.read_bytes()
        path.unlink()
        path.mkdir()
        await it.server.forget()

        for change in (
            it.agent.create_topic(REFUNDS),
            it.agent.set_perm("orders", Permission.READ),
            it.agent.replace_topics([]),
            it.agent.promote(9),
            it.agent.demote(1),
        ):
            with pytest.raises(IsADirectoryError):
                await change
        await settle()
        assert await it.server.lines("register") == []
        assert (set(it.agent.topics.values()), it.agent.broker_id) == (set(TOPICS), 0)

        path.rmdir()
        path.write_bytes(content)
        await it.agent.create_topic(REFUNDS)
        await it.agent.registered()
        assert queues(it.server, "refunds") == (2, 2, 6)
        assert [(kind, counter) for kind, counter, *_ in await versions(it.server)] == [("delta", 1)]


def test_error_of_a_full_disk_names_the_file(path: Path) -> None:
    """The error of a write has no file name of its own."""
    table = BrokerTopics(TOPICS, path)
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
    try:
        with pytest.raises(OSError, match=re.escape(f"File too large: '{path}'")):
            table.create(REFUNDS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)


async def test_broker_with_a_full_disk_can_be_drained(tmp_path: Path, path: Path) -> None:
    """The broker's topics lose their write permission, and then it unregisters."""
    async with real(tmp_path, state_file=path, client_poll_seconds=30.0) as it:
        path.unlink()
        path.mkdir()
        draining = asyncio.create_task(it.agent.drain())
        await passing(it.clock, lambda: queues(it.server, "orders") == (8, 8, 4))
        assert not draining.done()
        await passing(it.clock, draining.done)

        assert brokers(it.server) == {}
    path.rmdir()


async def test_change_is_sent_once_it_is_on_disk(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow disk heartbeats continue, and the next change waits for this one."""
    async with real(tmp_path, state_file=path) as it:
        await it.server.forget()
        disk = SlowDisk(path, monkeypatch)
        create = asyncio.create_task(it.agent.create_topic(REFUNDS))
        change = asyncio.create_task(it.agent.set_perm("refunds", Permission.READ))
        await until(lambda: disk.began == 1)
        await it.clock.advance(30.0)
        await until(lambda: it.server.heartbeats)
        assert (it.server.events("register"), "refunds" in it.agent.topics) == ([], False)

        disk.write()
        await create
        await until(lambda: queues(it.server, "refunds") == (2, 2, 6))
        await until(lambda: disk.began == 2)
        assert not change.done()
        disk.write()
        await change
        await until(lambda: queues(it.server, "refunds") == (2, 2, 4))


async def test_cancelled_caller_does_not_leave_half_a_change(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change whose caller was cancelled is still saved and sent, and so is the next one that waited for it."""
    async with real(tmp_path, state_file=path) as it:
        disk = SlowDisk(path, monkeypatch)
        work = [it.agent.create_topic(REFUNDS), it.agent.delete_topic("bills")]
        changes = [asyncio.create_task(change) for change in work]
        await until(lambda: disk.began == 1)
        for change in changes:
            change.cancel()
        await settle()
        assert [change.done() for change in changes] == [False, False]
        disk.write(2)
        await asyncio.wait(changes)
        assert [change.cancelled() for change in changes] == [True, True]
        await until(lambda: queues(it.server, "refunds") == (2, 2, 6) and queues(it.server, "bills") is None)
        assert set(it.agent.topics) == {"orders", "refunds"}


async def test_role_whose_change_was_cancelled_is_sent(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller gave up while the disk was slow; the servers get the new role without waiting for a heartbeat."""
    async with real(tmp_path, state_file=path) as it:
        disk = SlowDisk(path, monkeypatch)
        demotion = asyncio.create_task(it.agent.demote(2))
        await until(lambda: disk.began == 1)
        demotion.cancel()
        disk.write()
        await asyncio.wait([demotion])
        assert (demotion.cancelled(), it.agent.broker_id) == (True, 2)
        await until(lambda: brokers(it.server) == {NAME: {2: ADDR}})
