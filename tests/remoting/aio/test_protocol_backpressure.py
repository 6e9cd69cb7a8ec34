"""A peer that asks too much or reads too little hurts only itself."""

import pytest

from namesrv_remoting.aio.connection import ServerConnection
from namesrv_remoting.aio.dispatch import Reply, Request
from namesrv_remoting.aio.limits import ServerLimits
from tests.support.fake_clock import settle
from tests.support.gate import Gate
from tests.support.raw_peer import RawPeer, until
from tests.support.serving import ECHO, Serving, serving
from tests.support.spelling import JSON, cut, json_frame

MEBIBYTE = 1024 * 1024
LARGE = 10
# more than the kernel's buffers take
QUESTIONS = 24


async def answer_large(request: Request) -> Reply:
    """A handler whose answers are a mebibyte."""
    return Reply(bytes(MEBIBYTE))


def questions(first: int, count: int) -> bytes:
    """Questions for large answers."""
    return b"".join(json_frame(LARGE, opaque) for opaque in range(first, first + count))


async def stuck(served: Serving, tail: bytes = b"") -> tuple[RawPeer, ServerConnection]:
    """A peer that has asked much and reads nothing, when its answers no longer move."""
    peer = await served.connect(receive_buffer=4096)
    connection = served.connection_of(peer)
    peer.send(questions(1, QUESTIONS) + tail)
    unsent = -1
    while not connection.is_write_paused or unsent != connection.unsent_bytes:
        unsent = connection.unsent_bytes
        await settle()
    return peer, connection


async def is_served(served: Serving) -> bool:
    """Whether somebody else is answered."""
    peer = await served.connect()
    return 7 == (await peer.ask(json_frame(ECHO, 7))).opaque


# -- too many questions -----------------------------------------------------------------------------------------------


async def test_reading_pauses_at_the_limit_of_requests_in_flight() -> None:
    """Beyond it questions wait in the socket; when answers have gone out, reading goes on and nothing is lost."""
    gate = Gate()
    async with serving({10: gate}, limits=ServerLimits(max_in_flight=4)) as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        for opaque in range(1, 11):
            peer.send(json_frame(10, opaque))
            await settle()
        assert 4 == connection.in_flight
        assert await is_served(served)
        assert 4 == connection.in_flight

        gate.open()
        assert list(range(1, 11)) == [(await peer.receive()).opaque for _ in range(10)]


async def test_watches_count_as_requests_in_flight() -> None:
    """A peer cannot have any number of them."""
    gate = Gate()
    async with serving({10: gate}, concurrent=frozenset({10}), limits=ServerLimits(max_in_flight=4)) as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        for opaque in range(1, 11):
            peer.send(json_frame(10, opaque))
            await settle()
        assert (4, 4) == (connection.in_flight, len(gate.came))

        gate.open()
        assert set(range(1, 11)) == {(await peer.receive()).opaque for _ in range(10)}


@pytest.mark.parametrize(("body", "most"), [(b"", 4), (bytes(60 * 1024), 5)], ids=["many", "large"])
async def test_questions_of_one_read_are_bounded_as_well(body: bytes, most: int) -> None:
    """By number or by size: what came with them waits, and is looked at when there is room again."""
    gate = Gate()
    limits = ServerLimits(max_in_flight=4 if most == 4 else 256)
    async with serving({10: gate}, limits=limits) as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        connection.data_received(b"".join(json_frame(10, opaque, None, body) for opaque in range(1, 11)))
        peer.send(json_frame(10, 11))
        await settle()
        assert most == connection.in_flight

        gate.open()
        assert list(range(1, 12)) == [(await peer.receive()).opaque for _ in range(11)]


async def test_decoding_leaves_the_loop_to_others() -> None:
    """However many odd headers one read holds: after 5 ms of them the rest waits for its next turn."""
    # single quotes are for the slow reader
    odd = cut(JSON, b"{'code':1,'opaque':7,'extFields':{%b}}" % b",".join(b"'k%d':'v'" % i for i in range(200)))
    async with serving() as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        connection.data_received(odd * 50)
        assert 0 < connection.requests < 50

        assert [7] * 50 == [(await peer.receive()).opaque for _ in range(50)]


# -- too little reading -----------------------------------------------------------------------------------------------


async def test_peer_that_does_not_read_gets_no_further_answer() -> None:
    """Its questions wait until it has read; it has as long as for a frame: at 31 s it is gone, and nobody else is."""
    async with serving({LARGE: answer_large}) as served:
        peer, connection = await stuck(served)
        assert connection.unsent_bytes <= MEBIBYTE + 64 * 1024
        assert connection.requests == QUESTIONS
        peer.send(questions(1, 1))
        await served.clock.advance(30)
        assert [] == served.heard.refused
        assert await is_served(served)
        assert connection.requests == QUESTIONS

        await served.clock.advance(1)
        assert [(connection.id, "slow_reader", "peer does not read")] == served.heard.refused
        await until(lambda: served.heard.closed)
        assert await is_served(served)


