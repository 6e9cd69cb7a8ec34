"""A peer that takes too long is closed, and no other."""

import os
from typing import Any

import pytest

from namesrv.net.protocol import ServerConnection
from namesrv.net.read_shares import ITERATION_COST
from tests.support.fake_clock import until
from tests.support.serving import ECHO, Gate, serving
from tests.support.spelling import JSON, ONEWAY, cut, json_frame, native_frame

FRAME = json_frame(ECHO, 7, None, b"some body")
FIRST, REST = (("slow_frame", f"timed out waiting for the {what}") for what in ("first frame", "rest of a frame"))

Steps = list[bytes | float]


@pytest.mark.parametrize(
    ("limits", "steps", "late"),
    [
        # RocketMQ 5.x connects to every name server in advance and may ask two minutes later
        ({}, [120, 1], ("silent", "nothing received for 120 s")),
        ({}, [120, FRAME, 7200], None),
        # from its first byte, whenever that came
        *(({}, [100, FRAME[:size], 10, 1], FIRST) for size in (1, 3, 7, 8, len(FRAME) - 1)),
        ({}, [FRAME[:9], 10, FRAME[9:]], None),
        # one byte a second is not in time, however long it goes on
        ({}, [*(step for at in range(10) for step in (FRAME[at : at + 1], 1)), 1], FIRST),
        ({}, [FRAME, *(step for at in range(30) for step in (FRAME[at : at + 1], 1)), 1], REST),
        # after its first frame a peer may be silent for hours: a broker that says nothing is the scan's business
        *(({}, [first, 7200, FRAME], None) for first in (native_frame(ECHO, 7), json_frame(ECHO, 7, flag=ONEWAY))),
        ({}, [FRAME, 100, FRAME[:20], 30, 1], REST),
        ({}, [FRAME, 100, FRAME[:20], 30, FRAME[20:], 100], None),
        # every frame has its own thirty seconds, though reads always end within one
        ({}, [FRAME[:20], *[8, FRAME[20:] + FRAME[:20]] * 10, 30, 1], REST),
        # 0 seconds is no deadline
        ({"whole_frame_seconds": 0}, [FRAME[:9], FRAME[9:] + FRAME + FRAME[:20], 1000], None),
        ({"silent_seconds": 0, "first_frame_seconds": 0}, [1000, FRAME[:20], 1000, FRAME[20:]], None),
        # any byte counts as a sign of life
        ({"idle_seconds": 120}, [FRAME, 120, 1], ("idle", "nothing received for 120 s")),
        ({"idle_seconds": 120, "whole_frame_seconds": 1000}, [FRAME, 100, FRAME[:1], 120], None),
    ],
)
async def test_peer_that_is_late_is_closed(limits: dict[str, Any], steps: Steps, late: tuple[str, str] | None) -> None:
    """In the last second of those that it lets pass, and not before; another one never, and is answered."""
    async with serving(**limits) as served:
        peer, other = await served.connect(), await served.connect()
        await other.ask(FRAME)
        served.connection_of(other).peer.note_role("broker")
        for number, step in enumerate(steps):
            assert served.listener.refused == [], steps[:number]
            if isinstance(step, bytes):
                await peer.send_slowly(step)
            else:
                await served.clock.advance(step)

        if late is None:
            assert served.listener.refused == []
        else:
            await until(lambda: served.listener.closed)
            assert [(1, *late)] == served.listener.refused
        assert (await other.ask(json_frame(ECHO, 8))).opaque == 8


async def test_server_that_was_late_itself_closes_nobody_for_it() -> None:
    """What came in time may still wait to be read when the loop wakes up: it is read before the next look."""
    async with serving() as served:
        peer = await served.connect()
        await peer.send_slowly(FRAME[:9])
        await served.clock.advance(5)
        served.clock.stall(60)
        await served.clock.advance(0)

        assert served.listener.refused == []
        peer.send(FRAME[9:])
        assert (await peer.receive()).opaque == 7


async def test_frame_that_arrived_is_read_before_its_deadline_is_judged() -> None:
    """On a starved machine it may have waited in the socket for long."""
    async with serving() as served:
        peer = await served.connect()
        await peer.send_slowly(FRAME[:9])
        connection = served.connection_of(peer)
        os.write(peer.writer.get_extra_info("socket").fileno(), FRAME[9:])
        # no turn of the loop in between
        connection.check_deadlines(served.clock.monotonic() + 100)

        assert served.listener.refused == []
        assert (await peer.receive()).opaque == 7


def receive_behind_others(connection: ServerConnection, data: bytes) -> None:
    """Receive data after other connections of the same address have used up its share of this iteration."""
    connection.read_share.spend(ITERATION_COST)
    connection.data_received(data)


@pytest.mark.parametrize(("wait", "most"), [(0, 11), (3, 24)])
async def test_used_up_share_postpones_a_deadline_once(wait: float, most: float) -> None:
    """A peer that keeps the share of its own address used up has at most twice the 10 s to complete a frame."""
    async with serving() as served:
        peer = await served.connect()
        await peer.send_slowly(FRAME[:9])
        connection, began = served.connection_of(peer), served.clock.monotonic()
        for at in range(9, len(FRAME) - 1):
            receive_behind_others(connection, FRAME[at : at + 1])
            served.clock.stall(wait)
            await served.clock.advance(1)
            if served.listener.refused:
                break

        assert served.listener.refused == [(1, *FIRST)]
        assert 10 <= served.clock.monotonic() - began <= most


async def test_time_in_the_queue_of_the_server_does_not_count() -> None:
    """The deadline of an incomplete frame moves by the time that received bytes waited for their share."""
    async with serving() as served:
        peer = await served.connect()
        await peer.send_slowly(FRAME[:9])
        await served.clock.advance(8)
        receive_behind_others(served.connection_of(peer), FRAME[9:11])
        served.clock.stall(5)
        await served.clock.advance(1)
        assert served.listener.refused == []

        peer.send(FRAME[11:])
        assert (await peer.receive()).opaque == 7


async def test_peer_that_waits_for_an_answer_is_not_idle() -> None:
    """It has nothing to say until it is answered."""
    gate = Gate()
    async with serving({10: gate}, concurrent=frozenset({10}), idle_seconds=120) as served:
        peer = await served.connect()
        peer.send(json_frame(10, 1))
        await until(lambda: gate.came)
        await served.clock.advance(1000)
        assert served.listener.refused == []

        gate.open()
        assert (await peer.receive()).opaque == 1
        await until(lambda: not served.connection_of(peer).in_flight)
        await served.clock.advance(1)
        assert await peer.at_end()


async def test_peer_that_asks_the_same_all_the_time_is_not_idle() -> None:
    """A request of the fast path counts as something received."""
    response = cut(JSON, b'{"code":0,"opaque":7}')
    async with serving(fast_path=lambda *_: response, idle_seconds=120) as served:
        peer = await served.connect()
        for _ in range(3):
            assert (await peer.ask(FRAME)).opaque == 7
            await served.clock.advance(119)
        connection = served.connection_of(peer)
        assert served.clock.monotonic() - connection.last_read <= 119
        assert served.listener.refused == []

        await served.clock.advance(121)
        assert await peer.at_end()
        assert served.listener.reasons == ["idle"]
