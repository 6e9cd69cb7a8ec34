"""Requests that the fast path recognizes, and those that it leaves; test_fast_path_agrees compares the responses."""

import gc
import random
import tracemalloc

import msgpack
import pytest

from namesrv import fast_path
from namesrv.fast_path import FastPath
from namesrv.net.budget import LARGE_BYTES
from namesrv.net.protocol import ServerConnection
from namesrv.net.request import LONGEST_FAST_REQUEST
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers import decode_frame
from tests.support.in_process import InProcess, frames_of_at_most
from tests.support.namesrv_peer import (
    POPULATION,
    Broker,
    NamesrvPeer,
    Spelling,
    native,
    native_registration,
    populate,
    registration,
    request_frame,
)
from tests.support.spelling import BINARY, JSON, NATIVE, ONEWAY, cut

MEBIBYTE = 1024 * 1024
BROKER, AGENT, VERSIONLESS = POPULATION
PULL, HEARTBEAT, DATA_VERSION = 105, 904, 322
AS_JAVA = b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":%b,"version":479}'
AS_GO = b'{"code":105,"language":"GO","version":317,"opaque":%b,"flag":0,"remark":"","extFields":{"topic":"T"}}'
HEARTBEAT_JSON = (
    b'{"code":%d,"extFields":{"clusterName":"'
    + BROKER.cluster.encode()
    + b'","brokerAddr":"'
    + BROKER.addr.encode()
    + b'","brokerName":"'
    + BROKER.name.encode()
    + b'","brokerId":"0"},"flag":%d,"opaque":%%b,"version":479}'
)


def learn(path: FastPath, data: bytes) -> None:
    """Let the fast path learn a frame that the dispatcher gets, if it is a valid request."""
    body_at = 8 + int.from_bytes(data[5:8])
    try:
        command = decode_frame(Frame(data[4], data[8:body_at], data[body_at:]))
    except RemoteProtocolError:
        return
    if not command.is_response:
        path.learn(data, command)


@pytest.mark.parametrize(
    ("data", "is_answered"),
    [
        (request_frame(PULL, {"topic": "T"}), True),
        (request_frame(PULL, {"topic": "T"}, spelling="native"), True),
        (request_frame(PULL, {"topic": "T"}, spelling="binary"), False),
        (request_frame(PULL, {"topic": "absent"}), False),
        (request_frame(PULL, {"topic": "absent"}, spelling="native"), False),
        (request_frame(PULL), False),
        (request_frame(PULL, spelling="native"), False),
        (request_frame(PULL, {}), False),
        (request_frame(PULL, {"topic": "T"}, flag=ONEWAY), False),
        (request_frame(PULL, {"topic": "T"}, spelling="native", flag=ONEWAY), False),
        (request_frame(PULL, {"topic": "T", "x": "x" * 512}), False),
        # signed requests are verified each time
        (request_frame(PULL, {"topic": "T", "AccessKey": "k", "Signature": "s"}), False),
        (request_frame(HEARTBEAT, Broker("unknown", addr="10.9.9.9:1").ext), False),
        (request_frame(HEARTBEAT, BROKER.ext, spelling="binary"), False),
        (request_frame(HEARTBEAT, BROKER.ext, spelling="native"), True),
        (request_frame(HEARTBEAT, AGENT.ext, spelling="native"), True),
        (request_frame(HEARTBEAT, {**AGENT.ext, "agentId": "another"}, spelling="native"), False),
        (request_frame(HEARTBEAT, AGENT.ext, b"\x81\xa5state\x81\xa4load\x01", spelling="native"), True),
        (request_frame(HEARTBEAT, AGENT.ext, b"\x81\xa5state\x81\xa4load\x90", spelling="native"), False),
        (request_frame(HEARTBEAT, AGENT.ext, spelling="native", flag=ONEWAY), True),
        (request_frame(DATA_VERSION, BROKER.ext), True),
        (request_frame(DATA_VERSION, BROKER.ext, spelling="native"), False),
        (request_frame(DATA_VERSION, VERSIONLESS.ext), False),
        (request_frame(DATA_VERSION, {**BROKER.ext, "brokerId": "x"}), False),
        (request_frame(DATA_VERSION, BROKER.ext, b"nonsense"), False),
        (request_frame(106, {"topic": "T"}), False),
        (request_frame(106, {"topic": "T"}, spelling="native"), False),
        (cut(JSON, b'{"code":105,"extFields":{"topic":"T"}}'), False),
        (cut(JSON, b"{code:105,opaque:1,extFields:{topic:'T'}}"), False),
        (cut(JSON, b"null"), False),
        (cut(NATIVE, msgpack.packb([PULL, 1, 0, 479, None, {"topic": "T"}, None])), False),
        (cut(NATIVE, b"\xc1"), False),
        (cut(BINARY, b""), False),
    ],
)
async def test_learnt_request_is_answered(
    server: InProcess, peer: NamesrvPeer, data: bytes, *, is_answered: bool
) -> None:
    """The fast path answers and counts exactly the learnt requests that it supports."""
    await populate(peer)
    connection, path = server.connection_of(peer), server.namesrv.fast_path
    assert path.answer(connection, data) is None
    learn(path, data)

    assert is_answered == (path.answer(connection, data) is not None) == (path.pulls + path.heartbeats == 1)
    assert f"<FastPath [{path.pulls} pulls | {path.heartbeats} heartbeats | " in repr(path)