async def test_peer_that_reads_again_gets_everything() -> None:
    """A pause of reading costs nothing: every answer arrives, reading goes on, and the deadline is off."""
    async with serving({LARGE: answer_large}) as served:
        peer, _ = await stuck(served)
        peer.send(questions(1 + QUESTIONS, 1))
        await served.clock.advance(29)

        peer.widen()
        assert list(range(1, 2 + QUESTIONS)) == [(await peer.receive()).opaque for _ in range(1 + QUESTIONS)]
        await served.clock.advance(100)
        assert [] == served.heard.refused
        assert 7 == (await peer.ask(json_frame(ECHO, 7))).opaque


async def test_answers_out_of_order_are_bounded_by_the_write_buffer() -> None:
    """A large one counts like many small ones: who has not read the first is closed before it gets the fifth."""
    gate = Gate()

    async def answer_late(request: Request) -> Reply:
        await gate(request)
        return Reply(bytes(MEBIBYTE))

    limits = ServerLimits(write_buffer_bytes=4 * MEBIBYTE)
    async with serving({10: answer_late}, concurrent=frozenset({10}), limits=limits) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        peer.send(b"".join(json_frame(10, opaque) for opaque in range(QUESTIONS)))
        await until(lambda: len(gate.came) == QUESTIONS)
        gate.open()
        await until(lambda: served.heard.closed)

        assert [(connection.id, "slow_reader", "peer does not read")] == served.heard.refused
        assert await is_served(served)


@pytest.mark.parametrize("few", [False, True])
async def test_closing_does_not_wait_for_ever_for_a_peer_that_does_not_read(few: bool) -> None:  # noqa: FBT001
    """What is written may be read for as long as for a frame, also below the mark at which writing pauses."""
    async with serving({LARGE: answer_large}) as served:
        _, connection = await stuck(served)
        if few:
            # as if little were left: the pause is over, and its deadline with it
            connection.resume_writing()
        connection.close()
        await served.clock.advance(30)
        assert [] == served.heard.closed

        await served.clock.advance(1)
        await until(lambda: served.heard.closed)
        assert ["slow_reader"] == served.heard.reasons


async def test_refused_peer_that_does_not_read_is_cut_as_well() -> None:
    """A frame that is late besides does not keep it open."""
    async with serving({LARGE: answer_large}) as served:
        await stuck(served, json_frame(ECHO, 7)[:9])
        await served.clock.advance(100)

        await until(lambda: served.heard.closed)
        assert "slow_reader" == served.heard.reasons[-1]


# -- the fast lane ----------------------------------------------------------------------------------------------------


def answer_at_once(
    connection: ServerConnection, serialize_type: int, header: bytes, data: bytes, body_at: int, end: int
) -> bytes | None:
    """A fast lane whose answers are 16 KiB; the opaque is the question's."""
    opaque = int(header.partition(b'"opaque":')[2].split(b",")[0].rstrip(b"}"))
    return json_frame(0, opaque, body=bytes(16 * 1024), flag=1)


async def test_peer_that_pipelines_a_lot_and_reads_gets_everything() -> None:
    """Its answers are many times the write buffer, which it cannot have read while its questions were looked at."""
    count = 2000
    limits = ServerLimits(write_buffer_bytes=MEBIBYTE)
    async with serving(limits=limits, fast_lane=answer_at_once) as served:
        peer = await served.connect()
        asked = b"".join(json_frame(ECHO, opaque) for opaque in range(1, count + 1))
        peer.send(asked)

        assert list(range(1, count + 1)) == [(await peer.receive()).opaque for _ in range(count)]
        assert [] == served.heard.refused
        # what had to wait was not counted again
        assert len(asked) == served.server.bytes_received


async def test_peer_that_pipelines_a_lot_and_does_not_read_is_held() -> None:
    """What it asked stays its own: no more than the high-water mark is made for it, and its time runs."""
    limits = ServerLimits(write_buffer_bytes=16 * MEBIBYTE)
    async with serving(limits=limits, fast_lane=answer_at_once) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        peer.send(b"".join(json_frame(ECHO, opaque) for opaque in range(1, 2001)))
        await until(lambda: connection.unsent_bytes)
        await settle()
        assert connection.unsent_bytes < MEBIBYTE

        await served.clock.advance(31)
        await until(lambda: served.heard.closed)
        assert [(connection.id, "slow_reader", "peer does not read")] == served.heard.refused
