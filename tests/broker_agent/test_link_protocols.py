"""The agent finds out each server's protocol and speaks it."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import TopicConfig
from namesrv_remoting.bodies.compressed import read_compressed
from namesrv_remoting.bodies.extensions import from_msgpack
from namesrv_remoting.bodies.limits import Tally
from tests.support.agents import (
    ADDR,
    IDENTITY,
    NAME,
    address_of,
    brokers,
    ext_of,
    heartbeats,
    native_answer,
    queues,
    registrations,
    running,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.in_process import namesrv_in_process
from tests.support.passing_time import passing
from tests.support.raw_peer import until
from tests.support.scripted_server import Peer, Question, ScriptedServer
from tests.support.steps import finished

REGISTER, DATA_VERSION, HEARTBEAT, SERVER_INFO = 103, 322, 904, 20002


async def registered_in_json(peer: Peer) -> Question:
    """The registration that comes next, which was answered as Apache's server does."""
    question = await peer.receive()
    assert isinstance(question.header, dict), question
    assert REGISTER == question.code
    peer.answer(question.opaque, extFields={})
    return question


# -- RocketMQ's -------------------------------------------------------------------------------------------------------


async def test_rocketmq_registration_is_what_a_5x_broker_sends() -> None:
    """Header fields, CRC of the body, and the body's JSON, by hand."""
    clock = FakeClock(wall=1_700_000_000.0)
    settings: dict[str, Any] = {"ha_server_addr": "10.0.0.1:10912", "zone_name": "z1", "expiry_seconds": 60.0}
    async with (
        ScriptedServer() as server,
        running(clock, server.address, protocol="rocketmq", **settings) as agent,
    ):
        question = await registered_in_json(await server.accept())
        assert 1 == await agent.registered()

        assert {
            **IDENTITY,
            "haServerAddr": "10.0.0.1:10912",
            "heartbeatTimeoutMillis": "60000",
            "enableActingMaster": "false",
            "__ZONE_NAME": "z1",
            "bodyCrc32": str(zlib.crc32(question.body) & 0x7FFFFFFF),
        } == ext_of(question)
        common = {"topicFilterType": "SINGLE_TAG", "perm": 6, "topicSysFlag": 0, "order": False, "attributes": {}}
        assert {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 1_700_000_000_000},
                "topicConfigTable": {
                    "orders": {"topicName": "orders", "readQueueNums": 8, "writeQueueNums": 8, **common},
                    "bills": {"topicName": "bills", "readQueueNums": 4, "writeQueueNums": 4, **common},
                },
                "topicQueueMappingInfoMap": {},
            },
        } == json.loads(question.body)


async def test_rocketmq_reaches_our_server_too(tmp_path: Path) -> None:
    """Registration, heartbeat, change, leave, as for a Java broker."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server:
        async with running(clock, address_of(server), protocol="rocketmq") as agent:
            await agent.registered()
            assert ("rocketmq", None) == (
                agent.servers[address_of(server)].protocol,
                agent.servers[address_of(server)].boot_id,
            )
            await clock.advance(28.5)
            await until(lambda: heartbeats(server))
            await agent.create_topic(TopicConfig("refunds", 2, 2))
            await agent.registered()
            assert (2, 2, 6) == queues(server, "refunds")
            assert [("full", 2), ("full", 3)] == registrations(server)
        await until(lambda: not brokers(server))


@pytest.mark.parametrize(
    ("topics", "registered"),
    [
        ([], {}),
        (["orders"], {"orders": (8, 8, 6), NAME: (1, 1, 4)}),
        # the broker's own name is taken
        ([NAME], {NAME: (8, 8, 6), "SELF_TEST_TOPIC": (1, 1, 4)}),
    ],
)
async def test_rocketmq_broker_with_a_single_topic_registers(
    topics: list[str], registered: dict[str, tuple[int, int, int]], tmp_path: Path
) -> None:
    """A first registration with exactly one topic would be refused; a second topic, which only reads, goes along."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), [TopicConfig(name, 8, 8) for name in topics], protocol="rocketmq") as agent,
    ):
        await agent.registered()
        known = server.namesrv.manager.tables.topic_queue_table
        assert registered == {topic: queues(server, topic) for topic in known}
        assert {NAME: {0: ADDR}} == brokers(server)


