"""No frame disturbs a NameServer: no hang, no broken table, no hurt neighbour, no error in its log."""

import asyncio
import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from namesrv_runtime.loops import new_event_loop
from tests.fuzz.budget import FRAMES, GOLDEN, in_batches
from tests.fuzz.dice import Dice
from tests.fuzz.frames import FrameMaker, recorded_frames
from tests.fuzz.server import FuzzServer
from tests.fuzz.streams import streams

LOOPS: Final[tuple[Callable[[], asyncio.AbstractEventLoop], ...]] = (
    (asyncio.SelectorEventLoop, new_event_loop)
    if importlib.util.find_spec("uvloop") is not None
    else (asyncio.SelectorEventLoop,)
)


@pytest.mark.parametrize("loop", LOOPS)
def test_no_frame_disturbs_the_server(loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    """Every question is answered or its connection closed, and after each batch everything is as it should be.

    What that is, `FuzzServer.check` says: the control client's route, the log, the tables, and nothing left behind.
    """
    wanted = -(-FRAMES // len(LOOPS))
    maker, number = FrameMaker(recorded_frames(GOLDEN)), itertools.count()

    def batch(numbers: tuple[int, ...]) -> int:
        fed = list(streams(numbers, maker))
        dice = Dice(numbers[0])

        async def feed_and_check(server: FuzzServer) -> None:
            await server.feed(fed, dice)
            await server.check()

        runner.run(FuzzServer(tmp_path / str(next(number))).run(feed_and_check))
        return sum(stream.frames for stream in fed)

    with asyncio.Runner(loop_factory=loop) as runner:
        # what ends a connection comes behind frames that are sent once more for it: well over one for each number
        in_batches(wanted, batch, numbers=wanted * 5 // 6)


def test_recorded_frames_are_begun_with() -> None:
    """The scenarios of the golden tests are found, all three header types among them."""
    frames = recorded_frames(GOLDEN)
    assert len(frames) > 150
    assert {0, 1} <= {frame[4] for frame in frames if len(frame) > 8}
