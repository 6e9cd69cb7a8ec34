"""A change reaches a NameServer, whatever becomes of it on the way."""

from pathlib import Path

import pytest

from namesrv_broker_agent import TopicConfig
from namesrv_remoting.bodies.extensions import from_msgpack
from tests.support.agents import (
    accepted,
    address_of,
    ext_of,
    goodbye,
    native_answer,
    registrations,
    running,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.in_process import namesrv_in_process
from tests.support.passing_time import passing
from tests.support.raw_peer import until
from tests.support.scripted_server import ScriptedServer

REGISTER, UNREGISTER = 103, 104


async def test_change_travels_at_once_as_a_delta() -> None:
    """Only what changed, under the DataVersion of the whole table."""
    clock = FakeClock(wall=1_700_000_000.0)
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await accepted(server)
        await passing(clock, lambda: agent.servers[server.address].status == "registered")
        now = clock.monotonic()
        await agent.create_topic(TopicConfig("refunds", 2, 1))
        question = await peer.receive()

        assert now == clock.monotonic()
        assert (REGISTER, "delta") == (question.code, ext_of(question)["kind"])
        body = from_msgpack(question.body)
        assert [("refunds", 2, 1, 6)] == [
            (topic["topic_name"], topic["read_queue_nums"], topic["write_queue_nums"], topic["perm"])
            for topic in body["topic_configs"]
        ]
        assert (1, 0) == (body["data_version"]["counter"], body["data_version"]["state_version"])
        assert [] == body["deleted_topics"]
        peer.send(native_answer(question))


async def test_changes_during_a_registration_follow_in_one_delta() -> None:
    """While an answer is awaited, changes gather; a topic that came and went is only deleted."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await server.accept()
        question = await peer.receive()
        await agent.create_topic(TopicConfig("refunds", 2, 2))
        await agent.create_topic(TopicConfig("fees", 2, 2))
        await agent.delete_topic("refunds")
        peer.send(native_answer(question))

        delta = await peer.receive()
        body = from_msgpack(delta.body)
        assert "delta" == ext_of(delta)["kind"]
        assert (["fees"], ["refunds"]) == (
            [topic["topic_name"] for topic in body["topic_configs"]],
            body["deleted_topics"],
        )
        with pytest.raises(TimeoutError, match=rf"^not registered within 0 s: {server.address} \(no answer yet\)$"):
            await agent.registered(timeout_seconds=0)
        peer.send(native_answer(delta))
        assert 1 == await agent.registered()


@pytest.mark.parametrize("code", [1, 2])
async def test_refused_delta_is_healed_by_the_next_heartbeat(code: int) -> None:
    """It is not repeated at once, and then as a full registration."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await accepted(server)
        await passing(clock, lambda: agent.servers[server.address].status == "registered")
        await agent.create_topic(TopicConfig("refunds", 2, 2))
        peer.send(native_answer(await peer.receive(), code, remark="no"))
        await until(lambda: agent.servers[server.address].last_error)
        assert "registration refused: no" == agent.servers[server.address].last_error
        await settle()
        assert 0 == agent._links[server.address]._client.pending_count  # type: ignore[union-attr]  # there is one

        await clock.advance(14.2)
        assert 0 == agent._links[server.address]._client.pending_count  # type: ignore[union-attr]  # there is one
        await clock.advance(0.05)
        question = await peer.receive()
        topics = [topic["topic_name"] for topic in from_msgpack(question.body)["topic_configs"]]
        assert ("full", ["orders", "bills", "refunds"]) == (ext_of(question)["kind"], topics)
        peer.send(native_answer(question))
        assert 1 == await agent.registered()
        assert agent.servers[server.address].last_error is None


async def test_delta_of_a_broker_that_is_not_known_becomes_a_full_registration(tmp_path: Path) -> None:
    """The server cannot tell whose change it is; everything follows at once."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, running(clock, address_of(server)) as agent:
        await agent.registered()
        peer = await server.connect()
        await peer.call(UNREGISTER, goodbye(server))
        server.effects.clear()
        await agent.create_topic(TopicConfig("refunds", 2, 2))
        assert 1 == await agent.registered()

        assert [("full", 3)] == registrations(server)


async def test_refused_registration_is_tried_with_every_heartbeat_and_not_more_often() -> None:
    """A server that refuses is asked once in a period, not as fast as it answers."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await server.accept()
        for number in range(4):
            question = await peer.receive()
            assert (REGISTER, number + 1) == (question.code, int(ext_of(question)["registrationSeq"]))
            peer.send(native_answer(question, 1, remark="field brokerId: taken"))
            await until(lambda: agent.servers[server.address].last_error)
            await settle()
            assert 0 == agent._links[server.address]._client.pending_count  # type: ignore[union-attr]  # there is one
            state = agent.servers[server.address]
            assert ("connecting", "registration refused: field brokerId: taken") == (state.status, state.last_error)
            # the first one comes after the phase
            await clock.advance(28.5 if number else 14.25)
        peer.send(native_answer(await peer.receive()))
        assert 1 == await agent.registered()


async def test_full_registration_that_is_not_found_is_a_refusal() -> None:
    """Code 22 to a full registration makes no sense, and is not answered with another one at once."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address) as agent:
        peer = await server.accept()
        peer.send(native_answer(await peer.receive(), 22, remark="what"))
        await until(lambda: agent.servers[server.address].last_error)
        await settle()
        assert 0 == agent._links[server.address]._client.pending_count  # type: ignore[union-attr]  # there is one
