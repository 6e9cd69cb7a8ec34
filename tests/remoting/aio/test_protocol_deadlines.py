"""A peer that takes too long is closed, and no other."""

import os

import pytest

from namesrv_remoting.aio.limits import ServerLimits
from tests.support.gate import Gate
from tests.support.raw_peer import until
from tests.support.serving import ECHO, serving
from tests.support.spelling import ONEWAY, json_frame, native_frame

FRAME = json_frame(ECHO, 7, None, b"some body")
LIMITS = ServerLimits(first_frame_seconds=10, whole_frame_seconds=30)


async def test_peer_may_be_silent_for_two_minutes() -> None:
    """RocketMQ 5.x connects to every name server in advance; at 120 s it may still ask, at 121 s it is closed."""
    async with serving(limits=LIMITS) as served:
        silent, asks = await served.connect(), await served.connect()
        await served.clock.advance(120)
        assert [] == served.heard.refused
        assert 7 == (await asks.ask(FRAME)).opaque
        await served.clock.advance(1)

        assert await silent.at_end()
        assert [(1, "silent", "nothing received for 120 s")] == served.heard.refused


@pytest.mark.parametrize("sent", [FRAME[:1], FRAME[:3], FRAME[:7], FRAME[:8], FRAME[:-1]])
async def test_first_frame_that_has_begun_has_ten_seconds(sent: bytes) -> None:
    """From its first byte, whenever that came."""
    async with serving(limits=LIMITS) as served:
        peer = await served.connect()
        await served.clock.advance(100)
        await peer.send_slowly(sent)
        await served.clock.advance(10)
        assert [] == served.heard.refused
        await served.clock.advance(1)

        assert await peer.at_end()
        assert [(1, "slow_frame", "timed out waiting for the first frame")] == served.heard.refused


async def test_slow_drip_does_not_help() -> None:
    """One byte a second is not in time, however long it goes on."""
    async with serving(limits=LIMITS) as served:
        peer = await served.connect()
        for at in range(12):
            await peer.send_slowly(FRAME[at : at + 1])
            await served.clock.advance(1)

        assert await peer.at_end()
        assert ["slow_frame"] == served.heard.reasons


@pytest.mark.parametrize("first", [FRAME, native_frame(ECHO, 7), json_frame(ECHO, 7, flag=ONEWAY)])
async def test_after_its_first_frame_a_peer_may_be_silent(first: bytes) -> None:
    """For hours: a broker that says nothing is the scan's business."""
    async with serving(limits=LIMITS) as served:
        peer = await served.connect()
        await peer.send_slowly(first)
        await served.clock.advance(7200)

        assert [] == served.heard.refused
        peer.send(json_frame(ECHO, 8))
        await until(lambda: served.connection_of(peer).requests == 2)


async def test_rest_of_a_frame_has_thirty_seconds() -> None:
    """From its first byte: at 30 s it still counts, at 31 s it does not."""
    async with serving(limits=LIMITS) as served:
        in_time, late = await served.connect(), await served.connect()
        for peer in (in_time, late):
            await peer.ask(FRAME)
        await served.clock.advance(100)
        for peer in (in_time, late):
            await peer.send_slowly(FRAME[:20])
        await served.clock.advance(30)
        await in_time.send_slowly(FRAME[20:])
        assert 7 == (await in_time.receive()).opaque
        await served.clock.advance(1)

        assert await late.at_end()
        assert [(2, "slow_frame", "timed out waiting for the rest of a frame")] == served.heard.refused


async def test_every_frame_has_its_own_thirty_seconds() -> None:
    """A peer whose reads always end within a frame is not late as long as frames get done."""
    async with serving(limits=LIMITS) as served:
        peer = await served.connect()
        await peer.send_slowly(FRAME[:20])
        for _ in range(10):
            await served.clock.advance(8)
            await peer.send_slowly(FRAME[20:] + FRAME[:20])
            assert 7 == (await peer.receive()).opaque

        assert [] == served.heard.refused
        await served.clock.advance(31)
        assert await peer.at_end()