async def test_route_requests_wait_for_readiness(server: InProcess, peer: NamesrvPeer) -> None:
    """Until the server is ready, the fast path answers heartbeats and no route request."""
    await populate(peer)
    connection, path = server.connection_of(peer), server.namesrv.fast_path
    path.is_ready = False
    for data, is_answered in (
        (request_frame(PULL, {"topic": "T"}), False),
        (request_frame(PULL, {"topic": "T"}, spelling="native"), False),
        (request_frame(HEARTBEAT, BROKER.ext), True),
    ):
        learn(path, data)
        assert is_answered == (path.answer(connection, data) is not None)


@pytest.mark.parametrize("feed", ["whole", "bytes", "tail"])
async def test_requests_of_one_read_are_answered_in_their_order(
    server: InProcess, peer: NamesrvPeer, feed: str
) -> None:
    """Requests of one read, in any pieces and with large responses, are answered in order with their opaques."""
    opaques = [1, 9, 10, 2147483647, 127, 128, 65536, 0, -1, -2147483648]
    for number in range(300 if feed == "whole" else 1):
        broker = Broker(f"broker-{number:03}", 0, f"10.0.0.1:{number + 1}")
        await peer.register(broker, native_registration("T"), spelling="native")
    for spelling in ("json", "native"):
        await peer.call(PULL, {"topic": "T"}, spelling=spelling)
    stream = b"".join(
        request_frame(PULL, {"topic": "T"}, spelling="native" if n % 3 == 0 else "json", opaque=opaque)
        for n, opaque in enumerate(opaques)
    )
    if feed == "bytes":
        await peer.send_slowly(stream)
    elif feed == "tail":
        peer.send(stream + request_frame(PULL, {"topic": "U"}, opaque=77)[:-1])
    else:
        peer.send(stream)

    answers = [await peer.receive() for _ in opaques]

    assert opaques == [answer.opaque for answer in answers]
    assert {answer.code for answer in answers} == {0}
    assert [answer.serialize_type for answer in answers] == [NATIVE if n % 3 == 0 else JSON for n in range(10)]
    assert feed != "whole" or {300} == {len(answer.value["brokerDatas"]) for answer in answers[1:3]}
    # the dispatcher answers opaques below 1
    assert server.namesrv.fast_path.pulls == 7


@pytest.mark.parametrize(
    "header", [AS_JAVA, AS_GO, HEARTBEAT_JSON % (904, 0), HEARTBEAT_JSON % (904, 2), HEARTBEAT_JSON % (322, 0)]
)
async def test_request_is_recognized_with_any_opaque(server: InProcess, peer: NamesrvPeer, header: bytes) -> None:
    """One learnt request is enough for opaques of any length, and each response has its own opaque."""
    await populate(peer)
    connection, path = server.connection_of(peer), server.namesrv.fast_path
    learn(path, cut(JSON, header % b"7"))
    for opaque in (b"1", b"10", b"999999999", b"2147483647"):
        response = path.answer(connection, cut(JSON, header % opaque))
        assert response is not None
        assert response == b"" or b'"opaque":%b,' % opaque in response


async def test_topic_after_the_opaque_is_part_of_the_request(server: InProcess, peer: NamesrvPeer) -> None:
    """Requests of a Go client, which name the topic after the opaque, get the route of their own topic."""
    await populate(peer)
    connection, path = server.connection_of(peer), server.namesrv.fast_path
    frames = [cut(JSON, AS_GO.replace(b'"T"', b'"%b"' % topic) % b"11") for topic in (b"T", b"U", b"5")]
    for frame in frames:
        learn(path, frame)
    assert len({path.answer(connection, frame) for frame in frames}) == 3


