"""Queue of the requests of one connection that the dispatcher answers."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, Generic, TypeVar

from namesrv.net.request import HeldRequest

R = TypeVar("R")

# A connection's requests are answered back to back for this time, or up to this number, before other tasks run. Each
# response is written to the socket at once.
_ANSWERING_SECONDS: Final = 0.0005
_ANSWERED_TOGETHER: Final = 8


class RequestQueue(Generic[R]):
    """Answers requests in order, in one task that runs while the queue has requests.

    Requests that may take long run in tasks of their own, and do not delay later requests. A held request waits for its
    response without a task, and is in flight until it is released, resumed or cancelled.

    `answer` and `ended` find the connection through the request. Bound methods of the connection would form a reference
    cycle with this queue, and a closed connection would stay in memory until a full garbage collection, which is rare.

    The charge of a request is the memory that the peer is charged for the request. `answer` answers a request, and
    `ended` is called afterwards with the charge, which it releases. For a request that `answer` leaves held, `ended` is
    called as soon as the task ends, and not again when the request is released or cancelled.
    """

    __slots__ = ("_answer", "_charged_bytes", "_concurrent", "_ended", "_held", "_queue", "_tasks")

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        answer: Callable[[R], Coroutine[None, None, None]],
        ended: Callable[[R, int], None],
    ) -> None:
        self._tasks = tasks
        self._answer = answer
        self._ended = ended
        # requests in order, each with its charge in bytes; None while the answering task does not run
        self._queue: deque[tuple[R, int]] | None = None
        # sum of the charges of the requests in the queue
        self._charged_bytes = 0
        # tasks of requests that may take long; None before the first such request
        self._concurrent: set[asyncio.Task[None]] | None = None
        # held requests; None before the first one
        self._held: set[HeldRequest] | None = None

    def __repr__(self) -> str:
        return f"<RequestQueue [{self.in_flight} in flight | {self._charged_bytes} bytes]>"

    @property
    def in_flight(self) -> int:
        """The number of requests without a response yet."""
        return len(self._queue or ()) + len(self._concurrent or ()) + len(self._held or ())

    @property
    def is_answering(self) -> bool:
        """Whether requests are left in the queue; held requests and requests with tasks do not count."""
        return bool(self._queue)

    def has_room(self, requests: int, charged_bytes: int) -> bool:
        """True if another request may be decoded.

        Fewer than `requests` must be in flight, and the queue must be charged less than `charged_bytes` and be shorter
        than one batch. Requests beyond a batch would only wait; as undecoded bytes they take less memory, and the
        garbage collector does not traverse them.
        """
        is_short = len(self._queue or ()) < _ANSWERED_TOGETHER
        return is_short and self.in_flight < requests and self._charged_bytes < charged_bytes

    def add(self, request: R, charge: int) -> None:
        """Append a request to the queue."""
        self._charged_bytes += charge
        if self._queue is None:
            self._queue = deque()
            self._tasks.create_task(self._answer_in_order(self._queue))
        self._queue.append((request, charge))

    def add_concurrent(self, request: R, charge: int) -> None:
        """Answer a request in a task of its own."""
        self._start(request, self._answer(request), charge)

    def hold(self, held: HeldRequest) -> None:
        """Count a request as in flight until it is released, resumed or cancelled."""
        self._held = self._held or set()
        self._held.add(held)

    def release(self, held: HeldRequest) -> None:
        """Count a held request as in flight no longer; its response is sent next, or a task takes the request over."""
        if self._held is not None:
            self._held.discard(held)

    def resume(self, held: HeldRequest, request: R, answering: Coroutine[None, None, None]) -> None:
        """Release a held request, and run this coroutine, which answers the request, in a task."""
        self.release(held)
        self._start(request, answering, 0)

    def _start(self, request: R, answering: Coroutine[None, None, None], charge: int) -> None:
        task = self._tasks.create_task(answering)
        self._concurrent = self._concurrent or set()
        self._concurrent.add(task)
        # A done callback, since a task that is cancelled before its first step runs none of its code.
        task.add_done_callback(partial(self._concurrent_ended, request, charge))

    def cancel_held_and_concurrent(self) -> None:
        """Cancel the held requests, and the requests that have tasks of their own."""
        for task in self._concurrent or ():
            task.cancel()
        while self._held:
            self._held.pop().cancel()

    def _concurrent_ended(self, request: R, charge: int, task: "asyncio.Task[None]") -> None:
        if self._concurrent is not None:
            self._concurrent.discard(task)
        self._ended(request, charge)

    async def _answer_in_order(self, queue: deque[tuple[R, int]]) -> None:
        answered, ends = 0, time.perf_counter() + _ANSWERING_SECONDS
        while queue:
            request, charge = queue[0]
            await self._answer(request)
            queue.popleft()
            self._charged_bytes -= charge
            answered += 1
            if not queue:
                self._queue = None
            self._ended(request, charge)
            if queue and (answered >= _ANSWERED_TOGETHER or time.perf_counter() > ends):
                # Handlers that never suspend must not block the event loop for thousands of pipelined requests.
                await asyncio.sleep(0)
                answered, ends = 0, time.perf_counter() + _ANSWERING_SECONDS
