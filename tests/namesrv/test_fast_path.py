"""Requests that the fast path recognizes, and those that it leaves; test_fast_path_agrees compares the responses."""

import gc
import random
import tracemalloc

import msgpack
import pytest

from namesrv import fast_path
from namesrv.fast_path import FastPath
from namesrv.net.fairness.budget import LARGE_BYTES
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


class Populated:
    """The fast path of a server with data in every table, and a connection."""

    def __init__(self, path: FastPath, connection: ServerConnection) -> None:
        self.path = path
        self._connection = connection

    def learn(self, data: bytes) -> None:
        learn(self.path, data)

    def answer(self, data: bytes) -> bytes | None:
        return self.path.answer(self._connection, data)


@pytest.fixture
async def populated(server: InProcess, peer: NamesrvPeer) -> Populated:
    """The fast path of a populated server."""
    await populate(peer)
    return Populated(server.namesrv.fast_path, server.connection_of(peer))


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
async def test_learnt_request_is_answered(populated: Populated, data: bytes, *, is_answered: bool) -> None:
    """The fast path answers and counts exactly the learnt requests that it supports."""
    path = populated.path
    assert populated.answer(data) is None
    populated.learn(data)

    assert is_answered == (populated.answer(data) is not None) == (path.pulls + path.heartbeats == 1)
    assert f"<FastPath [{path.pulls} pulls | {path.heartbeats} heartbeats | " in repr(path)


async def test_route_requests_wait_for_readiness(populated: Populated) -> None:
    """Until the server is ready, the fast path answers heartbeats and no route request."""
    populated.path.is_ready = False
    for data, is_answered in (
        (request_frame(PULL, {"topic": "T"}), False),
        (request_frame(PULL, {"topic": "T"}, spelling="native"), False),
        (request_frame(HEARTBEAT, BROKER.ext), True),
    ):
        populated.learn(data)
        assert is_answered == (populated.answer(data) is not None)


@pytest.mark.parametrize("feed", ["whole", "bytes", "tail"])
async def test_requests_of_one_read_are_answered_in_their_order(
    server: InProcess, peer: NamesrvPeer, feed: str
) -> None:
    """Requests of one read, in any pieces, are answered in order with their opaques."""
    opaques = [1, 9, 10, 2147483647, 127, 128, 65536, 0, -1, -2147483648]
    await peer.register(BROKER)
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
    # the dispatcher answers opaques below 1
    assert server.namesrv.fast_path.pulls == 7


@pytest.mark.parametrize(
    "header", [AS_JAVA, AS_GO, HEARTBEAT_JSON % (904, 0), HEARTBEAT_JSON % (904, 2), HEARTBEAT_JSON % (322, 0)]
)
async def test_request_is_recognized_with_any_opaque(populated: Populated, header: bytes) -> None:
    """One learnt request is enough for opaques of any length, but for no other number, nor for anything else."""
    populated.learn(cut(JSON, header % b"7"))
    for opaque in (b"1", b"10", b"999999999", b"2147483647"):
        response = populated.answer(cut(JSON, header % opaque))
        assert response is not None
        assert response == b"" or b'"opaque":%b,' % opaque in response
    for other in (b"01", b"1x", b"1.1", b"1e1", b"-1", b" 1", b"", b"2147483648", b"11111111111"):
        frame = cut(JSON, header % other)
        populated.learn(frame)
        assert populated.answer(frame) is None, other


async def test_topic_after_the_opaque_is_part_of_the_request(populated: Populated) -> None:
    """Requests of a Go client, which name the topic after the opaque, get the route of their own topic."""
    frames = [cut(JSON, AS_GO.replace(b'"T"', b'"%b"' % topic) % b"11") for topic in (b"T", b"U", b"5")]
    for frame in frames:
        populated.learn(frame)
    assert len({populated.answer(frame) for frame in frames}) == 3


@pytest.mark.parametrize(
    "header",
    [
        # other members and strings that look like an opaque
        b'{"code":105,"opaque":5,"extFields":{"topic":"T","opaque":%b,"x":"1"},"version":479}',
        b'{"code":105,"opaque":5,"extFields":{"topic":"T"},"x\\"opaque":%b,"version":479}',
        # requests for the dispatcher
        b'{"code":106,"opaque":%b,"extFields":{"topic":"T"}}',
        b'{"code":105,"opaque":%b,"flag":2,"extFields":{"topic":"T"}}',
        b'{"code":105,"opaque":%b,"extFields":{}}',
        b'{"code":105,"opaque":%b,"version":479}',
        HEARTBEAT_JSON % (904, 1),
    ],
)
async def test_unusual_json_request_is_left_to_the_dispatcher(populated: Populated, header: bytes) -> None:
    """A repeated request of an unusual form is never answered by the fast path."""
    for opaque in (b"5", b"6"):
        populated.learn(cut(JSON, header % opaque))
    assert populated.answer(cut(JSON, header % b"6")) is None


def native_pull(opaque: bytes, rest: bytes = b"", topic: bytes = b"T") -> bytes:
    """The bytes of [105, opaque, 0, 479, nil, {"topic": topic}] with an encoded opaque."""
    return b"\x96\x69" + opaque + (rest or b"\x00\xcd\x01\xdf\xc0\x81\xa5topic\xa1" + topic)


async def test_native_request_is_recognized_with_any_opaque(populated: Populated) -> None:
    """A native request is recognized with any opaque of 31 bits, and with no other value."""
    populated.learn(cut(NATIVE, native_pull(b"\x07")))
    for number in (0, 127, 128, 255, 256, 65_535, 65_536, (1 << 31) - 1):
        response = populated.answer(cut(NATIVE, native_pull(msgpack.packb(number))))
        assert response is not None
        assert msgpack.unpackb(response[8 : 8 + int.from_bytes(response[5:8])])[:3] == [0, number, 1]
    for opaque in (msgpack.packb(-1), msgpack.packb(1 << 31), b"\xd2\x00\x00\x00\x07", b"\xa17", b"\xc0"):
        assert populated.answer(cut(NATIVE, native_pull(opaque))) is None


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
async def test_unusual_native_request_is_left_to_the_dispatcher(populated: Populated, data: bytes) -> None:
    """A native request that only begins like a learnt one is left to the dispatcher."""
    populated.learn(cut(NATIVE, native_pull(b"\x07")))
    populated.learn(data)
    assert populated.answer(data) is None


async def test_only_one_whole_frame_is_recognized(populated: Populated) -> None:
    """A part of a learnt frame, two frames, and frames of another length or type are left to the dispatcher."""
    data = cut(JSON, AS_JAVA % b"5")
    populated.learn(data)
    wrong = [data[:-1], data[:9], data + data, data + b"x", data[:3] + b"\0" + data[4:], data[:7] + b"\xff" + data[8:]]
    assert [populated.answer(each) for each in (*wrong, data[:4] + b"\x01" + data[5:])] == [None] * 7
    assert populated.answer(data) is not None


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
    assert connection.reserve_memory(MEBIBYTE)
    while connection.reserve_memory(LARGE_BYTES + 1):
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
