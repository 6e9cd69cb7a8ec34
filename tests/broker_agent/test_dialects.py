"""The frames of registration, heartbeat and leave in each protocol, and the reading of their answers.

Frames are read, and answers written, without the code under test.
"""

import asyncio
import json
import random
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgpack
import pytest

from namesrv_broker_agent import AgentSettings, TopicConfig
from namesrv_broker_agent.dialects import Dialect, NativeDialect, Registered, RocketmqDialect
from namesrv_broker_agent.identity import BrokerIdentity
from namesrv_broker_agent.topics import TopicChange, TopicTable
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.codes import Permission
from namesrv_remoting.errors import QueryNotFoundError, RequestTimeoutError
from tests.support.fake_clock import FakeClock
from tests.support.scripted_server import Peer, Question, ScriptedServer

T = TypeVar("T")

ADDRESS = {"clusterName": "c1", "brokerName": "broker-a", "brokerAddr": "10.0.0.5:10911", "brokerId": "0"}
ORDERS = TopicConfig("orders", 8, 4, 6, 1)
BILLS = TopicConfig("bills", 2, 2, 4, 0)


def identity_of(*topics: TopicConfig, state: Any = None) -> BrokerIdentity:
    """A broker with these topics, under the agent id `agent`."""
    settings = AgentSettings(
        cluster_name="c1", broker_name="broker-a", broker_addr="10.0.0.5:10911", ha_server_addr="10.0.0.5:10912"
    )
    identity = BrokerIdentity(settings, TopicTable(topics, wall=lambda: 1_700_000_000.0), state)
    identity.agent_id = "agent"
    return identity


class Asking:
    """A client, the server that the test plays, and the clock of both."""

    def __init__(self, server: ScriptedServer, client: RemotingClient, clock: FakeClock) -> None:
        self.client = client
        self.clock = clock
        self._server = server
        self._peer: Peer | None = None

    async def ask(self, work: Coroutine[Any, Any, T], **answer: Any) -> tuple[Question, T]:
        """What is asked, and what comes of this answer to it."""
        asking = asyncio.create_task(work)
        question = await self.receive()
        assert self._peer is not None
        self._peer.answer(question.opaque, **answer)
        return question, await asking

    async def receive(self) -> Question:
        """What is asked; it is not answered."""
        if self._peer is None:
            self._peer = await self._server.accept()
        return await self._peer.receive()

    async def question(self, work: Coroutine[Any, Any, object], **answer: Any) -> Question:
        """What is asked."""
        return (await self.ask(work, **answer))[0]


@asynccontextmanager
async def scripted() -> AsyncIterator[Asking]:
    """A server that a client is connected to as soon as it asks."""
    clock = FakeClock()
    async with ScriptedServer() as server, RemotingClient(server.address, clock=clock) as client:
        yield Asking(server, client, clock)


# -- natively --------------------------------------------------------------------------------------------------------


async def test_native_registration() -> None:
    """Everything, under a number, with the kind said; filter servers are left as they are."""
    identity = identity_of(ORDERS, BILLS)
    async with scripted() as asking:
        question = await asking.question(NativeDialect(identity, 5.0).register(asking.client, None))

    assert [103, question.opaque, 0, 479, None] == question.header[:5]
    assert {
        **ADDRESS,
        "haServerAddr": "10.0.0.5:10912",
        "enableActingMaster": "false",
        "agentId": "agent",
        "registrationSeq": "1",
        "kind": "full",
    } == question.header[5]
    assert {
        "topic_configs": [
            {"topic_name": "orders", "read_queue_nums": 8, "write_queue_nums": 4, "perm": 6, "topic_sys_flag": 1},
            {"topic_name": "bills", "read_queue_nums": 2, "write_queue_nums": 2, "perm": 4, "topic_sys_flag": 0},
        ],
        "data_version": {"counter": 0, "state_version": 0, "timestamp": 1_700_000_000_000},
        "topic_queue_mapping_info_map": {},
        "filter_server_list": None,
        "deleted_topics": [],
    } == msgpack.unpackb(question.body)


