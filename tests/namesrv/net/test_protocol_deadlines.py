"""Deadlines of a connection: a late peer is closed, and no other."""

import asyncio
import os
from typing import Any

import pytest

from namesrv.net.fairness.read_shares import ITERATION_COST
from namesrv.net.protocol import ServerConnection
from tests.support.fake_clock import until
from tests.support.serving import ECHO, LARGE, Gate, serving
from tests.support.spelling import JSON, ONEWAY, cut, json_frame, native_frame

FRAME = json_frame(ECHO, 7, None, b"some body")
FIRST, REST = (("slow_frame", f"timed out waiting for the {what}") for what in ("first frame", "rest of a frame"))

Steps = list[bytes | float]


@pytest.mark.parametrize(
    ("limits", "steps", "late"),
    [
        # clients of RocketMQ 5.x connect to every NameServer, and may send their first request two minutes later
        ({}, [120, 1], ("silent", "nothing received for 120 s")),
        # LIMITS has no idle timeout
        ({}, [120, FRAME, 600], None),
        # the deadline begins with the first byte of the frame
        *(({}, [100, FRAME[:size], 10, 1], FIRST) for size in (1, 3, 7, 8, len(FRAME) - 1)),
        ({}, [FRAME[:9], 10, FRAME[9:]], None),
        # single bytes do not extend the deadline
        ({}, [*(step for at in range(10) for step in (FRAME[at : at + 1], 1)), 1], FIRST),
        ({}, [FRAME, *(step for at in range(30) for step in (FRAME[at : at + 1], 1)), 1], REST),
        # without an idle timeout a peer may be silent for hours after its first frame; expiry is the scan's task
        *(({}, [first, 600, FRAME], None) for first in (native_frame(ECHO, 7), json_frame(ECHO, 7, flag=ONEWAY))),
        ({}, [FRAME, 100, FRAME[:20], 30, 1], REST),
        ({}, [FRAME, 100, FRAME[:20], 30, FRAME[20:], 100], None),
        # each frame has its own thirty seconds, although every read ends within a frame
        ({}, [FRAME[:20], *[8, FRAME[20:] + FRAME[:20]] * 10, 30, 1], REST),
        # 0 seconds turn a deadline off
        ({"whole_frame_seconds": 0}, [FRAME[:9], FRAME[9:] + FRAME + FRAME[:20], 1000], None),
        ({"silent_seconds": 0, "first_frame_seconds": 0}, [1000, FRAME[:20], 1000, FRAME[20:]], None),
        # any byte ends the idle time
        ({"idle_seconds": 120}, [FRAME, 120, 1], ("idle", "nothing received for 120 s")),
        ({"idle_seconds": 120, "whole_frame_seconds": 1000}, [FRAME, 100, FRAME[:1], 120], None),
    ],
)
async def test_late_peer_is_closed(limits: dict[str, Any], steps: Steps, late: tuple[str, str] | None) -> None:
    """A peer is closed in the last second of its deadline; another peer, which is in time, is answered."""
    async with serving(**limits) as served:
        peer, other = await served.connect(), await served.connect()
        await other.ask(FRAME)
        served.connection_of(other).peer.note_role("broker")
        for number, step in enumerate(steps):
            assert served.observer.refused == [], steps[:number]
            if isinstance(step, bytes):
                await peer.send_slowly(step)
            else:
                await served.clock.advance(step)

        if late is None:
            assert served.observer.refused == []
        else:
            await until(lambda: served.observer.closed)
            assert served.observer.refused == [(1, *late)]
        assert (await other.ask(json_frame(ECHO, 8))).opaque == 8


async def test_large_first_frame_has_the_time_of_later_frames() -> None:
    """A broker's first frame is often a registration of megabytes, which a slow network needs long for."""
    frame = json_frame(ECHO, 7, None, bytes(100_000))
    async with serving(large_frames=LARGE) as served:
        peer, late = await served.connect(), await served.connect()
        for each in (peer, late):
            each.send(frame[:50_000])
        await until(lambda: served.server.bytes_received == 100_000)
        await served.clock.advance(29)
        peer.send(frame[50_000:])
        assert (await peer.receive()).opaque == 7

        await served.clock.advance(2)
        await until(lambda: served.observer.closed)
        assert served.observer.refused == [(2, *REST)]


async def test_received_bytes_are_read_before_the_deadline_is_checked() -> None:
    """A frame that waits in the socket is read before its deadline is checked."""
    async with serving() as served:
        peer = await served.connect()
        await peer.send_slowly(FRAME[:9])
        connection = served.connection_of(peer)
        os.write(peer.writer.get_extra_info("socket").fileno(), FRAME[9:])
        # the loop does not run in between
        connection.check_deadlines(served.clock.monotonic() + 100)

        assert served.observer.refused == []
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
            if served.observer.refused:
                break

        assert served.observer.refused == [(1, *FIRST)]
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
        assert served.observer.refused == []

        peer.send(FRAME[11:])
        assert (await peer.receive()).opaque == 7


async def test_peer_that_waits_for_a_response_is_not_idle() -> None:
    """The idle time begins after the last response."""
    gate = Gate()
    async with serving({10: gate}, concurrent=frozenset({10}), idle_seconds=120) as served:
        peer = await served.connect()
        peer.send(json_frame(10, 1))
        await until(lambda: gate.came)
        await served.clock.advance(1000)
        assert served.observer.refused == []

        gate.open()
        assert (await peer.receive()).opaque == 1
        await until(lambda: not served.connection_of(peer).in_flight)
        await served.clock.advance(1)
        assert await peer.at_end()


async def test_request_of_the_fast_path_ends_the_idle_time() -> None:
    """A peer whose requests are all answered by the fast path is not idle."""
    response = cut(JSON, b'{"code":0,"opaque":7}')
    async with serving(fast_path=lambda *_: response, idle_seconds=120) as served:
        peer = await served.connect()
        for _ in range(3):
            assert (await peer.ask(FRAME)).opaque == 7
            await served.clock.advance(119)
        connection = served.connection_of(peer)
        assert served.clock.monotonic() - connection.quiet_since <= 119
        assert served.observer.refused == []

        await served.clock.advance(121)
        assert await peer.at_end()
        assert served.observer.reasons == ["idle"]


async def test_deadlines_of_many_connections_are_checked_in_chunks() -> None:
    """The event loop serves peers after each hundred connections, even if all of them are late at once."""
    async with serving() as served:
        refused = served.observer.refused
        for _ in range(250):
            await served.connect()
        counts = set[int]()

        async def count() -> None:
            while len(refused) < 250:
                counts.add(len(refused))
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(count())
            await served.clock.advance(121)

    assert counts == {0, 100, 200}
