"""A peer that asks too much or reads too little hurts only itself."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from namesrv.net.dispatcher import Reply, Request
from namesrv.net.protocol import ServerConnection
from tests.support.fake_clock import settle, until
from tests.support.raw_peer import RawPeer
from tests.support.serving import ECHO, Gate, Serving, serving
from tests.support.spelling import JSON, cut, json_frame

MEBIBYTE = 1024 * 1024
LARGE = 10
# more than the kernel's buffers take
QUESTIONS = 24


def questions(count: int, code: int = LARGE, body: bytes = b"") -> bytes:
    """Questions with the opaques from 1 on."""
    return b"".join(json_frame(code, opaque, None, body) for opaque in range(1, count + 1))


async def answer_large(request: Request) -> Reply:
    """A handler whose answers are a mebibyte."""
    return Reply(bytes(MEBIBYTE))


def answer_at_once(connection: ServerConnection, frame: bytes) -> bytes | None:
    """A fast path whose answers are 16 KiB; the opaque is the question's."""
    opaque = int(frame.partition(b'"opaque":')[2].split(b",")[0].rstrip(b"}"))
    return json_frame(0, opaque, body=bytes(16 * 1024), flag=1)


async def stuck(served: Serving, asked: bytes) -> tuple[RawPeer, ServerConnection]:
    """A peer that has asked much and reads nothing, when its answers no longer move."""
    peer = await served.connect(receive_buffer=4096)
    connection = served.connection_of(peer)
    peer.send(asked)
    unsent = -1
    while not connection.is_write_paused or unsent != connection.unsent_bytes:
        unsent = connection.unsent_bytes
        await settle()
    return peer, connection


