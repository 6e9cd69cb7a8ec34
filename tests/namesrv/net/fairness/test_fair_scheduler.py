"""Fair scheduling of many tasks in the event loop."""

import asyncio
import itertools

from namesrv.net.fairness.fair_scheduler import BatchSize, FairScheduler
from tests.support.fake_clock import settle


class ComputingClock:
    """A clock of computing time that only `work` moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def work(self, milliseconds: float) -> None:
        self.seconds += milliseconds / 1000


async def test_tasks_begin_in_order_without_cancelled_ones() -> None:
    """Tasks begin one at a time in order; a cancelled task takes no time slice."""
    scheduler, begun = FairScheduler(BatchSize(1)), []

    async def begin(number: int) -> None:
        await scheduler.begin()
        begun.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert (begun, len(scheduler)) == ([0], 3)
    tasks[1].cancel()
    await settle()

    assert begun == [0, 2, 3]
    assert repr(scheduler) == "<FairScheduler [1 of 1 left | 0 waiting]>"


async def test_number_of_tasks_per_iteration_fits_two_milliseconds() -> None:
    """The number follows the measured cost of earlier tasks; at least one begins in each iteration."""
    clock = ComputingClock()
    scheduler, begun = FairScheduler(BatchSize(8, clock.now)), []
    costs = [0.12] * 8 + [0.49] * 8 + [0.24] * 4 + [5.0] * 5 + [0.0] * 10

    async def begin(cost: float) -> None:
        await scheduler.begin()
        clock.work(cost)
        begun.append(cost)

    crowd = [asyncio.create_task(begin(cost)) for cost in costs]
    begun_until = [0]
    while begun_until[-1] < len(crowd):
        await asyncio.sleep(0)
        begun_until.append(len(begun))

    per_iteration = [later - earlier for earlier, later in itertools.pairwise(begun_until) if later > earlier]
    # 8 unmeasured; 8 of 0.49 ms, so 4; then 0.24 ms, so a few more; then 5 ms, so one, and slowly more
    assert per_iteration == [8, 8, 4, 5, 1, 1, 1, 1, 1, 1, 2, 2]


async def record_begin(scheduler: FairScheduler, begun: list[str], name: str, peer: object = None) -> None:
    """Wait for the time slice and record the name."""
    await scheduler.begin(peer)
    begun.append(name)


async def test_peers_begin_in_turn() -> None:
    """Of a peer with many requests one begins at a time, so that other peers do not wait for all of them."""
    scheduler, begun, greedy = FairScheduler(BatchSize(1)), list[str](), object()
    crowd = [asyncio.create_task(record_begin(scheduler, begun, name, greedy)) for name in ("a1", "a2", "a3", "a4")]
    crowd += [asyncio.create_task(record_begin(scheduler, begun, name)) for name in ("b", "c")]
    await settle()

    assert begun == ["a1", "a2", "b", "c", "a3", "a4"]
    assert not scheduler