async def test_native_delta() -> None:
    """What changed, what is gone, the version of now, and the next number."""
    identity = identity_of(ORDERS, BILLS)
    dialect = NativeDialect(identity, 5.0)
    identity.table.set_perm("orders", Permission.READ)
    change = TopicChange((identity.table.topics["orders"],), ("gone",))
    async with scripted() as asking:
        await asking.question(dialect.register(asking.client, None))
        question = await asking.question(dialect.register(asking.client, change))

    assert ("delta", "2") == (question.header[5]["kind"], question.header[5]["registrationSeq"])
    assert {
        "topic_configs": [
            {"topic_name": "orders", "read_queue_nums": 8, "write_queue_nums": 4, "perm": 4, "topic_sys_flag": 1}
        ],
        "data_version": {"counter": 1, "state_version": 0, "timestamp": 1_700_000_000_000},
        "topic_queue_mapping_info_map": {},
        "filter_server_list": None,
        "deleted_topics": ["gone"],
    } == msgpack.unpackb(question.body)


async def test_native_registration_while_draining() -> None:
    """Neither all topics nor changed ones have write permission."""
    identity = identity_of(ORDERS, BILLS)
    identity.is_writable = False
    dialect = NativeDialect(identity, 5.0)
    async with scripted() as asking:
        full = await asking.question(dialect.register(asking.client, None))
        delta = await asking.question(dialect.register(asking.client, TopicChange((ORDERS,))))

    assert [4, 4] == [topic["perm"] for topic in msgpack.unpackb(full.body)["topic_configs"]]
    assert [4] == [topic["perm"] for topic in msgpack.unpackb(delta.body)["topic_configs"]]


async def test_large_native_registration_is_compressed() -> None:
    """From a mebibyte on."""
    names = [f"topic-{number}" for number in range(15_000)]
    identity = identity_of(*map(TopicConfig, names))
    async with scripted() as asking:
        question = await asking.question(NativeDialect(identity, 5.0).register(asking.client, None))

    assert "true" == question.header[5]["compressed"]
    assert len(question.body) < 1 << 20 < len(zlib.decompress(question.body))
    assert names == [topic["topic_name"] for topic in msgpack.unpackb(zlib.decompress(question.body))["topic_configs"]]


async def test_native_heartbeat_carries_the_state() -> None:
    """And the agent, so that a server knows whether it is the one that registered; the answer says which run it was."""
    identity = identity_of(state=lambda: {"queue_depth": 17})
    async with scripted() as asking:
        question, boot_id = await asking.ask(
            NativeDialect(identity, 5.0).heartbeat(asking.client, 0.0), extFields={"boot_id": "b00t"}
        )

    assert [904, question.opaque, 0, 479, None, {**ADDRESS, "agentId": "agent"}] == question.header
    assert {"state": {"queue_depth": 17}} == msgpack.unpackb(question.body)
    assert "b00t" == boot_id


async def test_native_heartbeat_without_state() -> None:
    """No body, and no boot id from a server that says none."""
    async with scripted() as asking:
        question, boot_id = await asking.ask(NativeDialect(identity_of(), 5.0).heartbeat(asking.client, 0.0))

    assert b"" == question.body
    assert boot_id is None


async def test_native_server_that_does_not_know_the_broker() -> None:
    """Its answer is an error that says so."""
    async with scripted() as asking:
        with pytest.raises(QueryNotFoundError, match="not registered"):
            await asking.ask(
                NativeDialect(identity_of(), 5.0).heartbeat(asking.client, 0.0), code=22, remark="not registered"
            )


async def test_native_leave() -> None:
    """It ends the registration of this number and none after it."""
    identity = identity_of()
    dialect = NativeDialect(identity, 5.0)
    async with scripted() as asking:
        await asking.question(dialect.register(asking.client, None))
        question = await asking.question(dialect.unregister(asking.client, 1.0))

    assert [104, question.opaque, 0, 479, None] == question.header[:5]
    assert {**ADDRESS, "agentId": "agent", "registrationSeq": "1"} == question.header[5]


# -- in RocketMQ's protocol ------------------------------------------------------------------------------------------


