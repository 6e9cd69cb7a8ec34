"""Questions that are repeated but for the opaque, and what only looks like one."""

import msgpack
import pytest

from namesrv.questions import OPAQUE, RepeatedQuestions
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import POPULATION, NamesrvPeer, populate
from tests.support.spelling import JSON, NATIVE, cut

BROKER = POPULATION[0]
AS_JAVA = b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":%b,"version":479}'
AS_GO = b'{"code":105,"language":"GO","version":317,"opaque":%b,"flag":0,"remark":"","extFields":{"topic":"T"}}'
BEAT = (
    b'{"code":%d,"extFields":{"clusterName":"'
    + BROKER.cluster.encode()
    + b'","brokerAddr":"'
    + BROKER.addr.encode()
    + b'","brokerName":"'
    + BROKER.name.encode()
    + b'","brokerId":"0"},"flag":%d,"opaque":%%b,"version":479}'
)


@pytest.mark.parametrize("header", [AS_JAVA, AS_GO, BEAT % (904, 0), BEAT % (904, 2), BEAT % (322, 0)])
async def test_question_is_recognised_whatever_its_opaque(server: InProcess, peer: NamesrvPeer, header: bytes) -> None:
    """Once it was asked with an opaque of so many digits; the answer is that of who reads it."""
    await populate(peer)
    connection, lane = server.connection_of(peer), server.namesrv.fast_lane
    for first, *later in ((b"1", b"9"), (b"10", b"99"), (b"999999999", b"100000001"), (b"2147483647", b"1000000000")):
        known = cut(JSON, header % first)
        lane.answer(connection, JSON, known[8:], known, len(known), len(known))
        assert lane.answer_repeated(connection, known[4], known) is None
        for opaque in later:
            data = cut(JSON, header % opaque)
            expected = lane.answer(connection, JSON, data[8:], data, len(data), len(data))
            assert expected == lane.answer_repeated(connection, data[4], data) is not None


async def test_questions_that_begin_alike_are_told_apart(server: InProcess, peer: NamesrvPeer) -> None:
    """A Go client names the topic behind the opaque: all of its questions for names of one length begin alike."""
    await populate(peer)
    connection, lane = server.connection_of(peer), server.namesrv.fast_lane
    answers = {}
    for topic in (b"T", b"U", b"5"):
        data = cut(JSON, AS_GO.replace(b'"T"', b'"%b"' % topic) % b"11")
        answers[data] = lane.answer(connection, JSON, data[8:], data, len(data), len(data))
        assert lane.answer_repeated(connection, JSON, data) is None
    assert 3 == len(set(answers.values()))
    assert answers == {data: lane.answer_repeated(connection, JSON, data) for data in answers}


@pytest.mark.parametrize(
    ("header", "learnt", "asked"),
    [
        # what is no opaque, or not one number
        (AS_JAVA, b"11", b"01"),
        (AS_JAVA, b"11", b"1x"),
        (AS_JAVA, b"111", b"1.1"),
        (AS_JAVA, b"111", b"1e1"),
        (AS_JAVA, b"11", b"-1"),
        (AS_JAVA, b"11", b" 1"),
        (AS_JAVA, b"1111111111", b"2147483648"),
        # other members and strings that look like it
        (b'{"code":105,"extFields":{"topic":"T","opaque":%b,"x":"1"},"opaque":5,"version":479}', b"5", b"6"),
        (b'{"code":105,"opaque":%b,"opaque":5,"extFields":{"topic":"T"}}', b"5", b"6"),
        (b'{"code":105,"x\\"opaque":%b,"opaque":5,"extFields":{"topic":"T"}}', b"5", b"6"),
        # no question of the fast lane
        (b'{"code":106,"opaque":%b,"extFields":{"topic":"T"}}', b"5", b"6"),
        (b'{"code":105,"opaque":%b,"flag":2,"extFields":{"topic":"T"}}', b"5", b"6"),
        (b'{"code":105,"opaque":%b,"extFields":{}}', b"5", b"6"),
        (b'{"code":105,"opaque":%b,"version":479}', b"5", b"6"),
        (BEAT % (904, 1), b"5", b"6"),
        (b"[]", b"", b""),
    ],
)
async def test_what_only_looks_like_it_is_read(
    server: InProcess, peer: NamesrvPeer, header: bytes, learnt: bytes, asked: bytes
) -> None:
    """The number of the answer is the one of the member that is called opaque, if that is a number."""
    await populate(peer)
    connection, lane = server.connection_of(peer), server.namesrv.fast_lane
    for opaque in (learnt, asked):
        data = cut(JSON, header % opaque if opaque else header)
        lane.answer(connection, JSON, data[8:], data, len(data), len(data))
        assert lane.answer_repeated(connection, data[4], data) is None


def native_pull(opaque: bytes, rest: bytes = b"", topic: bytes = b"T") -> bytes:
    """[105, opaque, 0, 479, nil, {"topic": topic}], with the opaque as it is given."""
    return b"\x96\x69" + opaque + (rest or b"\x00\xcd\x01\xdf\xc0\x81\xa5topic\xa1" + topic)


