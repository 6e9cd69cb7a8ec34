"""What the fast lane answers, what it leaves to the ordinary road, and what it keeps.

That both say the same is in test_fast_lane_agrees.
"""

from collections.abc import Mapping
from pathlib import Path

import msgpack
import pytest

from namesrv.routeinfo.route_cache import MAX_ZONES
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import (
    POPULATION,
    Broker,
    Spelling,
    meaning,
    native_registration,
    populate,
    question,
    value,
)
from tests.support.spelling import BINARY, JSON, NATIVE, ONEWAY, RESPONSE, cut

BROKER, AGENT, VERSIONLESS = POPULATION
PULL, HEARTBEAT, DATA_VERSION = 105, 904, 322
# The fast lane reads this field, and a number is not what it expects there; to these questions it means nothing.
DETOUR = {"agentId": 1}


@pytest.mark.parametrize("spelling", ["json", "native"])
@pytest.mark.parametrize(
    ("code", "ext", "body"),
    [
        (PULL, {"topic": "T"}, b""),
        (PULL, {"topic": "T", "__ZONE_MODE": "true", "__ZONE_NAME": "zone-1"}, b""),
        (PULL, {"topic": "U", "__ZONE_MODE": "true", "__ZONE_NAME": "zone-2"}, b""),
        (HEARTBEAT, BROKER.ext, b""),
        (DATA_VERSION, BROKER.ext, b""),
    ],
    ids=["route", "route in zone", "route in other zone", "heartbeat", "data version"],
)
async def test_same_question_gets_the_same_answer_over_the_socket(
    tmp_path: Path, spelling: Spelling, code: int, ext: Mapping[str, str], body: bytes
) -> None:
    """Asked twice on the fast lane, the second time from the cache, and once with a field that makes it go round."""
    async with namesrv_in_process(tmp_path, order_message_enable=True) as server:
        peer = await server.connect()
        await populate(peer)
        lane = server.namesrv.fast_lane
        answers = []
        for further in ({}, {}, DETOUR if code != HEARTBEAT or spelling == "json" else {"unknown": 1}):
            before = lane.pulls + lane.heartbeats
            peer.send(question(code, {**ext, **further}, body, spelling=spelling, opaque=7))
            answers.append(meaning(await peer.receive_bytes()))
            was_fast = lane.pulls + lane.heartbeats > before
            # 322 has no native fast lane, and a native heartbeat no field that means nothing
            assert was_fast == (further != DETOUR and not (code == DATA_VERSION and spelling == "native"))

    assert answers[0] == answers[1] == answers[2]


# -- what is left to the ordinary road -------------------------------------------------------------------------------


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
async def test_unusual_question_is_left_alone(tmp_path: Path, data: bytes, *, is_mine: bool) -> None:
    """The fast lane answers what is plain, and has counted nothing of what it leaves."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await populate(peer)
        connection, lane = server.connection_of(peer), server.namesrv.fast_lane
        requests = connection.requests
        body_at = 8 + int.from_bytes(data[5:8])

        answer = lane(connection, data[4], data[8:body_at], data, body_at, len(data))

        assert is_mine == (answer is not None) == (lane.pulls + lane.heartbeats == 1)
        assert requests + is_mine == connection.requests


async def test_nothing_is_answered_before_the_server_is_ready(tmp_path: Path) -> None:
    """Neither spelling of a route question; heartbeats are."""
    async with namesrv_in_process(tmp_path) as server:
        await populate(await server.connect())
        lane = server.namesrv.fast_lane
        lane.is_ready = False
        connection = server.connection_of(await server.connect())
        for spelling in ("json", "native"):
            data = question(PULL, {"topic": "T"}, spelling=spelling)
            body_at = 8 + int.from_bytes(data[5:8])
            assert lane(connection, data[4], data[8:body_at], data, body_at, len(data)) is None
        data = question(HEARTBEAT, BROKER.ext)
        assert lane(connection, data[4], data[8:], data, len(data), len(data)) is not None


# -- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", ["whole", "bytes", "tail"])
async def test_questions_of_one_read_are_answered_in_their_order(tmp_path: Path, pieces: str) -> None:
    """However the stream is chopped; opaques of every length and sign come back."""
    opaques = [1, 0, -1, 9, 10, 2147483647, -2147483648, 127, 128, 65536]
    stream = b"".join(
        question(PULL, {"topic": "T"}, spelling="native" if n % 3 == 0 else "json", opaque=opaque)
        for n, opaque in enumerate(opaques)
    )
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await populate(peer)
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


async def test_large_answers_to_one_read_arrive_whole(tmp_path: Path) -> None:
    """More than one batch of writes: 300 groups make an answer of 60 KiB, forty of them 2.4 MiB."""
    async with namesrv_in_process(tmp_path) as server:
        broker, peer = await server.connect(), await server.connect()
        for n in range(300):
            body = native_registration("T")
            await broker.register(Broker(f"broker-{n:03}", 0, f"10.0.0.1:{n + 1}"), body, spelling="native")

        peer.send(b"".join(question(PULL, {"topic": "T"}, opaque=n) for n in range(40)))
        answers = [await peer.receive() for _ in range(40)]

    assert list(range(40)) == [answer.opaque for answer in answers]
    assert {300} == {len(value(answer)["brokerDatas"]) for answer in answers}


# -- what is kept ----------------------------------------------------------------------------------------------------


async def test_topics_with_the_same_queues_share_one_answer(tmp_path: Path) -> None:
    """Ten thousand topics of one broker cost one body; a static mapping or order configuration makes its own."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await populate(peer)
        for topic in ("T", "U", "5", "null"):
            await peer.call(PULL, {"topic": topic})

        entries = server.namesrv.answers.json.entries
        assert entries["5"] is entries["null"]
        # T has a mapping, U is on two brokers
        assert 3 == len({id(answer) for answer in entries.values()})


async def test_hostile_zones_are_answered_and_not_kept(tmp_path: Path) -> None:
    """A peer can name any number of zones; memory is kept for a handful."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await populate(peer)
        for n in range(MAX_ZONES + 10):
            ext = {"topic": "T", "__ZONE_MODE": "true", "__ZONE_NAME": f"zone-{n}"}
            names = [group["brokerName"] for group in value(await peer.call(PULL, ext))["brokerDatas"]]
            assert (["broker-a"] if n == 1 else []) == names

        assert MAX_ZONES == len(server.namesrv.answers.json.zones)


async def test_unknown_topics_are_not_kept(tmp_path: Path) -> None:
    """Nor can anybody fill the cache with names."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        for n in range(10):
            assert 17 == (await peer.call(PULL, {"topic": f"absent-{n}"})).code

        assert {} == server.namesrv.answers.json.entries


async def test_lane_says_what_it_has_done(tmp_path: Path) -> None:
    """For whoever looks at it in a debugger."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await populate(peer)
        await peer.call(PULL, {"topic": "T"})
        await peer.call(HEARTBEAT, BROKER.ext)

        cache = "<RouteCache [1 topics | 0 bodies | 0 zones]>"
        assert f"<FastLane [1 pulls | 1 heartbeats | {cache}]>" == repr(server.namesrv.fast_lane)
