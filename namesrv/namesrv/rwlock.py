"""Read-write lock for asyncio tasks.

Many readers or one writer. Whoever cannot be let in at once waits in one queue, in order of arrival, and is let in from
its head: readers that stand next to each other together, a writer alone. So nobody starves.

Not re-entrant: a task that holds the lock and asks for it again waits for itself.
"""

import asyncio
import time
from collections import OrderedDict
from contextlib import AbstractAsyncContextManager
from typing import Literal

from namesrv.histogram import WAIT_BOUNDS, Histogram


class ReadWriteLock:
    """`async with lock.read():` among other readers, `async with lock.write():` alone."""

    def __init__(self) -> None:
        # Who is inside. At most one of the two is set.
        self._readers = 0
        self._is_writing = False
        # Who waits, in order of arrival -> whether to write. Its head is never one that could be let in, except for the
        # moment between a waiting task's cancellation and that task's next step, in which it takes itself out.
        self._queue: OrderedDict[asyncio.Future[None], bool] = OrderedDict()
        # how long those had to wait who were let in and could not be at once, by whether it was to write
        self.waits = {to_write: Histogram(WAIT_BOUNDS) for to_write in (False, True)}
        # sections have no state of their own: one of each serves everybody
        self._sections = {to_write: _Section(self, to_write=to_write) for to_write in (False, True)}

    def read(self) -> AbstractAsyncContextManager[None]:
        """A section that may look and not touch."""
        return self._sections[False]

    def write(self) -> AbstractAsyncContextManager[None]:
        """A section that may change things: nobody else is inside."""
        return self._sections[True]

    async def enter(self, *, to_write: bool) -> None:
        """Be let in; uncontended, nothing is awaited and no future made."""
        if self._is_free(to_write=to_write) and not self._queue:
            self._admit(to_write=to_write)
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue[turn] = to_write
        began = time.monotonic()
        try:
            await turn
        except BaseException:
            if turn in self._queue:
                # whoever stood behind may have been waiting for this one only
                del self._queue[turn]
                self._admit_from_queue()
            elif not turn.cancelled():
                # let in, and cancelled before it could take the first step inside
                self.leave(to_write=to_write)
            raise
        self.waits[to_write].observe(time.monotonic() - began)

    def leave(self, *, to_write: bool) -> None:
        """Let others in."""
        if to_write:
            self._is_writing = False
        else:
            self._readers -= 1
        self._admit_from_queue()

    def _is_free(self, *, to_write: bool) -> bool:
        return not self._is_writing and not (to_write and self._readers)

    def _admit(self, *, to_write: bool) -> None:
        if to_write:
            self._is_writing = True
        else:
            self._readers += 1

    def _admit_from_queue(self) -> None:
        while self._queue:
            turn, to_write = next(iter(self._queue.items()))
            # a cancelled task that has not run since: nobody is to wait for it
            if not turn.cancelled():
                if not self._is_free(to_write=to_write):
                    return
                # let in here, not when its task runs: in between nobody can slip past
                self._admit(to_write=to_write)
                turn.set_result(None)
            del self._queue[turn]

    def __repr__(self) -> str:
        waiting = [to_write for turn, to_write in self._queue.items() if not turn.cancelled()]
        return (
            f"<ReadWriteLock [{self._readers} readers | writer: {'yes' if self._is_writing else 'no'}"
            f" | waiting: {waiting.count(False)} read, {waiting.count(True)} write]>"
        )


class _Section(AbstractAsyncContextManager[None]):
    """One way into the lock, and out again. Nothing is awaited on the way out: it cannot be cancelled there."""

    def __init__(self, lock: ReadWriteLock, *, to_write: bool) -> None:
        self._lock = lock
        self._to_write = to_write

    async def __aenter__(self) -> None:
        await self._lock.enter(to_write=self._to_write)

    async def __aexit__(self, *_: object) -> Literal[False]:
        self._lock.leave(to_write=self._to_write)
        return False
