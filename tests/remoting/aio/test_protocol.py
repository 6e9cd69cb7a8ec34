"""Everything that comes over one connection is answered, in whatever pieces it comes."""

import asyncio
import logging

import pytest

from namesrv_remoting.aio.connection import ServerConnection
from namesrv_remoting.aio.dispatch import Reply, Request
from namesrv_remoting.errors import SystemError_
from tests.support.chopping import Feed, byte_by_byte, every_feeding, whole
from tests.support.fake_clock import settle
from tests.support.gate import Gate
from tests.support.raw_peer import until
from tests.support.serving import ECHO, FAIL, LARGE, serving
from tests.support.spelling import BINARY, JSON, NATIVE, ONEWAY, RESPONSE, binary_frame, cut, json_frame, native_frame

# -- frames in, answers out -------------------------------------------------------------------------------------------


@every_feeding
@pytest.mark.parametrize(
    ("question", "answered_with"),
    [
        (json_frame(ECHO, 7, {"a": "b"}, b"body"), JSON),
        (binary_frame(ECHO, 7, {"a": "b"}, b"body"), JSON),
        (native_frame(ECHO, 7, {"a": "b"}, b"body"), NATIVE),
    ],
    ids=["json", "binary", "native"],
)
async def test_question_is_answered(feed: Feed, question: bytes, answered_with: int) -> None:
    """Header, ext fields and body arrive, however the frame is chopped."""
    async with serving() as served:
        peer = await served.connect()
        await feed(peer, question)
        answer = await peer.receive()

        assert (answered_with, 0, 7, b"body") == (answer.serialize_type, answer.code, answer.opaque, answer.body)
        assert answer.ext_fields is not None
        assert "b" == answer.ext_fields["a"]


@every_feeding
async def test_pipelined_questions_are_answered_in_order(feed: Feed) -> None:
    """Many frames of all spellings without waiting for an answer: each gets its own, in the order they came."""
    spellings = (json_frame, binary_frame, native_frame)
    questions = b"".join(spellings[opaque % 3](ECHO, opaque, None, b"%d" % opaque) for opaque in range(1, 31))
    async with serving() as served:
        peer = await served.connect()
        await feed(peer, questions)
        answers = [await peer.receive() for _ in range(30)]

        assert list(range(1, 31)) == [answer.opaque for answer in answers]
        assert [b"%d" % opaque for opaque in range(1, 31)] == [answer.body for answer in answers]


async def test_body_of_a_mebibyte_arrives() -> None:
    """A frame that takes many reads is put together again."""
    body = bytes(range(256)) * 4096
    async with serving(limits=LARGE) as served:
        peer = await served.connect()
        assert body == (await peer.ask(json_frame(ECHO, 7, body=body))).body


async def test_binary_header_decides_where_the_body_begins() -> None:
    """The declared header length does not, as in Java: what follows the ext fields is the body, its length kept."""
    frame = bytearray(binary_frame(ECHO, 7, None, b"0123456789"))
    # says that four bytes of the body still belong to the header
    frame[7] += 4
    async with serving() as served:
        for feed in (whole, byte_by_byte):
            peer = await served.connect()
            await feed(peer, bytes(frame))
            assert b"012345" == (await peer.receive()).body


# -- who waits for whom -----------------------------------------------------------------------------------------------


async def test_ordinary_requests_run_one_after_the_other() -> None:
    """The second one of a connection is not begun before the first one is answered; other connections do not wait."""
    gate = Gate()
    async with serving({10: gate}) as served:
        first, second = await served.connect(), await served.connect()
        first.send(json_frame(10, 1) + json_frame(10, 2) + json_frame(ECHO, 3))
        await until(lambda: gate.came)
        await settle()
        assert [1] == gate.came
        assert 4 == (await second.ask(json_frame(ECHO, 4))).opaque

        gate.open()
        assert [1, 2, 3] == [(await first.receive()).opaque for _ in range(3)]


async def test_concurrent_requests_are_answered_out_of_order() -> None:
    """What may take long holds up nobody behind it, not even its like; peers go by the opaque."""
    gates = {1: Gate(), 2: Gate()}

    async def wait(request: Request) -> Reply:
        return await gates[request.command.opaque or 0](request)

    async with serving({10: wait}, concurrent=frozenset({10})) as served:
        peer = await served.connect()
        peer.send(json_frame(10, 1) + json_frame(10, 2) + json_frame(ECHO, 3))

        assert 3 == (await peer.receive()).opaque
        gates[2].open()
        assert 2 == (await peer.receive()).opaque
        gates[1].open()
        assert 1 == (await peer.receive()).opaque
        assert 0 == served.connection_of(peer).in_flight


async def test_many_pipelined_requests_of_one_peer_leave_the_loop_to_others() -> None:
    """Handlers that never wait are not run back to back: others get their turn in between."""
    turns: list[str] = []

    async def note(request: Request) -> Reply:
        turns.append("pipelined")
        return Reply()

    async def other() -> None:
        while turns.count("pipelined") < 100:
            await asyncio.sleep(0)
            turns.append("other")

    async with serving({10: note}) as served:
        peer = await served.connect()
        peer.send(b"".join(json_frame(10, opaque) for opaque in range(100)))
        await other()

    first, last = turns.index("pipelined"), len(turns) - turns[::-1].index("pipelined")
    assert turns[first:last].count("other") > 50


