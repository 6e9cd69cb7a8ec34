"""Is nothing told to any server that is not on disk, whoever fails or gives up?"""

import asyncio
from pathlib import Path

import pytest

from namesrv.routeinfo.records import Registered, RouteChanged
from namesrv_broker_agent import BrokerAgent, TopicConfig, TopicStateError
from tests.support.agents import (
    TOPICS,
    address_of,
    agent_settings,
    brokers,
    passing,
    queues,
    registrations,
    running,
    versions,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.in_process import namesrv_in_process
from tests.support.raw_peer import until
from tests.support.slow_disk import begin, slow_disk

REFUNDS = TopicConfig("refunds", 2, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the topics are kept."""
    return tmp_path / "topics.json"


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
    with pytest.raises(TopicStateError, match=f"^state file {path} is damaged"):
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
            agent.set_perm("orders", 4),
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


async def test_change_is_told_once_it_is_on_disk(tmp_path: Path, path: Path) -> None:
    """Not while the disk is slow; heartbeats go on, and the next change waits for this one."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), state_file=path) as agent,
    ):
        await agent.registered()
        server.effects.clear()
        async with slow_disk() as disk:
            create, change = await begin(agent.create_topic(REFUNDS), agent.set_perm("refunds", 4))
            assert 1 == disk.waiting
            await clock.advance(30.0)
            assert [] == registrations(server)
            assert "refunds" not in agent.topics

            await disk.write()
            await create
            await until(lambda: queues(server, "refunds") == (2, 2, 6))
            assert not change.done()
            await disk.write()
            await change
            await until(lambda: queues(server, "refunds") == (2, 2, 4))


async def test_who_gives_up_waiting_does_not_leave_half_a_change(tmp_path: Path, path: Path) -> None:
    """A change that is being written is made, and told; one that still waited for its turn, too."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), state_file=path) as agent,
    ):
        await agent.registered()
        async with slow_disk() as disk:
            changes = await begin(agent.create_topic(REFUNDS), agent.delete_topic("bills"))
            for change in changes:
                change.cancel()
            await settle()
            assert [False, False] == [change.done() for change in changes]
            await disk.write()
            await disk.write()
            await asyncio.wait(changes)

        assert [True, True] == [change.cancelled() for change in changes]
        await until(lambda: queues(server, "refunds") == (2, 2, 6))
        await until(lambda: queues(server, "bills") is None)
        assert {"orders", "refunds"} == set(agent.topics)


async def test_given_up_change_that_fails_says_nothing(tmp_path: Path, path: Path) -> None:
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
        async with slow_disk() as disk:
            (change,) = await begin(agent.create_topic(REFUNDS))
            change.cancel()
            await settle()
            await disk.write()
            await asyncio.wait([change])

        assert change.cancelled()
        assert [] == server.effects_of(RouteChanged) + server.effects_of(Registered)
        assert set(TOPICS) == set(agent.topics.values())
