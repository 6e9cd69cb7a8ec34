"""Long work and many tasks, in turn with the loop."""

import asyncio
import itertools

from namesrv.net.steps import Pace, Turns
from tests.support.fake_clock import settle


class Computing:
    """A clock of computing time that only work moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def work(self, milliseconds: float) -> None:
        self.seconds += milliseconds / 1000


async def test_turns_are_taken_in_order_and_by_nobody_who_has_left() -> None:
    """One at a time here; a cancelled one costs the others no turn."""
    turns, begun = Turns(Pace(1)), []

    async def begin(number: int) -> None:
        await turns.begin()
        begun.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert (begun, len(turns)) == ([0], 3)
    tasks[1].cancel()
    await settle()

    assert begun == [0, 2, 3]
    assert repr(turns) == "<Turns [1 of 1 left | 0 waiting]>"


async def test_as_many_begin_at_once_as_two_milliseconds_are_enough_for() -> None:
    """As long as the last ones took, that is, or most of what others took before; one in any case."""
    clock = Computing()
    turns, begun = Turns(Pace(8, clock.now)), []
    costs = [0.12] * 8 + [0.49] * 8 + [0.24] * 4 + [5.0] * 5 + [0.0] * 10

    async def begin(cost: float) -> None:
        await turns.begin()
        clock.work(cost)
        begun.append(cost)

    crowd = [asyncio.create_task(begin(cost)) for cost in costs]
    told = [0]
    while told[-1] < len(crowd):
        await asyncio.sleep(0)
        told.append(len(begun))

    passes = [later - earlier for earlier, later in itertools.pairwise(told) if later > earlier]
    # 8 at once, unmeasured; 8 of 0.49 ms, so 4; those of 0.24 ms, so a few more; those of 5 ms, so one, and slowly more
    assert passes == [8, 8, 4, 5, 1, 1, 1, 1, 1, 1, 2, 2]


async def say_when_begun(turns: Turns, begun: list[str], name: str, peer: object = None) -> None:
    """Begin when it is one's turn, and say so."""
    await turns.begin(peer)
    begun.append(name)


async def test_peer_with_many_requests_waits_in_line_once() -> None:
    """Those who ask one thing need not wait for all that somebody asked before them."""
    turns, begun, greedy = Turns(Pace(1)), list[str](), object()
    crowd = [asyncio.create_task(say_when_begun(turns, begun, name, greedy)) for name in ("a1", "a2", "a3", "a4")]
    crowd += [asyncio.create_task(say_when_begun(turns, begun, name)) for name in ("b", "c")]
    await settle()

    assert begun == ["a1", "a2", "b", "c", "a3", "a4"]
    assert not turns


async def test_turns_are_crowded_while_more_than_64_requests_wait() -> None:
    """A peer's frames are then left undecoded: as bytes they take less memory than as requests."""
    turns, peer, crowded = Turns(Pace(1)), object(), list[bool]()
    crowd = [asyncio.create_task(turns.begin()) for _ in range(65)]
    await asyncio.sleep(0)
    crowded.append(turns.is_crowded)

    crowd += [asyncio.create_task(turns.begin(peer)) for _ in range(3)]
    await asyncio.sleep(0)
    crowded.append(turns.is_crowded)
    assert turns.has_waiting(peer)
    await asyncio.gather(*crowd)
    crowded.append(turns.is_crowded)

    assert crowded == [False, True, False]
    assert not turns.has_waiting(peer)