async def test_native_broker_with_a_single_topic_needs_no_second(tmp_path: Path) -> None:
    """The native protocol says that it is the whole table."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), [TopicConfig("orders", 8, 8)]) as agent,
    ):
        await agent.registered()
        assert ["orders"] == list(server.namesrv.manager.tables.topic_queue_table)


async def test_rocketmq_change_is_a_full_registration() -> None:
    """Apache's server would hide a lost increment for ever."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address, protocol="rocketmq") as agent:
        peer = await server.accept()
        await registered_in_json(peer)
        await agent.registered()
        await agent.update_topic(TopicConfig("orders", 16, 16))
        question = await registered_in_json(peer)

        wrapper = json.loads(question.body)["topicConfigSerializeWrapper"]
        assert (["orders", "bills"], 1) == (list(wrapper["topicConfigTable"]), wrapper["dataVersion"]["counter"])
        assert 16 == wrapper["topicConfigTable"]["orders"]["readQueueNums"]


@pytest.mark.parametrize(
    ("heartbeat_seconds", "codes"),
    [(30.0, [DATA_VERSION] * 3), (10.0, [DATA_VERSION, HEARTBEAT, HEARTBEAT, DATA_VERSION])],
)
async def test_rocketmq_heartbeat_asks_for_the_data_version(heartbeat_seconds: float, codes: list[int]) -> None:
    """322 says whether the server knows the broker, 904 does not; with short periods not every one has to ask."""
    clock = FakeClock(wall=1_700_000_000.0)
    async with (
        ScriptedServer() as server,
        running(
            clock,
            server.address,
            protocol="rocketmq",
            heartbeat_seconds=heartbeat_seconds,
            options={"random_unit": lambda: 1.0},
        ) as agent,
    ):
        peer = await server.accept()
        await registered_in_json(peer)
        await agent.registered()
        asked = []
        for _ in codes:
            await clock.advance(heartbeat_seconds)
            question = await peer.receive()
            asked.append(question.code)
            assert IDENTITY == ext_of(question)
            if question.code == DATA_VERSION:
                assert {"counter": 0, "stateVersion": 0, "timestamp": 1_700_000_000_000} == json.loads(question.body)
            peer.answer(question.opaque, extFields={"changed": "false"})
            await until(lambda: agent.servers[server.address].last_answer == clock.wall())
        assert codes == asked


async def test_rocketmq_server_with_another_data_version_gets_everything() -> None:
    """Changed, or never heard of: the answer is the same, and so is what follows."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address, protocol="rocketmq") as agent:
        peer = await server.accept()
        await registered_in_json(peer)
        await agent.registered()
        await clock.advance(14.25)
        question = await peer.receive()
        assert DATA_VERSION == question.code
        peer.answer(question.opaque, extFields={"changed": "true"})

        await registered_in_json(peer)
        assert 1 == await agent.registered()


async def test_large_rocketmq_body_is_compressed() -> None:
    """Above 1 MiB, and the header says so, as Java's does not."""
    clock = FakeClock()
    topics = [TopicConfig(f"AbcdefghijklmnopqrstuvwxyzAbcdefghij{number}", 8, 8) for number in range(7_000)]
    async with ScriptedServer() as server, running(clock, server.address, topics, protocol="rocketmq"):
        question = await registered_in_json(await server.accept())
        fields = ext_of(question)

        assert ("true", str(zlib.crc32(question.body) & 0x7FFFFFFF)) == (fields["compressed"], fields["bodyCrc32"])
        found, version, mappings, filter_servers = finished(
            read_compressed(iter([zlib.decompress(question.body)]), with_mappings=True, tally=Tally(7_000))
        )
        assert (7_000, topics[0], topics[-1]) == (len(found), found[0], found[-1])
        assert (0, {}, ()) == (version and version.counter, mappings, filter_servers)


