"""The frames of registration, heartbeat and unregistration in each protocol, and protocol detection.

Frames are decoded, and responses encoded, without the code under test.
"""

import asyncio
import json
import random
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import msgpack
import pytest

from namesrv_broker_agent import TopicConfig
from namesrv_remoting.bodies.compressed import read_compressed
from namesrv_remoting.bodies.limits import Tally
from namesrv_remoting.codes import Permission
from tests.support import agents
from tests.support.apache_server import PROBE
from tests.support.fake_clock import passing, until
from tests.support.scripted_server import ScriptedRequest
from tests.support.steps import finished
from tests.support.threads import without_new_threads

REGISTER, UNREGISTER, ROUTE, DATA_VERSION, HEARTBEAT, SERVER_INFO = 103, 104, 105, 322, 904, 20002
DATA: Final = {"counter": 0, "stateVersion": 0, "timestamp": 1_700_000_000_000}
WHOLE: Final[dict[str, Any]] = {
    "ha_server_addr": "10.0.0.1:10912",
    "zone_name": "z1",
    "expiry_seconds": 60.0004,
    "enable_acting_master": True,
}
WHOLE_FIELDS: Final = {
    **agents.IDENTITY,
    "haServerAddr": "10.0.0.1:10912",
    "heartbeatTimeoutMillis": "60000",
    "enableActingMaster": "true",
    "__ZONE_NAME": "z1",
}
TOPICS: Final = (TopicConfig("orders", 8, 4, 6, 1), TopicConfig("bills", 2, 2, 4, 0))


def table_in(request: ScriptedRequest) -> dict[str, Any]:
    """The topics of a JSON registration."""
    found: dict[str, Any] = json.loads(request.body)["topicConfigSerializeWrapper"]["topicConfigTable"]
    return found


# -- frames -----------------------------------------------------------------------------------------------------------


async def test_native_frames() -> None:
    """Full registration, delta, heartbeat with state, and unregistration have numbers and a kind."""
    async with agents.played(TOPICS, **WHOLE, options={"state": lambda: {"queue_depth": 17}}) as it:
        peer = await it.server.accept()
        full = await it.registered_over(peer)
        await it.agent.replace_topics([TopicConfig("orders", 8, 4, 4, 1)])
        delta = await it.registered_over(peer)
        await it.clock.advance(14.25)
        heartbeat = await peer.receive()
        peer.send(agents.native_response(heartbeat))
        await until(lambda: not it.pending)
        stopping = asyncio.create_task(it.agent.stop())
        left = await peer.receive()
        peer.send(agents.native_response(left))
        await stopping

    agent = {"agentId": agents.ext_of(full)["agentId"]}
    assert [request.header for request in (full, delta, heartbeat, left)] == [
        [REGISTER, full.opaque, 0, 479, None, {**WHOLE_FIELDS, **agent, "registrationSeq": "1", "kind": "full"}],
        [REGISTER, delta.opaque, 0, 479, None, {**WHOLE_FIELDS, **agent, "registrationSeq": "2", "kind": "delta"}],
        [HEARTBEAT, heartbeat.opaque, 0, 479, None, {**agents.IDENTITY, **agent}],
        [UNREGISTER, left.opaque, 0, 479, None, {**agents.IDENTITY, **agent, "registrationSeq": "2"}],
    ]
    orders = {"topic_name": "orders", "read_queue_nums": 8, "write_queue_nums": 4, "perm": 6, "topic_sys_flag": 1}
    bills = {"topic_name": "bills", "read_queue_nums": 2, "write_queue_nums": 2, "perm": 4, "topic_sys_flag": 0}
    version = {"counter": 0, "state_version": 0, "timestamp": 1_700_000_000_000}
    # without filter servers the server keeps its own
    rest: dict[str, object] = {"topic_queue_mapping_info_map": {}, "filter_server_list": None}
    assert msgpack.unpackb(full.body) == {
        **rest,
        "topic_configs": [orders, bills],
        "data_version": version,
        "deleted_topics": [],
    }
    assert msgpack.unpackb(delta.body) == {
        **rest,
        "topic_configs": [{**orders, "perm": 4}],
        "data_version": {**version, "counter": 1},
        "deleted_topics": ["bills"],
    }
    assert (msgpack.unpackb(heartbeat.body), left.body) == ({"state": {"queue_depth": 17}}, b"")


