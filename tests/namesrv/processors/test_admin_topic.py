"""Answers to operators who delete or register one topic (216, 217), in every header."""

import json

import pytest

from tests.support.in_process import InProcess
from tests.support.namesrv_peer import (
    SPELLINGS,
    Broker,
    NamesrvPeer,
    Spelling,
    fields,
    native,
    native_value,
    outcome,
    value,
)

MASTER = Broker()
OTHER = Broker("broker-b", 0, "10.0.0.3:10911")
ELSEWHERE = Broker("broker-c", 0, "10.0.1.1:10911", "cluster-2")
in_all_spellings = pytest.mark.parametrize("spelling", SPELLINGS)


async def perms(peer: NamesrvPeer, topic: str = "T") -> dict[str, int]:
    """What the route says who may do: broker name -> permission; asked in JSON and natively."""
    route = value(await peer.call(105, {"topic": topic}))
    found = {queues["brokerName"]: queues["perm"] for queues in route["queueDatas"]}
    route = value(await peer.call(105, {"topic": topic}, spelling="native"))
    assert found == {queues["broker_name"]: queues["perm"] for queues in route["queue_datas"]}
    return found


@in_all_spellings
async def test_topic_is_deleted(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Everywhere, or in one cluster; what does not exist is a success and changes nothing."""
    await peer.register(MASTER)
    await peer.register(ELSEWHERE)

    async def delete(topic: str, **ext: str) -> None:
        answer = await peer.call(216, {"topic": topic, **ext}, spelling=spelling)
        assert (0, None, {}, b"") == (*outcome(answer), fields(answer), answer.body)

    await delete("nothing")
    await delete("T", clusterName="nowhere")
    assert {"broker-a": 6, "broker-c": 6} == await perms(peer)
    await delete("T", clusterName="cluster-1")
    assert {"broker-c": 6} == await perms(peer)
    await delete("T", clusterName="cluster-2")
    assert 17 == (await peer.call(105, {"topic": "T"})).code
    await delete("U")
    assert 17 == (await peer.call(105, {"topic": "U"})).code
    assert (1, "field topic is missing") == outcome(await peer.call(216, None, spelling=spelling))


def route_body(spelling: Spelling, *brokers: str) -> bytes:
    """The body of a 217: 3 queues to read, 2 to write, read-only, on each broker."""
    if spelling == "native":
        queues = [
            {"broker_name": name, "read_queue_nums": 3, "write_queue_nums": 2, "perm": 4, "topic_sys_flag": 1}
            for name in brokers
        ]
        return native({"queue_datas": queues, "broker_datas": [{"anything": 1}]})
    camel = [
        {"brokerName": name, "readQueueNums": 3, "writeQueueNums": 2, "perm": 4, "topicSysFlag": 1} for name in brokers
    ]
    return json.dumps({"queueDatas": camel, "brokerDatas": [{"anything": 1}]}).encode()


@in_all_spellings
async def test_topic_is_registered(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Broker by broker; what is registered replaces that broker's queues."""
    await peer.register(MASTER)
    await peer.register(OTHER)

    for topic in ("T", "new"):
        answer = await peer.call(217, {"topic": topic}, route_body(spelling, "broker-b"), spelling=spelling)
        assert (0, None, {}, b"") == (*outcome(answer), fields(answer), answer.body)

    assert {"broker-a": 6, "broker-b": 4} == await perms(peer)
    route = native_value((await peer.call(105, {"topic": "new"}, spelling="native")).body)
    queues = {
        "broker_name": "broker-b",
        "read_queue_nums": 3,
        "write_queue_nums": 2,
        "perm": 4,
        "topic_sys_flag": 1,
    }
    assert [queues] == route["queue_datas"]


@in_all_spellings
async def test_topic_on_an_unknown_broker_is_ignored(peer: NamesrvPeer, spelling: Spelling) -> None:
    """With success, as in Java; what stands before it counts only if the topic was there."""
    await peer.register(MASTER)
    for topic in ("T", "new"):
        body = route_body(spelling, "broker-a", "nobody", "broker-a")
        assert (0, None) == outcome(await peer.call(217, {"topic": topic}, body, spelling=spelling))

    assert {"broker-a": 4} == await perms(peer)
    assert 17 == (await peer.call(105, {"topic": "new"})).code


@in_all_spellings
async def test_topic_without_queues_is_ignored(server: InProcess, peer: NamesrvPeer, spelling: Spelling) -> None:
    """No body, no member, none: success, and nothing has changed."""
    empty = [native({}), native({"queue_datas": []}), native({"queue_datas": None})]
    if spelling != "native":
        empty = [b"{}", b'{"queueDatas":[]}', b'{"queueDatas":null}']
    for body in (b"", *empty):
        assert (0, None) == outcome(await peer.call(217, {"topic": "T"}, body, spelling=spelling))
    assert [] == server.effects


@pytest.mark.parametrize(
    ("spelling", "body", "reason"),
    [
        ("json", b"[]", "Expected `object`, got `array`"),
        ("json", b'{"queueDatas":[{}]}', "Object missing required field `brokerName` - at `$.queueDatas[0]`"),
        ("binary", b'{"queueDatas":5}', "Expected `array | null`, got `int` - at `$.queueDatas`"),
        ("native", b'{"queueDatas":[]}', "Expected `object`, got `int`"),
        (
            "native",
            native({"queue_datas": [{"broker_name": "broker-a", "read_queue_nums": 1, "write_queue_nums": 1}]}),
            "Object missing required field `perm` - at `$.queue_datas[0]`",
        ),
    ],
)
async def test_topic_body_that_is_none_is_refused(
    server: InProcess, peer: NamesrvPeer, spelling: Spelling, body: bytes, reason: str
) -> None:
    """Code 1 says what is wrong; natively nothing is left to guess."""
    answer = await peer.call(217, {"topic": "T"}, body, spelling=spelling)

    assert (1, f"body of TopicRouteData cannot be read: {reason}") == outcome(answer)
    assert [] == server.effects