# -- finding out ------------------------------------------------------------------------------------------------------


async def test_auto_finds_our_server_native(tmp_path: Path) -> None:
    """It asks over the connection that it then registers on."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        running(clock, address_of(server), protocol="auto") as agent,
    ):
        await agent.registered()
        assert ("native", server.namesrv.boot_id) == (
            agent.servers[address_of(server)].protocol,
            agent.servers[address_of(server)].boot_id,
        )
        assert 1 == len(server.namesrv.connections)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_auto_falls_back_when_the_connection_is_closed(end: str) -> None:
    """As Apache's server does on a serialize type that it does not know, twice in a row; the next connection stays."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address, protocol="auto") as agent:
        for _ in range(2):
            asked = await server.accept()
            assert SERVER_INFO == (await asked.receive()).code
            getattr(asked, end)()
        peer = await server.accept()
        await registered_in_json(peer)
        assert 1 == await agent.registered()
        for _ in range(2):
            await passing(clock, lambda: agent._links[server.address]._client.pending_count)  # type: ignore[union-attr]
            question = await peer.receive()
            assert DATA_VERSION == question.code
            peer.answer(question.opaque, extFields={"changed": "false"})
            await settle()

        state = agent.servers[server.address]
        assert (3, "registered", "rocketmq", 1) == (
            server.connections,
            state.status,
            state.protocol,
            state.registrations,
        )


async def test_auto_falls_back_when_the_question_is_not_supported() -> None:
    """A server that reads type 77 and does not know 20002 keeps the connection."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address, protocol="auto") as agent:
        peer = await server.accept()
        question = await peer.receive()
        peer.answer(question.opaque, code=3, remark=" request type 20002 not supported")
        await registered_in_json(peer)
        assert 1 == await agent.registered()
        assert 1 == server.connections


@pytest.mark.parametrize(("away", "code", "header"), [(59.0, REGISTER, dict), (60.0, SERVER_INFO, list)])
async def test_auto_asks_again_after_a_minute(away: float, code: int, header: type) -> None:
    """Ours may have taken the place of Apache's server: a connection that is lost after a minute finds that out."""
    clock = FakeClock()
    async with (
        ScriptedServer() as server,
        running(clock, server.address, protocol="auto", heartbeat_seconds=3600.0) as agent,
    ):
        for _ in range(2):
            (await server.accept()).close()
        peer = await server.accept()
        await registered_in_json(peer)
        await agent.registered()
        await clock.advance(away)
        peer.close()
        await passing(clock, lambda: server.connections == 4)

        question = await (await server.accept()).receive()

        assert (code, header) == (question.code, type(question.header))


async def test_auto_registers_at_once_with_a_server_that_it_knows() -> None:
    """It was native a moment ago: nothing is asked first. Closed three times in a row, it is Apache's."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address, protocol="auto") as agent:
        peer = await server.accept()
        for _ in range(2):
            peer.send(native_answer(await peer.receive()))
        await agent.registered()
        for number, code in ((2, REGISTER), (3, SERVER_INFO), (4, SERVER_INFO)):
            peer.close()
            await passing(clock, lambda number=number: server.connections == number)  # type: ignore[misc]  # bound now
            peer = await server.accept()
            question = await peer.receive()
            assert (code, list) == (question.code, type(question.header))
        peer.close()
        question = await registered_in_json(await server.accept())
        assert REGISTER == question.code


async def test_native_change_and_state_are_what_the_extension_says(tmp_path: Path) -> None:
    """LIST_BROKERS shows protocol, DataVersion and the agent's own count."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, running(clock, address_of(server)) as agent:
        await agent.registered()
        await agent.create_topic(TopicConfig("refunds", 2, 2))
        await agent.registered()
        peer = await server.connect()
        (broker,) = from_msgpack((await peer.call(20005, spelling="native")).body)["brokers"]
        assert ("msgpack", 2, 1, 3) == (
            broker["protocol"],
            broker["registration_seq"],
            broker["data_version"]["counter"],
            broker["topics"],
        )