async def test_native_pull_is_recognised_whatever_its_opaque(server: InProcess, peer: NamesrvPeer) -> None:
    """However long that is, unless it is no plain number of 31 bits."""
    await populate(peer)
    connection, lane = server.connection_of(peer), server.namesrv.fast_lane
    learnt = cut(NATIVE, native_pull(b"\x07"))
    assert lane.answer_repeated(connection, learnt[4], learnt) is None
    lane.answer(connection, NATIVE, learnt[8:], learnt, len(learnt), len(learnt))
    for number in (0, 127, 128, 255, 256, 65_535, 65_536, (1 << 31) - 1):
        data = cut(NATIVE, native_pull(msgpack.packb(number)))
        expected = lane.answer(connection, NATIVE, data[8:], data, len(data), len(data))
        assert expected == lane.answer_repeated(connection, data[4], data) is not None
    for opaque in (msgpack.packb(-1), msgpack.packb(1 << 31), b"\xd2\x00\x00\x00\x07", b"\xa17", b"\xc0"):
        assert lane.answer_repeated(connection, NATIVE, cut(NATIVE, native_pull(opaque))) is None


@pytest.mark.parametrize(
    "data",
    [
        # oneway, a zone, no topic, no ext fields, other than six members, nothing readable
        cut(NATIVE, native_pull(b"\x07", b"\x02\xcd\x01\xdf\xc0\x81\xa5topic\xa1T")),
        cut(NATIVE, native_pull(b"\x07", b"\x00\x00\xc0" + msgpack.packb({"topic": "T", "__ZONE_MODE": "true"}))),
        cut(NATIVE, native_pull(b"\x07", b"\x00\x00\xc0" + msgpack.packb({"topic": ""}))),
        cut(NATIVE, native_pull(b"\x07", b"\x00\x00\xc0\x80")),
        cut(NATIVE, native_pull(b"\x07", b"\x00\x00\xc0\xc0")),
        cut(NATIVE, native_pull(b"\x07", b"\x00\x00\xc0\x81\xa5topic\xa1T\x00")),
        cut(NATIVE, native_pull(b"\x07", b"\x00\x00\xc0\x81\xa5topic")),
        # a body, the beginning of a frame, two frames, and what is none
        cut(NATIVE, native_pull(b"\x07"), b"body"),
        cut(NATIVE, native_pull(b"\x07"))[:-1],
        cut(NATIVE, native_pull(b"\x07")) * 2,
        b"\x00\x00\x00\x05\x4d\x00\x00\x01\x96",
        b"\x00\x00\x00\x0d\x4d\x00\x00\x09\x96\x69\x07\x00\x00\xc0\x80\x00\x00",
    ],
)
async def test_what_only_looks_like_a_native_pull_is_read(server: InProcess, peer: NamesrvPeer, data: bytes) -> None:
    """As often as it comes."""
    await populate(peer)
    connection, lane = server.connection_of(peer), server.namesrv.fast_lane
    known = cut(NATIVE, native_pull(b"\x07"))
    assert lane.answer(connection, NATIVE, known[8:], known, len(known), len(known)) is not None
    for _ in range(2):
        assert lane.answer_repeated(connection, data[4], data) is None


async def test_only_one_whole_frame_is_a_question(server: InProcess, peer: NamesrvPeer) -> None:
    """Neither its beginning, nor two at once, nor one whose length says otherwise."""
    await populate(peer)
    connection, lane = server.connection_of(peer), server.namesrv.fast_lane
    data = cut(JSON, AS_JAVA % b"5")
    lane.answer(connection, JSON, data[8:], data, len(data), len(data))
    wrong = [data[:-1], data[:9], data + data, data + b"x", data[:3] + b"\0" + data[4:], data[:7] + b"\xff" + data[8:]]
    for each in (*wrong, data[:4] + b"\x01" + data[5:]):
        assert [None, None] == [lane.answer_repeated(connection, each[4], each) for _ in range(2)]
    assert [None, True] == [lane.answer_repeated(connection, data[4], data) and True for _ in range(2)]


def test_no_more_are_remembered_than_there_is_room_for() -> None:
    """What comes later has to wait until all are forgotten, which is rare."""
    repeated = RepeatedQuestions(room=2)

    def learn(topic: int) -> bool:
        data = cut(JSON, AS_JAVA.replace(b'"T"', b'"T%d"' % topic) % b"5")
        before, _, rest = data.partition(OPAQUE)
        repeated.one_of_several(data, before, rest)
        return before in repeated

    assert [True, True, *[False] * 21, True] == [learn(topic) for topic in range(24)]
    assert 1 == len(repeated)


def test_nothing_is_remembered_with_its_opaque() -> None:
    """A client that puts a blank before the number would be remembered anew with every question."""
    repeated = RepeatedQuestions()
    for opaque in range(3):
        data = cut(JSON, b'{"code":105,"opaque": %d,"extFields":{"topic":"T"}}' % opaque)
        before, _, rest = data.partition(OPAQUE)
        repeated.one_of_several(data, before, rest)
    assert {} == repeated