# -- what is not answered ---------------------------------------------------------------------------------------------


@every_feeding
async def test_oneway_requests_are_carried_out_and_not_answered(feed: Feed) -> None:
    """Not when they succeed, are refused, are unknown or hit a bug: the next answer belongs to the next question."""
    done: list[int | None] = []

    async def note(request: Request) -> Reply:
        done.append(request.command.opaque)
        return Reply()

    async def refuse(request: Request) -> Reply:
        raise SystemError_("no")

    oneways = [
        json_frame(10, 1, flag=ONEWAY),
        native_frame(10, 2, flag=ONEWAY),
        binary_frame(10, 3, flag=ONEWAY),
        json_frame(11, 4, flag=ONEWAY),
        json_frame(99999, 5, flag=ONEWAY),
        json_frame(FAIL, 6, flag=ONEWAY),
    ]
    async with serving({10: note, 11: refuse}) as served:
        peer = await served.connect()
        await feed(peer, b"".join(oneways) + json_frame(ECHO, 7))

        assert 7 == (await peer.receive()).opaque
        assert [1, 2, 3] == done


@every_feeding
async def test_responses_are_ignored(feed: Feed) -> None:
    """We asked nothing, so nothing can be an answer to it; the connection stays open."""
    responses = [
        json_frame(ECHO, 1, flag=RESPONSE),
        native_frame(ECHO, 2, flag=RESPONSE),
        binary_frame(ECHO, 3, flag=RESPONSE),
        json_frame(ECHO, 4, flag=RESPONSE | ONEWAY),
    ]
    async with serving() as served:
        peer = await served.connect()
        await feed(peer, b"".join(responses) + json_frame(ECHO, 7))

        assert 7 == (await peer.receive()).opaque


async def test_bug_in_a_handler_costs_one_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Code 1 for the one question, a traceback with the peer's address in the log, and the connection goes on."""
    async with serving() as served:
        peer = await served.connect()
        peer.send(json_frame(FAIL, 1) + json_frame(ECHO, 2))

        refused, answered = await peer.receive(), await peer.receive()
        assert (1, 1) == (refused.opaque, refused.code)
        assert (2, 0) == (answered.opaque, answered.code)
        [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert f"request 2 from {peer.address} failed" == record.getMessage()
        assert record.exc_info is not None


# -- the fast lane ----------------------------------------------------------------------------------------------------


class Lane:
    """A fast lane that answers JSON questions with their body, swallows native ones, leaves binary ones alone."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bytes]] = []

    def __call__(  # noqa: D102 - the lane's signature
        self, connection: ServerConnection, serialize_type: int, header: bytes, data: bytes, body_at: int, end: int
    ) -> bytes | None:
        self.calls.append((serialize_type, data[body_at:end]))
        if b"left" in data[body_at:end]:
            return None
        return {JSON: cut(JSON, b'{"code":0,"opaque":0}', data[body_at:end]), NATIVE: b""}.get(serialize_type)


@every_feeding
async def test_fast_lane_answers_first(feed: Feed) -> None:
    """What it answers is answered, what it swallows is not, what it leaves goes the ordinary road."""
    lane = Lane()
    frames = [
        json_frame(ECHO, 1, None, b"fast"),
        native_frame(ECHO, 2, None, b"swallowed"),
        binary_frame(ECHO, 3, None, b"ordinary"),
        json_frame(ECHO, 4, None, b"left"),
        json_frame(ECHO, 5, None, b"fast, too"),
    ]
    async with serving(fast_lane=lane) as served:
        peer = await served.connect()
        await feed(peer, b"".join(frames))

        bodies = {(await peer.receive()).body for _ in range(4)}
        assert {b"fast", b"ordinary", b"left", b"fast, too"} == bodies
        expected = [(0, b"fast"), (77, b"swallowed"), (1, b"ordinary"), (0, b"left"), (0, b"fast, too")]
        assert expected == lane.calls


async def test_many_large_fast_answers_of_one_read_all_arrive() -> None:
    """Answers are joined into writes, whatever their size and number."""
    async with serving(fast_lane=Lane()) as served:
        peer = await served.connect()
        question = json_frame(ECHO, 1, None, bytes(10_000))
        for _ in range(3):
            peer.send(question * 60)

        assert {10_000} == {len((await peer.receive()).body) for _ in range(180)}


async def test_what_is_known_of_a_connection() -> None:
    """Its peer, how many requests, how the last one was spelt, and that nothing is in flight."""
    async with serving() as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        assert (peer.address, None, 0, -1) == (
            connection.peer,
            connection.proxied,
            connection.requests,
            connection.serialize_type,
        )

        for number, (spell, serialize_type) in enumerate(
            [(json_frame, JSON), (binary_frame, BINARY), (native_frame, NATIVE)], start=1
        ):
            await peer.ask(spell(ECHO))
            assert (number, serialize_type) == (connection.requests, connection.serialize_type)
        assert (0, 0, True) == (connection.in_flight, connection.unsent_bytes, connection.is_open)
