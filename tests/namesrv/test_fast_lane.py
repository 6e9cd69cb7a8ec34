"""What the fast lane answers and what it leaves to the ordinary road; that both say the same: test_fast_lane_agrees."""

import msgpack
import pytest

from tests.support.in_process import InProcess
from tests.support.namesrv_peer import POPULATION, Broker, NamesrvPeer, native_registration, populate, question
from tests.support.spelling import BINARY, JSON, NATIVE, ONEWAY, RESPONSE, cut

BROKER, AGENT, VERSIONLESS = POPULATION
PULL, HEARTBEAT, DATA_VERSION = 105, 904, 322


@pytest.mark.parametrize(
    ("data", "is_mine"),
    [
        (question(PULL, {"topic": "T"}), True),
        (question(PULL, {"topic": "T"}, spelling="native"), True),
        (question(PULL, {"topic": "T"}, spelling="binary"), False),
        (question(PULL, {"topic": "absent"}), False),
        (question(PULL, {"topic": "absent"}, spelling="native"), False),
        (question(PULL), False),
        (question(PULL, spelling="native"), False),
        (question(PULL, {}), False),
        (question(PULL, {"topic": "T"}, flag=ONEWAY), False),
        (question(PULL, {"topic": "T"}, flag=RESPONSE), False),
        (question(PULL, {"topic": "T"}, spelling="native", flag=ONEWAY), False),
        (question(HEARTBEAT, BROKER.ext, flag=RESPONSE), False),
        (question(HEARTBEAT, Broker("nobody", addr="10.9.9.9:1").ext), False),
        (question(HEARTBEAT, BROKER.ext, spelling="binary"), False),
        (question(HEARTBEAT, AGENT.ext, spelling="native"), True),
        (question(HEARTBEAT, AGENT.ext, spelling="native", flag=ONEWAY), False),
        (question(DATA_VERSION, BROKER.ext), True),
        (question(DATA_VERSION, VERSIONLESS.ext), False),
        (question(DATA_VERSION, {**BROKER.ext, "brokerId": "x"}), False),
        (question(DATA_VERSION, BROKER.ext, b"nonsense"), False),
        (question(106, {}), False),
        (question(106, {"topic": "T"}), False),
        (question(106, {"topic": "T"}, spelling="native"), False),
        (cut(JSON, b'{"code":105,"extFields":{"topic":"T"}}'), False),
        (cut(JSON, b'{"opaque":1,"extFields":{"topic":"T"}}'), False),
        (cut(JSON, b'{"code":"105","opaque":1,"extFields":{"topic":"T"}}'), False),
        (cut(JSON, b"{code:105,opaque:1,extFields:{topic:'T'}}"), False),
        (cut(JSON, b"null"), False),
        (cut(JSON, b'{"code":105,"opaque":1,"extFields":{"topic":"\xff"}}'), False),
        (cut(JSON, b'{"code":105,"opaque":1,"extFields":{"topic":"T"},"x":' + b"[" * 5000), False),
        (cut(NATIVE, msgpack.packb([PULL, 1, 0, 479, None, {"topic": "T"}, None])), False),
        (cut(NATIVE, msgpack.packb([PULL, 1, 0, 479, None])), False),
        (cut(NATIVE, b"\xc1"), False),
        (cut(BINARY, b""), False),
    ],
)
async def test_unusual_question_is_left_alone(
    server: InProcess, peer: NamesrvPeer, data: bytes, *, is_mine: bool
) -> None:
    """The fast lane answers what is plain, and has counted nothing of what it leaves."""
    await populate(peer)
    connection, lane = server.connection_of(peer), server.namesrv.fast_lane
    body_at = 8 + int.from_bytes(data[5:8])

    answer = lane.answer(connection, data[4], data[8:body_at], data, body_at, len(data))

    assert is_mine == (answer is not None) == (lane.pulls + lane.heartbeats == 1)
    assert f"<FastLane [{lane.pulls} pulls | {lane.heartbeats} heartbeats | <RouteCache [" in repr(lane)


async def test_nothing_is_answered_before_the_server_is_ready(server: InProcess, peer: NamesrvPeer) -> None:
    """Neither spelling of a route question; heartbeats are."""
    await populate(peer)
    connection, lane = server.connection_of(peer), server.namesrv.fast_lane
    lane.is_ready = False
    for data, is_answered in (
        (question(PULL, {"topic": "T"}), False),
        (question(PULL, {"topic": "T"}, spelling="native"), False),
        (question(HEARTBEAT, BROKER.ext), True),
    ):
        body_at = 8 + int.from_bytes(data[5:8])
        assert is_answered == (lane.answer(connection, data[4], data[8:body_at], data, body_at, len(data)) is not None)


@pytest.mark.parametrize("pieces", ["whole", "bytes", "tail"])
async def test_questions_of_one_read_are_answered_in_their_order(
    server: InProcess, peer: NamesrvPeer, pieces: str
) -> None:
    """However the stream is chopped, and however large the answers; opaques of every length and sign come back."""
    opaques = [1, 0, -1, 9, 10, 2147483647, -2147483648, 127, 128, 65536]
    for number in range(300 if pieces == "whole" else 1):
        broker = Broker(f"broker-{number:03}", 0, f"10.0.0.1:{number + 1}")
        await peer.register(broker, native_registration("T"), spelling="native")
    stream = b"".join(
        question(PULL, {"topic": "T"}, spelling="native" if n % 3 == 0 else "json", opaque=opaque)
        for n, opaque in enumerate(opaques)
    )
    if pieces == "bytes":
        await peer.send_slowly(stream)
    elif pieces == "tail":
        peer.send(stream + question(PULL, {"topic": "U"}, opaque=77)[:-1])
    else:
        peer.send(stream)

    answers = [await peer.receive() for _ in opaques]

    assert opaques == [answer.opaque for answer in answers]
    assert {0} == {answer.code for answer in answers}
    assert [NATIVE if n % 3 == 0 else JSON for n in range(10)] == [answer.serialize_type for answer in answers]
    assert pieces != "whole" or {300} == {len(answer.value["brokerDatas"]) for answer in answers[1:3]}
    assert len(opaques) == server.namesrv.fast_lane.pulls
