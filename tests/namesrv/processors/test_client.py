"""Answers to producers and consumers that ask for one route (105), in every header."""

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import (
    SPELLINGS,
    Broker,
    NamesrvPeer,
    Spelling,
    fields,
    native_registration,
    outcome,
    registration,
    topic_config,
    value,
)

MASTER = Broker()
SLAVE = Broker(id=1, addr="10.0.0.2:10911")
OTHER = Broker("broker-b", 0, "10.0.0.3:10911")
in_all_spellings = pytest.mark.parametrize("spelling", SPELLINGS)

# of no meaning to a route question, but the fast lane reads this field, and a number is not what it expects there
ORDINARY = {"agentId": 1}
on_both_roads = pytest.mark.parametrize("detour", [{}, ORDINARY], ids=["fast", "ordinary"])


@in_all_spellings
@on_both_roads
async def test_route_names_groups_and_queues(
    server: InProcess, peer: NamesrvPeer, spelling: Spelling, detour: dict[str, Any]
) -> None:
    """Natively the ids are integers and what is absent is nil; a slave adds only its address."""
    await peer.register(MASTER, registration(topic_config("T", read=4, write=2), "U"))
    await peer.register(SLAVE, registration(topic_config("T", read=9, write=9), "U"))
    # the binary header has no fast lane
    is_fast = spelling != "binary" and not detour

    answer = await peer.call(105, {"topic": "T", **detour}, spelling=spelling)

    assert is_fast == server.namesrv.fast_lane.pulls
    assert (0, None, {}) == (*outcome(answer), fields(answer))
    if spelling == "native":
        assert {
            "broker_datas": [
                {
                    "cluster": "cluster-1",
                    "broker_name": "broker-a",
                    "broker_addrs": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
                    "zone_name": None,
                    "enable_acting_master": False,
                }
            ],
            "queue_datas": [
                {
                    "broker_name": "broker-a",
                    "read_queue_nums": 4,
                    "write_queue_nums": 2,
                    "perm": 6,
                    "topic_sys_flag": 0,
                }
            ],
            "filter_server_table": {},
            "order_topic_conf": None,
            "topic_queue_mapping_by_broker": None,
        } == value(answer)
    else:
        assert (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a",'
            b'"cluster":"cluster-1","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":'
            b'"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":2}]}'
        ) == answer.body


async def test_answer_is_this_to_the_byte(peer: NamesrvPeer) -> None:
    """No extFields at all, compact JSON, ids quoted whatever the version: the Go client (317) cuts it by hand."""
    await peer.register(MASTER)

    peer.tell(105, {"topic": "T"}, version=317)

    answered = await peer.receive_bytes()

    header = b'{"code":0,"flag":1,"language":"PYTHON","opaque":2,"serializeTypeCurrentRPC":"JSON","version":479}'
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"cluster-1",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )
    assert struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body == answered


