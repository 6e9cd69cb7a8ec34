"""Fair scheduling of dispatched requests: how many begin in one iteration of the event loop, and in which order."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

# The most tasks that continue in one iteration of the event loop, and the number before the first measurement. The
# longest first step of a task is that of a registration with ten topics: 32 of these take about 5 ms, so the next batch
# is smaller.
_AT_ONCE: Final = 32
# Processor time that the tasks of one iteration may take before the event loop polls the sockets again. Wall time would
# include the time of other processes, which does not predict the cost of the next tasks.
_ITERATION_SECONDS: Final = 0.002
# The estimated cost of a task decays by this factor with each iteration of cheaper tasks, since costly and cheap tasks
# may alternate.
_REMEMBERED: Final = 0.75


def computing_seconds() -> float:
    """Processor time of the calling thread."""
    # The function is looked up with each call, since a simulation replaces `time.thread_time`.
    return time.thread_time()


class BatchSize:
    """The number of waiting tasks that continue in one iteration of the event loop: as many as fit into 2 ms.

    The number is computed from the time that the tasks of the last iterations took until each of them waited again. A
    task belongs to a caller of `FairScheduler`, and may take 20 microseconds or a millisecond.
    """

    def __init__(self, most: int, now: Callable[[], float] | None = None) -> None:
        self._most = most
        self._now = now or computing_seconds
        self._began = 0.0
        # estimated processor time of one task, in seconds
        self._each = 0.0
        # the number of tasks that may continue in the next iteration
        self.count = most

    def __repr__(self) -> str:
        return f"<BatchSize [{self.count} of {self._most}]>"

    def wake(self, waiters: Collection[asyncio.Future[None]]) -> None:
        """Continue the tasks that wait for these futures, and measure how long the tasks take."""
        # The loop runs callbacks in the order of `call_soon`: `_begin`, the woken tasks, `_end`, nothing in between.
        loop = asyncio.get_running_loop()
        loop.call_soon(self._begin)
        for waiter in waiters:
            waiter.set_result(None)
        loop.call_soon(self._end, len(waiters))

    def _begin(self) -> None:
        self._began = self._now()

    def _end(self, count: int) -> None:
        self._each = max((self._now() - self._began) / count, self._each * _REMEMBERED)
        fitting = int(_ITERATION_SECONDS / self._each) if self._each else self._most
        self.count = max(1, min(fitting, self._most))


class FairScheduler:
    """Limits how many tasks begin in one iteration of the event loop; further tasks wait in order of arrival.

    The loop runs all ready tasks before it polls the sockets again: two thousand tasks that become ready at once would
    delay all other connections until the last of them has run. A peer with several waiting tasks takes one position in
    the order, so that other peers wait for one of its tasks at a time and not for all of them.
    """

    def __init__(self, batch_size: BatchSize | None = None) -> None:
        self._batch_size = BatchSize(_AT_ONCE) if batch_size is None else batch_size
        # the number of tasks that may still begin in this iteration, and whether `_renew` is scheduled
        self._left = self._batch_size.count
        self._is_due = False
        # Peers and the futures of their waiting tasks, in order of arrival. A list is never empty; each task without a
        # peer (None) has a list of its own.
        self._queues: deque[tuple[object, list[asyncio.Future[None]]]] = deque()
        # peer -> its list in `_queues`
        self._queue_of: dict[object, list[asyncio.Future[None]]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __repr__(self) -> str:
        return f"<FairScheduler [{self._left} of {self._batch_size.count} left | {len(self)} waiting]>"

    async def begin(self, peer: object = None) -> None:
        """Wait until the calling task may begin; return at once unless many tasks have begun in this iteration.

        Tasks of one peer, if the peer is given, begin one after the other, with one task of each other peer in between.
        For requests, each connection is a peer of its own.
        """
        self._renew_later()
        if self._left:
            self._left -= 1
            return
        await self._join_queue(peer)

    def has_waiting(self, peer: object) -> bool:
        """True if a request of this peer waits to begin."""
        return peer in self._queue_of

    def _join_queue(self, peer: object) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting += 1
        if peer is not None and peer in self._queue_of:
            self._queue_of[peer].append(waiter)
        else:
            queue = [waiter]
            self._queues.append((peer, queue))
            if peer is not None:
                self._queue_of[peer] = queue
        return waiter

    def _renew_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """Let waiting tasks begin, as many as fit into an iteration; new tasks may use the rest of that number."""
        begun = self._next(self._batch_size.count)
        self._left = self._batch_size.count - len(begun)
        self._is_due = bool(begun)
        if begun:
            self._batch_size.wake(begun)
            asyncio.get_running_loop().call_soon(self._renew)

    def _next(self, count: int) -> list[asyncio.Future[None]]:
        begun: list[asyncio.Future[None]] = []
        while self._queues and len(begun) < count:
            peer, queue = self._queues.popleft()
            waiter = queue.pop(0)
            self._waiting -= 1
            if queue:
                self._queues.append((peer, queue))
            elif peer is not None:
                del self._queue_of[peer]
            # The future of a cancelled task is done already, and does not count.
            if not waiter.done():
                begun.append(waiter)
        return begun
