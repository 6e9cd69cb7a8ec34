"""Questions that are repeated but for the opaque, and what only looks like one."""

import pytest

from namesrv.questions import OPAQUE, RepeatedQuestions
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import POPULATION, NamesrvPeer, populate
from tests.support.spelling import JSON, cut

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
        assert lane.answer_repeated(connection, known) is None
        for opaque in later:
            data = cut(JSON, header % opaque)
            expected = lane.answer(connection, JSON, data[8:], data, len(data), len(data))
            assert expected == lane.answer_repeated(connection, data) is not None


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
        assert lane.answer_repeated(connection, data) is None


async def test_only_one_whole_frame_is_a_question(server: InProcess, peer: NamesrvPeer) -> None:
    """Neither its beginning, nor two at once, nor one whose length says otherwise."""
    await populate(peer)
    connection, lane = server.connection_of(peer), server.namesrv.fast_lane
    data = cut(JSON, AS_JAVA % b"5")
    lane.answer(connection, JSON, data[8:], data, len(data), len(data))
    wrong = [data[:-1], data[:9], data + data, data + b"x", data[:3] + b"\0" + data[4:], data[:7] + b"\xff" + data[8:]]
    for each in (*wrong, data[:4] + b"\x01" + data[5:]):
        assert [None, None] == [lane.answer_repeated(connection, each) for _ in range(2)]
    assert [None, True] == [lane.answer_repeated(connection, data) and True for _ in range(2)]


def test_no_more_are_remembered_than_there_is_room_for() -> None:
    """What comes later has to wait until all are forgotten, which is rare."""
    repeated = RepeatedQuestions(room=2)

    def learn(topic: int) -> bool:
        data = cut(JSON, AS_JAVA.replace(b'"T"', b'"T%d"' % topic) % b"5")
        before, _, rest = data.partition(OPAQUE)
        opaque, _, after = rest.partition(b",")
        repeated.learn(data, before, opaque, after)
        return (before, after) in repeated

    assert [True, True, *[False] * 21, True] == [learn(topic) for topic in range(24)]
    assert 1 == len(repeated)


def test_nothing_is_remembered_with_its_opaque() -> None:
    """A client that puts a blank before the number would be remembered anew with every question."""
    repeated = RepeatedQuestions()
    for opaque in range(3):
        data = cut(JSON, b'{"code":105,"opaque": %d,"extFields":{"topic":"T"}}' % opaque)
        before, _, rest = data.partition(OPAQUE)
        repeated.learn(data, before, *rest.partition(b",")[::2])
    assert {} == repeated