async def is_served(served: Serving) -> bool:
    """Whether somebody else is answered."""
    peer = await served.connect()
    return (await peer.ask(json_frame(ECHO, 7))).opaque == 7


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "one read"])
@pytest.mark.parametrize(("body", "most", "is_watch"), [(b"", 4, False), (b"", 4, True), (bytes(60 * 1024), 5, False)])
async def test_questions_in_flight_are_bounded(at_once: bool, body: bytes, most: int, is_watch: bool) -> None:
    """By number, watches too, or by size. The others wait, in the socket or behind it, and nothing is lost."""
    gate = Gate()
    concurrent = frozenset({10} if is_watch else ())
    async with serving({10: gate}, concurrent=concurrent, max_in_flight=4 if most == 4 else 256) as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        asked = questions(10, 10, body)
        if at_once:
            connection.data_received(asked)
        for at in range(0, 0 if at_once else len(asked), len(asked) // 10):
            peer.send(asked[at : at + len(asked) // 10])
            await settle()
        peer.send(json_frame(10, 11))
        await settle()
        assert most == connection.in_flight
        assert await is_served(served)
        assert most == connection.in_flight

        gate.open()
        assert list(range(1, 12)) == sorted([(await peer.receive()).opaque for _ in range(11)])


async def test_decoding_leaves_the_loop_to_others() -> None:
    """However many odd headers one read holds: after 5 ms of them the rest waits for its next turn."""
    # single quotes are for the slow reader
    odd = cut(JSON, b"{'code':1,'opaque':7,'extFields':{%b}}" % b",".join(b"'k%d':'v'" % i for i in range(200)))
    async with serving() as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        connection.data_received(odd * 50)
        assert 0 < connection.peer.requests < 50

        assert [(await peer.receive()).opaque for _ in range(50)] == [7] * 50


async def test_requests_of_a_crowd_leave_the_loop_to_others() -> None:
    """Read in one pass of the loop, they begin in order, and no more than a few dozen in each of the next ones."""
    passes, begun = 0, []

    def note_pass() -> None:
        nonlocal passes
        passes += 1
        loop.call_soon(note_pass)

    async def note(request: Request) -> Reply:
        begun.append((passes, request.command.opaque))
        return Reply()

    loop = asyncio.get_running_loop()
    async with serving({LARGE: note}) as served:
        peers = [await served.connect() for _ in range(100)]
        loop.call_soon(note_pass)
        for opaque, peer in enumerate(peers):
            served.connection_of(peer).data_received(json_frame(LARGE, opaque))
        responses = [(await peer.receive()).opaque for peer in peers]

    assert list(range(100)) == [opaque for _, opaque in begun] == responses
    assert max(Counter(number for number, _ in begun).values()) <= 32


async def test_peer_that_pipelines_a_lot_and_reads_gets_everything() -> None:
    """Its answers are many times the write buffer, which it cannot have read while its questions were looked at."""
    async with serving(write_buffer_bytes=MEBIBYTE, fast_path=answer_at_once) as served:
        peer = await served.connect()
        asked = questions(2000)
        peer.send(asked)

        assert list(range(1, 2001)) == [(await peer.receive()).opaque for _ in range(2000)]
        assert served.listener.refused == []
        # what had to wait was not counted again
        assert len(asked) == served.server.bytes_received


@pytest.mark.parametrize(
    ("asked", "fast"),
    # a frame that is late besides does not keep it open
    [(questions(QUESTIONS), False), (questions(QUESTIONS) + json_frame(ECHO, 7)[:9], False), (questions(2000), True)],
    ids=["ordinary", "half a frame behind", "fast"],
)
async def test_peer_that_does_not_read_gets_no_further_answer(asked: bytes, fast: bool) -> None:
    """Its questions wait until it has read; it has as long as for a frame: at 31 s it is gone, and nobody else is."""
    options: dict[str, Any] = {"fast_path": answer_at_once} if fast else {}
    async with serving({LARGE: answer_large}, write_buffer_bytes=16 * MEBIBYTE, **options) as served:
        peer, connection = await stuck(served, asked)
        assert connection.unsent_bytes <= MEBIBYTE + 64 * 1024
        made = connection.peer.requests
        peer.send(questions(1))
        await served.clock.advance(30)
        assert "slow_reader" not in served.listener.reasons
        if not fast:
            assert await is_served(served)
        assert made == connection.peer.requests

        await served.clock.advance(1)
        assert (connection.id, "slow_reader", "peer does not read") == served.listener.refused[-1]
        await until(lambda: served.listener.closed)


async def test_peer_that_reads_again_gets_everything() -> None:
    """A pause of reading costs nothing: every answer arrives, reading goes on, and the deadline is off."""
    async with serving({LARGE: answer_large}) as served:
        peer, _ = await stuck(served, questions(QUESTIONS))
        peer.send(questions(1))
        await served.clock.advance(29)

        peer.widen()
        assert [*range(1, 1 + QUESTIONS), 1] == [(await peer.receive()).opaque for _ in range(1 + QUESTIONS)]
        await served.clock.advance(100)
        assert served.listener.refused == []
        assert (await peer.ask(json_frame(ECHO, 7))).opaque == 7


async def test_answers_out_of_order_are_bounded_by_the_write_buffer() -> None:
    """A large one counts like many small ones: who has not read the first is closed before it gets the fifth."""
    gate = Gate()

    async def answer_late(request: Request) -> Reply:
        await gate(request)
        return Reply(bytes(MEBIBYTE))

    async with serving({10: answer_late}, concurrent=frozenset({10}), write_buffer_bytes=4 * MEBIBYTE) as served:
        peer = await served.connect(receive_buffer=4096)
        peer.send(questions(QUESTIONS))
        await until(lambda: len(gate.came) == QUESTIONS)
        gate.open()
        await until(lambda: served.listener.closed)

        assert served.listener.refused == [(1, "slow_reader", "peer does not read")]
        assert await is_served(served)


async def test_fast_path_waits_until_its_last_response_is_sent() -> None:
    """What the socket does not take is unsent; no further request is read before the peer has read it."""
    responses: list[bytes] = []

    def response(_: ServerConnection, frame: bytes) -> bytes | None:
        responses.append(cut(JSON, b'{"code":0,"opaque":%d}' % len(responses), b"%d" % len(responses) * MEBIBYTE))
        return responses[-1]

    async def ask(peer: RawPeer) -> None:
        before = len(responses)
        peer.send(json_frame(ECHO, 1))
        await until(lambda: len(responses) > before)

    async with serving(fast_path=response) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        while not connection.is_write_paused:
            await ask(peer)
        peer.widen()
        assert list(range(len(responses))) == [(await peer.receive()).opaque for _ in responses]
        assert not connection.unsent_bytes
        await ask(peer)
        assert b"%d" % (len(responses) - 1) * MEBIBYTE == (await peer.receive()).body
        assert len(b"".join(responses)) == served.server.bytes_sent


async def test_closing_does_not_wait_for_ever_for_a_peer_that_does_not_read() -> None:
    """What is written may be read for as long as for a frame."""
    async with serving({LARGE: answer_large}) as served:
        _, connection = await stuck(served, questions(QUESTIONS))
        connection.close()
        await served.clock.advance(30)
        assert served.listener.closed == []

        await served.clock.advance(1)
        await until(lambda: served.listener.closed)
        assert served.listener.reasons == ["slow_reader"]