@in_all_spellings
async def test_unknown_topic_has_no_route(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Code 17 and Java's remark, which points to the FAQ."""
    answer = await peer.call(105, {"topic": "T"}, spelling=spelling)

    remark = (
        "No topic route info in name server for the topic: T\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )
    assert (17, remark, {}, b"") == (*outcome(answer), fields(answer), answer.body)


@in_all_spellings
async def test_question_without_a_topic_says_so(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Java answers 17 for the topic null."""
    assert (1, "field topic is missing") == outcome(await peer.call(105, None, spelling=spelling))
    assert (1, "field topic is missing") == outcome(await peer.call(105, {"x": "y"}, spelling=spelling))
    if spelling != "binary":  # where empty is absent
        assert (1, "field topic is empty") == outcome(await peer.call(105, {"topic": ""}, spelling=spelling))


@pytest.mark.parametrize("spelling", ["json", "native"])
async def test_topic_may_be_called_anything(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Words of JSON, numbers, what needs escapes, what is not ASCII."""
    names = ["null", "true", "5", '"', "\\", "é", "\u4e3b\u9898", "\U0001f600", "a b", "{}"]
    body = native_registration(*names) if spelling == "native" else registration(*names)
    await peer.register(MASTER, body, spelling=spelling)
    for name in names:
        assert (0, None) == outcome(await peer.call(105, {"topic": name}, spelling=spelling)), name


@in_all_spellings
async def test_filter_servers_and_static_mapping_are_in_the_route(peer: NamesrvPeer, spelling: Spelling) -> None:
    """By address, and by broker name; Java's brokers send the mapping's ids without quotes."""
    mapping = {"T": {"topic": "T", "bname": "broker-a", "totalQueues": 2, "epoch": 3, "currIdMap": {0: 1}}}
    body = registration("T", "U", filter_servers=("10.0.0.1:30000",), mappings=mapping)
    await peer.register(MASTER, body.replace(b'{"0":1}', b"{0:1}"))

    route = value(await peer.call(105, {"topic": "T"}, spelling=spelling))
    other = value(await peer.call(105, {"topic": "U"}, spelling=spelling))

    filters = {"10.0.0.1:10911": ["10.0.0.1:30000"]}
    if spelling == "native":
        assert filters == route["filter_server_table"]
        assert {
            "broker-a": {
                "topic": "T",
                "bname": "broker-a",
                "scope": None,
                "epoch": 3,
                "total_queues": 2,
                "dirty": False,
                "curr_id_map": {0: 1},
            }
        } == route["topic_queue_mapping_by_broker"]
        assert other["topic_queue_mapping_by_broker"] is None
    else:
        assert filters == route["filterServerTable"]
        assert {
            "broker-a": {
                "topic": "T",
                "bname": "broker-a",
                "epoch": 3,
                "totalQueues": 2,
                "dirty": False,
                "currIdMap": {"0": 1},
            }
        } == route["topicQueueMappingByBroker"]
        assert "topicQueueMappingByBroker" not in other


# -- order configuration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["json", "native"])
@on_both_roads
@pytest.mark.settings(order_message_enable=True)
async def test_order_configuration_follows_every_change(
    peer: NamesrvPeer, spelling: Spelling, detour: dict[str, Any]
) -> None:
    """Put and delete show in the very next answer of a route that was cached before."""
    member = "order_topic_conf" if spelling == "native" else "orderTopicConf"
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    await peer.register(MASTER)

    async def conf(topic: str = "T") -> Any:
        return value(await peer.call(105, {"topic": topic, **detour}, spelling=spelling)).get(member)

    assert await conf() is None
    await peer.call(100, {**order, "value": "broker-a:8"})
    assert "broker-a:8" == await conf()
    assert await conf("U") is None
    await peer.call(100, {**order, "value": "broker-a:4"})
    assert "broker-a:4" == await conf()
    await peer.call(102, order)
    assert await conf() is None


@pytest.mark.settings(admin_enabled=True)
async def test_order_configuration_is_left_out_unless_enabled(peer: NamesrvPeer) -> None:
    """Java's clients take the static-topic path only without it; switched on, it shows at once."""
    await peer.register(MASTER)
    await peer.call(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"})
    assert "orderTopicConf" not in value(await peer.call(105, {"topic": "T"}))

    await peer.call(318, None, b"orderMessageEnable=true")

    assert "broker-a:8" == value(await peer.call(105, {"topic": "T"}))["orderTopicConf"]


# -- readiness -------------------------------------------------------------------------------------------------------


@in_all_spellings
async def test_server_that_is_not_ready_sends_clients_away(tmp_path: Path, spelling: Spelling) -> None:
    """Code 1 and, because a Java client changes servers only then, the end of the connection."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(MASTER)

    async with namesrv_in_process(tmp_path) as server:
        assert not server.namesrv.is_ready()
        peer = await server.connect()

        answer = await peer.call(105, {"topic": "T"}, spelling=spelling)

        assert (1, "name server not ready") == outcome(answer)
        assert await peer.at_end()


@in_all_spellings
async def test_server_that_is_not_ready_keeps_its_brokers(tmp_path: Path, spelling: Spelling) -> None:
    """A broker asks for routes, too; it gets the same answer and stays."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(MASTER)

    async with namesrv_in_process(tmp_path) as server:
        assert not server.namesrv.is_ready()
        peer = await server.connect()
        await peer.register(OTHER, spelling=spelling)

        assert (1, "name server not ready") == outcome(await peer.call(105, {"topic": "T"}, spelling=spelling))

        # the one that was expected opens the gate
        await peer.register(MASTER, spelling=spelling)
        assert (0, None) == outcome(await peer.call(105, {"topic": "T"}, spelling=spelling))