@pytest.mark.parametrize(
    ("header", "learnt", "asked"),
    [
        # values that are not an opaque, or not one number
        (AS_JAVA, b"11", b"01"),
        (AS_JAVA, b"11", b"1x"),
        (AS_JAVA, b"111", b"1.1"),
        (AS_JAVA, b"111", b"1e1"),
        (AS_JAVA, b"11", b"-1"),
        (AS_JAVA, b"11", b" 1"),
        (AS_JAVA, b"11", b""),
        (AS_JAVA, b"1111111111", b"2147483648"),
        (AS_JAVA, b"1111111111", b"11111111111"),
        # other members and strings that look like an opaque
        (b'{"code":105,"opaque":5,"extFields":{"topic":"T","opaque":%b,"x":"1"},"version":479}', b"5", b"6"),
        (b'{"code":105,"opaque":5,"extFields":{"topic":"T"},"x\\"opaque":%b,"version":479}', b"5", b"6"),
        # requests for the dispatcher
        (b'{"code":106,"opaque":%b,"extFields":{"topic":"T"}}', b"5", b"6"),
        (b'{"code":105,"opaque":%b,"flag":2,"extFields":{"topic":"T"}}', b"5", b"6"),
        (b'{"code":105,"opaque":%b,"extFields":{}}', b"5", b"6"),
        (b'{"code":105,"opaque":%b,"version":479}', b"5", b"6"),
        (HEARTBEAT_JSON % (904, 1), b"5", b"6"),
        (b"[]", b"", b""),
    ],
)
async def test_unusual_json_request_is_left_to_the_dispatcher(
    server: InProcess, peer: NamesrvPeer, header: bytes, learnt: bytes, asked: bytes
) -> None:
    """A repeated request of an unusual form is never answered by the fast path."""
    await populate(peer)
    connection, path = server.connection_of(peer), server.namesrv.fast_path
    data = b""
    for opaque in (learnt, asked):
        data = cut(JSON, header % opaque if b"%" in header else header)
        learn(path, data)
    assert path.answer(connection, data) is None


def native_pull(opaque: bytes, rest: bytes = b"", topic: bytes = b"T") -> bytes:
    """The bytes of [105, opaque, 0, 479, nil, {"topic": topic}] with an encoded opaque."""
    return b"\x96\x69" + opaque + (rest or b"\x00\xcd\x01\xdf\xc0\x81\xa5topic\xa1" + topic)


async def test_native_request_is_recognized_with_any_opaque(server: InProcess, peer: NamesrvPeer) -> None:
    """A native request is recognized with any opaque of 31 bits, and with no other value."""
    await populate(peer)
    connection, path = server.connection_of(peer), server.namesrv.fast_path
    learn(path, cut(NATIVE, native_pull(b"\x07")))
    for number in (0, 127, 128, 255, 256, 65_535, 65_536, (1 << 31) - 1):
        response = path.answer(connection, cut(NATIVE, native_pull(msgpack.packb(number))))
        assert response is not None
        assert msgpack.unpackb(response[8 : 8 + int.from_bytes(response[5:8])])[:3] == [0, number, 1]
    for opaque in (msgpack.packb(-1), msgpack.packb(1 << 31), b"\xd2\x00\x00\x00\x07", b"\xa17", b"\xc0"):
        assert path.answer(connection, cut(NATIVE, native_pull(opaque))) is None


@pytest.mark.parametrize(
    "data",
    [
        # one-way, without a topic, without ext fields, with more or fewer than six members, malformed
        cut(NATIVE, native_pull(b"\x07", b"\x02\xcd\x01\xdf\xc0\x81\xa5topic\xa1T")),
        cut(NATIVE, native_pull(b"\x07", b"\x00\x00\xc0" + msgpack.packb({"topic": ""}))),
        cut(NATIVE, native_pull(b"\x07", b"\x00\x00\xc0\x80")),
        cut(NATIVE, native_pull(b"\x07", b"\x00\x00\xc0\xc0")),
        cut(NATIVE, native_pull(b"\x07", b"\x00\x00\xc0\x81\xa5topic\xa1T\x00")),
        cut(NATIVE, native_pull(b"\x07", b"\x00\x00\xc0\x81\xa5topic")),
        # the beginning of a frame, two frames, and malformed frames
        cut(NATIVE, native_pull(b"\x07"))[:-1],
        cut(NATIVE, native_pull(b"\x07")) * 2,
        b"\x00\x00\x00\x05\x4d\x00\x00\x01\x96",
        b"\x00\x00\x00\x0d\x4d\x00\x00\x09\x96\x69\x07\x00\x00\xc0\x80\x00\x00",
    ],
)
async def test_unusual_native_request_is_left_to_the_dispatcher(
    server: InProcess, peer: NamesrvPeer, data: bytes
) -> None:
    """A native request that only begins like a learnt one is left to the dispatcher."""
    await populate(peer)
    connection, path = server.connection_of(peer), server.namesrv.fast_path
    learn(path, cut(NATIVE, native_pull(b"\x07")))
    learn(path, data)
    assert path.answer(connection, data) is None