async def test_rocketmq_frames() -> None:
    """Frames are as a 5.x broker's: CRC of the body, JSON body, no extension fields; every registration is full."""
    async with agents.played(TOPICS, protocol="rocketmq", **WHOLE) as it:
        peer = await it.server.accept()
        full = await it.registered_over(peer)
        # Apache's server would hide a lost increment for ever
        await it.agent.set_perm("orders", Permission.READ)
        changed = await it.registered_over(peer)
        stopping = asyncio.create_task(it.agent.stop())
        left = await peer.receive()
        peer.answer(left.opaque)
        await stopping

    for request in (full, changed):
        crc = str(zlib.crc32(request.body) & 0x7FFFFFFF)
        assert (
            request.header["flag"],
            request.header["version"],
            agents.ext_of(request),
        ) == (0, 479, {**WHOLE_FIELDS, "bodyCrc32": crc})
    common = {"topicFilterType": "SINGLE_TAG", "order": False, "attributes": {}}
    orders = {"topicName": "orders", "readQueueNums": 8, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 1, **common}
    bills = {"topicName": "bills", "readQueueNums": 2, "writeQueueNums": 2, "perm": 4, "topicSysFlag": 0, **common}
    assert json.loads(full.body) == {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": DATA,
            "topicConfigTable": {"orders": orders, "bills": bills},
            "topicQueueMappingInfoMap": {},
        },
    }
    assert table_in(changed) == {"orders": {**orders, "perm": 4}, "bills": bills}
    assert json.loads(changed.body)["topicConfigSerializeWrapper"]["dataVersion"]["counter"] == 1
    assert (left.code, agents.ext_of(left), left.body) == (UNREGISTER, agents.IDENTITY, b"")


@pytest.mark.parametrize(
    ("heartbeat_seconds", "codes"),
    [(30.0, [DATA_VERSION] * 3), (10.0, [DATA_VERSION, HEARTBEAT, HEARTBEAT, DATA_VERSION])],
)
async def test_rocketmq_heartbeat_compares_the_data_version(heartbeat_seconds: float, codes: list[int]) -> None:
    """Only 322 reveals whether the server knows the broker; with short periods not every heartbeat is a 322."""
    how: dict[str, Any] = {"heartbeat_seconds": heartbeat_seconds, "options": {"random_unit": lambda: 1.0}}
    async with agents.played(protocol="rocketmq", **how) as it:
        peer = await it.registers()
        asked = []
        for _ in codes:
            await it.clock.advance(heartbeat_seconds)
            request = await peer.receive()
            asked.append(request.code)
            assert agents.ext_of(request) == agents.IDENTITY
            assert (DATA if request.code == DATA_VERSION else None) == (
                json.loads(request.body) if request.body else None
            )
            peer.answer(request.opaque, extFields={"changed": "false"})
            await until(lambda: it.state.last_response == it.clock.wall())
        assert codes == asked


@pytest.mark.parametrize("answer", [{"extFields": {"changed": "true"}}, {"extFields": {}}, {}, {"code": 22}])
async def test_rocketmq_server_with_another_data_version_gets_the_table(answer: dict[str, Any]) -> None:
    """A changed version and an unknown broker both cause a full registration, and the next heartbeat is a 322."""
    async with agents.played(protocol="rocketmq", heartbeat_seconds=10.0) as it:
        peer = await it.registers()
        await passing(it.clock, lambda: it.pending)
        request = await peer.receive()
        assert request.code == DATA_VERSION
        peer.answer(request.opaque, **answer)

        await it.registered_over(peer)
        assert await it.agent.registered() == 1
        await passing(it.clock, lambda: it.pending)
        assert (await peer.receive()).code == (DATA_VERSION if answer.get("code") else HEARTBEAT)


@pytest.mark.parametrize(
    ("protocol", "topics", "registered"),
    [
        ("rocketmq", [], {}),
        ("rocketmq", ["orders"], {"orders": (8, 8, 6), agents.NAME: (1, 1, 4)}),
        # the broker's own name is taken
        ("rocketmq", [agents.NAME], {agents.NAME: (8, 8, 6), "SELF_TEST_TOPIC": (1, 1, 4)}),
        # the native protocol marks it as the whole table
        ("native", ["orders"], {"orders": (8, 8, 6)}),
    ],
)
async def test_broker_with_a_single_topic_registers(
    protocol: str, topics: list[str], registered: dict[str, tuple[int, int, int]], tmp_path: Path
) -> None:
    """In RocketMQ's protocol the first registration gets a second, read-only topic, because a single one is refused."""
    async with agents.real(tmp_path, [TopicConfig(name, 8, 8) for name in topics], protocol=protocol) as it:
        known = it.server.namesrv.manager.tables.topic_queue_table
        assert (
            {topic: agents.queues(it.server, topic) for topic in known},
            agents.brokers(it.server),
        ) == (registered, {agents.NAME: {0: agents.ADDR}})