async def test_bytes_of_a_frame_do_not_move_its_deadline() -> None:
    """A byte every second is no frame in thirty."""
    async with serving(limits=LIMITS) as served:
        peer = await served.connect()
        await peer.ask(FRAME)
        for at in range(32):
            await peer.send_slowly(FRAME[at : at + 1])
            await served.clock.advance(1)

        assert await peer.at_end()


async def test_first_frame_ends_the_first_deadline_even_with_a_tail() -> None:
    """With no deadline for whole frames, what follows the first one may take for ever."""
    async with serving(limits=ServerLimits(first_frame_seconds=10, whole_frame_seconds=0)) as served:
        for sent in (FRAME + FRAME[:20], FRAME):
            peer = await served.connect()
            await peer.send_slowly(FRAME[:9])
            peer.send(FRAME[9:] + sent)
            for _ in range(2):
                await peer.receive()

        await served.clock.advance(1000)
        assert [] == served.heard.refused


async def test_deadlines_can_be_switched_off() -> None:
    """0 seconds is no deadline."""
    limits = ServerLimits(silent_seconds=0, first_frame_seconds=0, whole_frame_seconds=0)
    async with serving(limits=limits) as served:
        peer = await served.connect()
        await served.clock.advance(1000)
        await peer.send_slowly(FRAME[:20])
        await served.clock.advance(1000)
        peer.send(FRAME[20:])

        assert 7 == (await peer.receive()).opaque


async def test_server_that_was_late_itself_closes_nobody_for_it() -> None:
    """What came in time may still wait to be read when the loop wakes up: it is read before the next look."""
    async with serving(limits=LIMITS) as served:
        peer = await served.connect()
        await peer.send_slowly(FRAME[:9])
        await served.clock.advance(5)
        served.clock.stall(60)
        await served.clock.advance(0)

        assert [] == served.heard.refused
        peer.send(FRAME[9:])
        assert 7 == (await peer.receive()).opaque


async def test_frame_that_arrived_is_read_before_its_deadline_is_judged() -> None:
    """On a starved machine it may have waited in the socket for long."""
    async with serving(limits=LIMITS) as served:
        peer = await served.connect()
        await peer.send_slowly(FRAME[:9])
        connection = served.connection_of(peer)
        os.write(peer.writer.get_extra_info("socket").fileno(), FRAME[9:])
        # no turn of the loop in between
        connection.check_deadlines(served.clock.monotonic() + 100)

        assert [] == served.heard.refused
        assert 7 == (await peer.receive()).opaque


# -- idle -------------------------------------------------------------------------------------------------------------


async def test_idle_peer_is_closed_when_asked_for() -> None:
    """Any byte counts as a sign of life, and a broker's silence is the scan's business."""
    async with serving(limits=ServerLimits(idle_seconds=120, whole_frame_seconds=1000)) as served:
        idle, busy, broker = await served.connect(), await served.connect(), await served.connect()
        for peer in (idle, busy, broker):
            await peer.ask(FRAME)
        served.connection_of(broker).note_role("broker")
        await served.clock.advance(100)
        await busy.send_slowly(FRAME[:1])
        await served.clock.advance(20)
        assert [] == served.heard.refused
        await served.clock.advance(1)

        assert await idle.at_end()
        assert [(1, "idle", "nothing received for 120 s")] == served.heard.refused
        assert [2, 3] == list(served.server.connections)


async def test_peer_that_waits_for_an_answer_is_not_idle() -> None:
    """It has nothing to say until it is answered."""
    gate = Gate()
    async with serving({10: gate}, concurrent=frozenset({10}), limits=ServerLimits(idle_seconds=120)) as served:
        peer = await served.connect()
        peer.send(json_frame(10, 1))
        await until(lambda: gate.came)
        await served.clock.advance(1000)
        assert [] == served.heard.refused

        gate.open()
        assert 1 == (await peer.receive()).opaque
        await until(lambda: not served.connection_of(peer).in_flight)
        await served.clock.advance(1)
        assert await peer.at_end()