async def test_rocketmq_registration() -> None:
    """As a 5.x broker says it: a JSON header with the body's checksum, a JSON body, and nothing of ours."""
    identity = identity_of(ORDERS, BILLS)
    async with scripted() as asking:
        question = await asking.question(RocketmqDialect(identity, 5.0).register(asking.client, None))

    assert (103, 0, 479) == tuple(question.header[member] for member in ("code", "flag", "version"))
    assert {
        **ADDRESS,
        "haServerAddr": "10.0.0.5:10912",
        "enableActingMaster": "false",
        "bodyCrc32": str(zlib.crc32(question.body) & 0x7FFFFFFF),
    } == question.header["extFields"]
    assert {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 1_700_000_000_000},
            "topicConfigTable": {
                "orders": {
                    "attributes": {},
                    "order": False,
                    "perm": 6,
                    "readQueueNums": 8,
                    "topicFilterType": "SINGLE_TAG",
                    "topicName": "orders",
                    "topicSysFlag": 1,
                    "writeQueueNums": 4,
                },
                "bills": {
                    "attributes": {},
                    "order": False,
                    "perm": 4,
                    "readQueueNums": 2,
                    "topicFilterType": "SINGLE_TAG",
                    "topicName": "bills",
                    "topicSysFlag": 0,
                    "writeQueueNums": 2,
                },
            },
            "topicQueueMappingInfoMap": {},
        },
    } == json.loads(question.body)


async def test_every_rocketmq_registration_is_a_full_one() -> None:
    """Also after a change: Apache's server would hide a lost increment for ever."""
    async with scripted() as asking:
        question = await asking.question(
            RocketmqDialect(identity_of(ORDERS, BILLS), 5.0).register(asking.client, TopicChange((BILLS,)))
        )

    assert {"orders", "bills"} == topics_in(question)


def topics_in(question: Question) -> set[str]:
    """The names in a JSON registration."""
    return set(json.loads(question.body)["topicConfigSerializeWrapper"]["topicConfigTable"])


@pytest.mark.parametrize(
    ("topics", "registered"),
    [
        ((), set()),
        ((ORDERS,), {"orders", "broker-a"}),
        ((TopicConfig("broker-a"),), {"broker-a", "SELF_TEST_TOPIC"}),
        ((ORDERS, BILLS), {"orders", "bills"}),
    ],
    ids=["none", "one", "one of its own name", "two"],
)
async def test_single_topic_does_not_stay_alone(topics: tuple[TopicConfig, ...], registered: set[str]) -> None:
    """Apache's server refuses a first registration with exactly one; a real broker has one of its own name besides."""
    async with scripted() as asking:
        question = await asking.question(RocketmqDialect(identity_of(*topics), 5.0).register(asking.client, None))

    assert registered == topics_in(question)


async def test_large_rocketmq_registration_is_compressed() -> None:
    """From a mebibyte on: length-prefixed lines in a zlib stream, and the checksum is that of what is sent."""
    identity = identity_of(*(TopicConfig(f"topic-{number}", 8, 4, 6) for number in range(8_000)))
    async with scripted() as asking:
        question = await asking.question(RocketmqDialect(identity, 5.0).register(asking.client, None))

    fields = question.header["extFields"]
    assert ("true", str(zlib.crc32(question.body) & 0x7FFFFFFF)) == (fields["compressed"], fields["bodyCrc32"])
    inflated = zlib.decompress(question.body)
    version = b'{"counter":0,"stateVersion":0,"timestamp":1700000000000}'
    assert b"\0\0\0\x38" + version + b"\0\0\x1f\x40" == inflated[:64]
    assert b"\0\0\0\x1btopic-0 8 4 6 SINGLE_TAG {}" == inflated[64:95]
    assert inflated.endswith(b"topic-7999 8 4 6 SINGLE_TAG {}" + b"\0\0\0\x02[]" + b"\0\0\0\0")


async def test_rocketmq_heartbeat_asks_for_the_version() -> None:
    """322 with our version: an answer that knows it is a heartbeat, and nothing else."""
    identity = identity_of(ORDERS)
    identity.table.bump(5)
    async with scripted() as asking:
        question, boot_id = await asking.ask(
            RocketmqDialect(identity, 5.0).heartbeat(asking.client, 1000.0), extFields={"changed": "false"}
        )

    assert (322, ADDRESS) == (question.code, question.header["extFields"])
    assert {"counter": 1, "stateVersion": 5, "timestamp": 1_700_000_000_000} == json.loads(question.body)
    assert boot_id is None


@pytest.mark.parametrize("fields", [{"changed": "true"}, {}, None], ids=["another", "no answer", "no fields"])
async def test_rocketmq_server_with_another_version_wants_a_registration(fields: dict[str, str] | None) -> None:
    """So it does not know the broker, or not as it is now."""
    members: dict[str, Any] = {} if fields is None else {"extFields": fields}
    async with scripted() as asking:
        with pytest.raises(QueryNotFoundError, match="another DataVersion, or none"):
            await asking.ask(RocketmqDialect(identity_of(), 5.0).heartbeat(asking.client, 0.0), **members)