@pytest.mark.parametrize("threads", [nullcontext, without_new_threads], ids=["thread", "no_thread"])
@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_large_registration_is_compressed(
    protocol: str, threads: Callable[[], AbstractContextManager[object]]
) -> None:
    """Bodies from a mebibyte on are compressed and marked in the header, which Java forgets.

    If the process can start no thread, the event loop encodes and compresses them.
    """
    topics = [TopicConfig(f"AbcdefghijklmnopqrstuvwxyzAbcdefghij{number}", 8, 8) for number in range(14_000)]
    with threads():
        async with agents.played(topics, protocol=protocol) as it:
            request = await it.registered_over(await it.server.accept())

    fields, body = agents.ext_of(request), zlib.decompress(request.body)
    assert fields["compressed"] == "true"
    if protocol == "native":
        assert len(request.body) < 1 << 20 < len(body)
        assert [it.topic_name for it in topics] == [it["topic_name"] for it in msgpack.unpackb(body)["topic_configs"]]
        return
    assert str(zlib.crc32(request.body) & 0x7FFFFFFF) == fields["bodyCrc32"]
    found, version, mappings, filter_servers = finished(
        read_compressed(iter([body]), with_mappings=True, tally=Tally(14_000))
    )
    assert (list(found), version and version.counter, mappings, filter_servers) == (topics, 0, {}, ())


# -- deadlines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
@pytest.mark.parametrize("is_known", [False, True])
async def test_response_timeout_is_five_seconds(protocol: str, is_known: bool) -> None:
    """The timeout holds for a small registration and for a heartbeat."""
    async with agents.played(protocol=protocol) as it:
        if is_known:
            peer = await it.registers()
            await passing(it.clock, lambda: it.pending)
        else:
            peer = await it.server.accept()
        code = (await peer.receive()).code
        await it.clock.advance(4.9)
        assert it.state.status != "unreachable"
        await it.clock.advance(0.11)
        error = f"request {code} to {it.server.address}: no answer within 5 s"
        assert (it.state.status, it.state.last_error) == ("unreachable", error)
        with pytest.raises(TimeoutError, match=rf"^not registered within 0 s: {error}$"):
            await it.agent.registered(timeout_seconds=0)


async def test_large_registration_has_more_time() -> None:
    """A registration gets a second for each two mebibytes of its body."""
    # incompressible names
    dice = random.Random(0)
    async with agents.played(TopicConfig(dice.randbytes(100).hex()) for _ in range(20_000)) as it:
        request = await (await it.server.accept()).receive()
        assert 2 << 20 < len(request.body) < 4 << 20
        await it.clock.advance(6.0)
        assert it.state.status == "connecting"
        await it.clock.advance(1.0)
        await until(lambda: it.state.status == "unreachable")


# -- protocol detection -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_auto_falls_back_when_the_connection_is_closed(end: str) -> None:
    """Apache's server closes the connection on an unknown serialize type, and answers a request of RocketMQ's."""
    async with agents.played(protocol="auto") as it:
        asked = await it.server.accept()
        assert (await asked.receive()).code == SERVER_INFO
        getattr(asked, end)()
        peer = await it.server.accept()
        request = await peer.receive()
        assert (request.code, agents.ext_of(request)) == (ROUTE, {"topic": PROBE})
        peer.answer(request.opaque, code=17, language="JAVA")
        await it.registered_over(peer)
        for _ in range(2):
            await passing(it.clock, lambda: it.pending)
            request = await peer.receive()
            assert request.code == DATA_VERSION
            peer.answer(request.opaque, extFields={"changed": "false"})
            await until(lambda: not it.pending)

        state = it.state
        assert (state.status, state.protocol, state.counts.registrations) == ("registered", "rocketmq", 1)
        assert it.server.connections == 2


async def test_auto_registers_at_once_with_a_known_server() -> None:
    """A known native server gets no detection request; after a closed connection Apache's may have its address."""
    async with agents.played(protocol="auto") as it:
        peer = await it.server.accept()
        peer.send(agents.native_response(await peer.receive()))
        await it.registered_over(peer)
        for number, code in ((2, REGISTER), (3, SERVER_INFO)):
            peer.close()
            await passing(it.clock, lambda number=number: it.server.connections == number)  # type: ignore[misc]  # bound now
            peer = await it.server.accept()
            request = await peer.receive()
            assert (request.code, type(request.header)) == (code, list)
        peer.close()
        peer = await it.server.accept()
        peer.answer((await peer.receive()).opaque, code=17, language="JAVA")
        assert isinstance((await it.registered_over(peer)).header, dict)
