"""Does a peer that asks too much or reads too little hurt only itself?"""

from namesrv_remoting.aio.dispatch import Reply, Request
from namesrv_remoting.aio.limits import ServerLimits
from namesrv_remoting.aio.protocol import ServerConnection
from tests.support.fake_clock import settle
from tests.support.gate import Gate
from tests.support.raw_peer import until
from tests.support.serving import ECHO, Serving, serving
from tests.support.spelling import json_frame

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


async def test_questions_of_one_read_may_exceed_the_limit_once() -> None:
    """What has been read is kept; the next read waits."""
    gate = Gate()
    async with serving({10: gate}, limits=ServerLimits(max_in_flight=4)) as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        connection.data_received(b"".join(json_frame(10, opaque) for opaque in range(1, 11)))
        peer.send(json_frame(10, 11))
        await settle()
        assert 10 == connection.in_flight

        gate.open()
        assert list(range(1, 12)) == [(await peer.receive()).opaque for _ in range(11)]


# -- too little reading -----------------------------------------------------------------------------------------------


async def test_peer_that_does_not_read_is_closed_when_its_buffer_is_full() -> None:
    """At once, with what was waiting for it dropped; others are served all the while."""
    limits = ServerLimits(write_buffer_bytes=2 * MEBIBYTE)
    async with serving({LARGE: answer_large}, limits=limits) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        peer.send(questions(1, QUESTIONS))
        await until(lambda: served.heard.closed)

        assert [(connection.id, "slow_reader", "peer does not read")] == served.heard.refused
        assert not connection.is_open
        assert await is_served(served)


async def test_peer_that_does_not_read_in_time_is_closed() -> None:
    """It has as long as for a frame: at 30 s it may still begin to read, at 31 s it is gone."""
    limits = ServerLimits(write_buffer_bytes=64 * MEBIBYTE)
    async with serving({LARGE: answer_large}, limits=limits) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        peer.send(questions(1, QUESTIONS))
        await until(lambda: connection.unsent_bytes > MEBIBYTE and not connection.in_flight)
        await served.clock.advance(30)
        assert [] == served.heard.refused
        assert await is_served(served)

        await served.clock.advance(1)
        assert [(connection.id, "slow_reader", "peer does not read")] == served.heard.refused
        await until(lambda: served.heard.closed)
        assert await is_served(served)


async def test_nothing_more_is_read_from_a_peer_that_does_not_read() -> None:
    """Its questions would only make more answers."""
    limits = ServerLimits(write_buffer_bytes=64 * MEBIBYTE)
    async with serving({LARGE: answer_large}, limits=limits) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        peer.send(questions(1, QUESTIONS))
        await until(lambda: connection.unsent_bytes > MEBIBYTE and not connection.in_flight)
        peer.send(questions(1, 1))
        await settle()

        assert QUESTIONS == connection.requests


async def test_peer_that_reads_again_gets_everything() -> None:
    """A pause of reading costs nothing: every answer arrives, reading goes on, and the deadline is off."""
    limits = ServerLimits(write_buffer_bytes=64 * MEBIBYTE)
    async with serving({LARGE: answer_large}, limits=limits) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        peer.send(questions(1, QUESTIONS))
        await until(lambda: connection.unsent_bytes > MEBIBYTE and not connection.in_flight)
        peer.send(questions(1 + QUESTIONS, 1))
        await served.clock.advance(29)

        peer.widen()
        assert list(range(1, 2 + QUESTIONS)) == [(await peer.receive()).opaque for _ in range(1 + QUESTIONS)]
        await served.clock.advance(100)
        assert [] == served.heard.refused
        assert 7 == (await peer.ask(json_frame(ECHO, 7))).opaque


async def test_closing_does_not_wait_for_ever_for_a_peer_that_does_not_read() -> None:
    """What is written may be read for as long as for a frame; after that the connection is cut."""
    limits = ServerLimits(write_buffer_bytes=64 * MEBIBYTE)
    async with serving({LARGE: answer_large}, limits=limits) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        peer.send(questions(1, QUESTIONS))
        await until(lambda: connection.unsent_bytes > MEBIBYTE and not connection.in_flight)
        await served.clock.advance(10)
        connection.close()
        await served.clock.advance(20)
        assert [] == served.heard.closed

        await served.clock.advance(1)
        await until(lambda: served.heard.closed)
        assert ["slow_reader"] == served.heard.reasons


async def test_closing_with_little_unsent_does_not_wait_for_ever_either() -> None:
    """Below the mark at which writing pauses, too."""
    limits = ServerLimits(write_buffer_bytes=64 * MEBIBYTE)
    async with serving({LARGE: answer_large}, limits=limits) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        peer.send(questions(1, QUESTIONS))
        await until(lambda: connection.unsent_bytes > MEBIBYTE and not connection.in_flight)
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
    limits = ServerLimits(write_buffer_bytes=64 * MEBIBYTE)
    async with serving({LARGE: answer_large}, limits=limits) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        peer.send(questions(1, QUESTIONS) + json_frame(ECHO, 7)[:9])
        await until(lambda: connection.unsent_bytes > MEBIBYTE and not connection.in_flight)
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
