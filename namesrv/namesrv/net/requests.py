"""Queue of the requests of one connection that the dispatcher answers."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Generic, TypeVar

R = TypeVar("R")

# A connection's requests are answered back to back for this time, or up to this number, before other tasks run. Their
# responses are sent together, since a system call costs as much as most requests.
_ANSWERING_SECONDS: Final = 0.0005
_ANSWERED_TOGETHER: Final = 8


class RequestQueue(Generic[R]):
    """Answers requests in order, in one task that runs while the queue has requests.

    Requests that may take long run in tasks of their own, and do not delay later requests. `answer` answers a request;
    `ended` is called when a request has ended, with its size if it had a task of its own, else with 0.
    """

    __slots__ = ("_answer", "_ended", "_queue", "_queued_bytes", "_tasks", "_watches")

    def __init__(
        self, tasks: asyncio.TaskGroup, answer: Callable[[R, int], Awaitable[None]], ended: Callable[[int], None]
    ) -> None:
        self._tasks = tasks
        self._answer = answer
        self._ended = ended
        # requests in order, each with its size in bytes; None while the answering task does not run
        self._queue: deque[tuple[R, int]] | None = None
        self._queued_bytes = 0
        # tasks of requests that may take long; None before the first such request
        self._watches: set[asyncio.Task[None]] | None = None

    def __repr__(self) -> str:
        return f"<RequestQueue [{self.in_flight} in flight | {self._queued_bytes} bytes]>"

    @property
    def in_flight(self) -> int:
        """The number of requests without a response yet."""
        return len(self._queue or ()) + len(self._watches or ())

    @property
    def is_answering(self) -> bool:
        """Whether requests are left in the queue; those with tasks of their own do not count."""
        return bool(self._queue)

    def has_room(self, requests: int, size: int) -> bool:
        """Whether fewer than `requests` requests are in flight, and fewer than `size` bytes are queued."""
        return self.in_flight < requests and self._queued_bytes < size

    def add(self, request: R, size: int) -> None:
        """Append a request to the queue."""
        self._queued_bytes += size
        if self._queue is None:
            self._queue = deque()
            self._tasks.create_task(self._answer_in_order(self._queue))
        self._queue.append((request, size))

    def add_concurrent(self, request: R, size: int) -> None:
        """Answer a request in a task of its own."""
        task = self._tasks.create_task(self._run(request))
        self._watches = self._watches or set()
        self._watches.add(task)
        # A done callback, since a task that is cancelled before its first step runs none of its code.
        task.add_done_callback(partial(self._watch_ended, size))

    def cancel_concurrent(self) -> None:
        """Cancel the requests that have tasks of their own."""
        for task in self._watches or ():
            task.cancel()

    async def _run(self, request: R) -> None:
        await self._answer(request, 0)

    def _watch_ended(self, size: int, task: "asyncio.Task[None]") -> None:
        if self._watches is not None:
            self._watches.discard(task)
        self._ended(size)

    async def _answer_in_order(self, queue: deque[tuple[R, int]]) -> None:
        answered, ends = 0, time.perf_counter() + _ANSWERING_SECONDS
        while queue:
            request, size = queue[0]
            await self._answer(request, size)
            queue.popleft()
            self._queued_bytes -= size
            answered += 1
            if not queue:
                self._queue = None
            self._ended(0)
            if queue and (answered >= _ANSWERED_TOGETHER or time.perf_counter() > ends):
                # Handlers that never suspend must not block the event loop for thousands of pipelined requests.
                await asyncio.sleep(0)
                answered, ends = 0, time.perf_counter() + _ANSWERING_SECONDS