async def test_only_one_whole_frame_is_recognized(server: InProcess, peer: NamesrvPeer) -> None:
    """A part of a learnt frame, two frames, and frames of another length or type are left to the dispatcher."""
    await populate(peer)
    connection, path = server.connection_of(peer), server.namesrv.fast_path
    data = cut(JSON, AS_JAVA % b"5")
    learn(path, data)
    wrong = [data[:-1], data[:9], data + data, data + b"x", data[:3] + b"\0" + data[4:], data[:7] + b"\xff" + data[8:]]
    assert [path.answer(connection, each) for each in (*wrong, data[:4] + b"\x01" + data[5:])] == [None] * 7
    assert path.answer(connection, data) is not None


def answer_or_learn(path: FastPath, connection: ServerConnection, pulls: list[bytes]) -> int:
    """Request these routes one after the other; returns how many requests the fast path answered."""
    answered = 0
    for pull in pulls:
        if path.answer(connection, pull) is None:
            learn(path, pull)
        else:
            answered += 1
    return answered


@pytest.mark.parametrize(("times", "least"), [(1, 1.0), (2, 0.4), (8, 1 / 16)])
async def test_part_of_the_requests_is_recognized_when_more_are_sent_in_turn(
    server: InProcess, peer: NamesrvPeer, monkeypatch: pytest.MonkeyPatch, times: int, least: float
) -> None:
    """The number of learnt requests is bounded, and a new one takes the place of one other."""
    topics = [f"T{number:05}" for number in range(200 * times)]
    await peer.register(BROKER, registration(*topics))
    monkeypatch.setattr(fast_path, "MAX_REMEMBERED", 200)
    random.seed(1)
    path, connection = server.namesrv.fast_path, server.connection_of(peer)
    pulls = [cut(JSON, AS_JAVA.replace(b'"T"', b'"%b"' % topic.encode()) % b"5") for topic in topics]
    answered = 0
    for _ in range(3):
        answered = answer_or_learn(path, connection, pulls)
        assert repr(path).endswith("| 200 remembered]>")
    assert answered >= least * len(pulls)


async def test_remembered_heartbeats_take_little_memory(server: InProcess) -> None:
    """A heartbeat with a state of many short values takes no more memory than others: its bytes, and some hundred."""
    path, count = server.namesrv.fast_path, 200
    state = {f"{number:x}": 0 for number in range(100)}
    frames = [
        request_frame(HEARTBEAT, Broker(addr=f"h:{number}").ext, native({"state": state}), spelling="native")
        for number in range(count)
    ]
    assert len(frames[0]) <= LONGEST_FAST_REQUEST
    gc.collect()
    tracemalloc.start()
    try:
        for frame in frames:
            learn(path, frame)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert f"{count} remembered" in repr(path)
    assert held / count < 2_000


async def test_heartbeat_stores_the_reported_state(server: InProcess, peer: NamesrvPeer) -> None:
    """A repeated native heartbeat with a state stores it, one without a state keeps the last one."""
    await populate(peer)
    tables = server.namesrv.manager.tables
    for state, stored in (({"load": 1}, {"load": 1}), ({"load": 2}, {"load": 2}), (None, {"load": 2})):
        body = b"" if state is None else native({"state": state})
        for _ in range(2):
            ext = {**AGENT.ext, "agentId": "agent-1"}
            assert (await peer.call(HEARTBEAT, ext, body, spelling="native")).code == 0
            [live] = [each for each in tables.broker_live_table.values() if each.broker_name == AGENT.name]
            assert live.state == stored
    assert server.namesrv.fast_path.heartbeats == 3


async def register_many(peer: NamesrvPeer) -> None:
    """Register so many brokers with topic T that its route has more than 64 KiB."""
    for number in range(120):
        await peer.register(Broker(f"{number}-{'x' * 200}", 0, f"h{number}:1"))


@pytest.mark.parametrize("spelling", ["json", "native"])
async def test_large_route_needs_memory(server: InProcess, peer: NamesrvPeer, spelling: Spelling) -> None:
    """Each response of more than 64 KiB needs memory of the peer's share, also to a repeated request."""
    await register_many(peer)
    connection = server.connection_of(peer)
    responses = [await peer.call(PULL, {"topic": "T"}, spelling=spelling) for _ in range(3)]
    assert [(response.code, len(response.body) > LARGE_BYTES) for response in responses] == [(0, True)] * 3
    assert connection.reserve(MEBIBYTE)
    while connection.reserve(LARGE_BYTES + 1):
        pass

    for _ in range(2):
        refused = await peer.call(PULL, {"topic": "T"}, spelling=spelling)
        assert refused.code == 2
        assert "no memory for a response of" in str(refused.remark)


@pytest.mark.settings(limits=frames_of_at_most(65_536))
async def test_repeated_request_gets_no_response_beyond_the_frame_limit(server: InProcess, peer: NamesrvPeer) -> None:
    """A route that is too large for a frame is refused each time: the client would close the connection."""
    await register_many(peer)
    for _ in range(3):
        assert (await peer.call(PULL, {"topic": "T"})).code == 1