async def test_close_rocketmq_heartbeats_only_touch() -> None:
    """Less than 25 s after a question for the version it is 904, which Apache's server answers to anybody."""
    dialect = RocketmqDialect(identity_of(), 5.0)
    known = {"extFields": {"changed": "false"}}
    asked = []
    async with scripted() as asking:
        for now in (1000.0, 1010.0, 1024.9, 1025.0, 1049.9, 1050.0):
            question = await asking.question(dialect.heartbeat(asking.client, now), **known)
            asked.append((question.code, question.header["extFields"]))

    assert [(code, ADDRESS) for code in (322, 904, 904, 322, 904, 322)] == asked


async def test_question_for_the_version_that_was_refused_is_asked_again() -> None:
    """The next heartbeat is one that can find out."""
    dialect = RocketmqDialect(identity_of(), 5.0)
    async with scripted() as asking:
        with pytest.raises(QueryNotFoundError):
            await asking.ask(dialect.heartbeat(asking.client, 1000.0), code=22)
        question = await asking.question(dialect.heartbeat(asking.client, 1001.0), extFields={"changed": "false"})

    assert 322 == question.code


async def test_rocketmq_leave() -> None:
    """104 with the address, and nothing of ours."""
    async with scripted() as asking:
        question = await asking.question(RocketmqDialect(identity_of(), 5.0).unregister(asking.client, 1.0))

    assert (104, ADDRESS, b"") == (question.code, question.header["extFields"], question.body)


# -- both ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NativeDialect, RocketmqDialect])
@pytest.mark.parametrize(
    ("answer", "registered"),
    [
        ({}, Registered(None, None, None)),
        ({"extFields": {}}, Registered(None, None, None)),
        ({"extFields": {"boot_id": "b00t"}}, Registered(None, None, "b00t")),
        (
            {"extFields": {"masterAddr": "10.0.0.1:1", "haServerAddr": "10.0.0.1:2"}},
            Registered("10.0.0.1:1", "10.0.0.1:2", None),
        ),
    ],
    ids=["no fields", "empty", "boot id", "master"],
)
async def test_answer_to_a_registration(
    kind: type[NativeDialect | RocketmqDialect], answer: dict[str, Any], registered: Registered
) -> None:
    """Who the master is, and which run of the server it was; None for what it does not say."""
    async with scripted() as asking:
        _, found = await asking.ask(kind(identity_of(ORDERS, BILLS), 5.0).register(asking.client, None), **answer)

    assert registered == found


VERBS: dict[str, Callable[[Dialect, RemotingClient], Coroutine[Any, Any, object]]] = {
    "register": lambda dialect, client: dialect.register(client, None),
    "heartbeat": lambda dialect, client: dialect.heartbeat(client, 0.0),
    "unregister": lambda dialect, client: dialect.unregister(client, 5.0),
}


@pytest.mark.parametrize("kind", [NativeDialect, RocketmqDialect])
@pytest.mark.parametrize("verb", VERBS)
async def test_answers_are_waited_for_as_long_as_was_said(
    kind: type[NativeDialect | RocketmqDialect], verb: str
) -> None:
    """Five seconds, for a small registration too; the time for leaving is the caller's."""
    async with scripted() as asking:
        waiting = asyncio.ensure_future(VERBS[verb](kind(identity_of(ORDERS, BILLS), 5.0), asking.client))
        await asking.receive()
        await asking.clock.advance(4.99)
        assert not waiting.done()
        await asking.clock.advance(0.02)

        with pytest.raises(RequestTimeoutError):
            await waiting


async def test_large_registration_has_more_time() -> None:
    """A second for each two mebibytes that have to be sent and read."""
    # names that cannot be compressed
    dice = random.Random(0)
    identity = identity_of(*(TopicConfig(dice.randbytes(100).hex()) for _ in range(20_000)))
    async with scripted() as asking:
        waiting = asyncio.ensure_future(NativeDialect(identity, 5.0).register(asking.client, None))
        question = await asking.receive()
        assert 2 << 20 < len(question.body) < 4 << 20
        await asking.clock.advance(6.0)
        assert not waiting.done()
        await asking.clock.advance(1.0)

        with pytest.raises(RequestTimeoutError):
            await waiting
