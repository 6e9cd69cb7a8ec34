"""Long work and many tasks, in turn with the loop."""

import asyncio

from namesrv_remoting.aio.steps import Turns
from tests.support.fake_clock import settle


async def test_turns_are_taken_in_order_and_by_nobody_who_has_left() -> None:
    """One at a time here; a cancelled one costs the others no turn."""
    turns, begun = Turns(at_once=1), []

    async def begin(number: int) -> None:
        await turns.begin()
        begun.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert ([0], 3) == (begun, len(turns))
    tasks[1].cancel()
    await settle()

    assert [0, 2, 3] == begun
    assert repr(turns) == "<Turns [1 of 1 left | 0 waiting]>"
