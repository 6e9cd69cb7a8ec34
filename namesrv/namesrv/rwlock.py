"""Read-write lock for asyncio tasks.

Many readers or one writer. Whoever cannot be let in at once waits in one queue, in order of arrival, and is let in from
its head: readers that stand next to each other together, a writer alone. So nobody starves.

Not re-entrant: a task that holds the lock and asks for it again waits for itself.
"""

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from namesrv.histogram import WAIT_BOUNDS, Histogram


class ReadWriteLock:
    """`async with lock.read():` among other readers, `async with lock.write():` alone."""

    def __init__(self) -> None:
        # who is inside: so many readers, or -1 for a writer
        self._inside = 0
        # Who waits, in order of arrival -> whether to write. Its head is never one that could be let in, except for the
        # moment between a waiting task's cancellation and that task's next step, in which it takes itself out.
        self._queue: dict[asyncio.Future[None], bool] = {}
        # how long those had to wait who were let in and could not be at once, by whether it was to write
        self.waits = {to_write: Histogram(WAIT_BOUNDS) for to_write in (False, True)}

    def read(self) -> AbstractAsyncContextManager[None]:
        """A section that may look and not touch."""
        return _Section(self, to_write=False)

    def write(self) -> AbstractAsyncContextManager[None]:
        """A section that may change things: nobody else is inside."""
        return _Section(self, to_write=True)

    async def enter(self, *, to_write: bool) -> None:
        """Be let in; uncontended, nothing is awaited and no future made."""
        if not self._queue and self._is_admitted(to_write=to_write):
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
                self.leave()
            raise
        self.waits[to_write].observe(time.monotonic() - began)

    def leave(self) -> None:
        """Let others in."""
        self._inside = max(0, self._inside - 1)
        self._admit_from_queue()

    def _is_admitted(self, *, to_write: bool) -> bool:
        if self._inside < 0 or (to_write and self._inside):
            return False
        self._inside = -1 if to_write else self._inside + 1
        return True

    def _admit_from_queue(self) -> None:
        while self._queue:
            turn, to_write = next(iter(self._queue.items()))
            # a cancelled task that has not run since: nobody is to wait for it
            if not turn.cancelled():
                # let in here, not when its task runs: in between nobody can slip past
                if not self._is_admitted(to_write=to_write):
                    return
                turn.set_result(None)
            del self._queue[turn]

    def __repr__(self) -> str:
        waiting = [to_write for turn, to_write in self._queue.items() if not turn.cancelled()]
        return (
            f"<ReadWriteLock [{max(0, self._inside)} readers | writer: {'yes' if self._inside < 0 else 'no'}"
            f" | waiting: {waiting.count(False)} read, {waiting.count(True)} write]>"
        )


@dataclass(slots=True)
class _Section(AbstractAsyncContextManager[None]):
    """One way into the lock, and out again. Nothing is awaited on the way out: it cannot be cancelled there."""

    lock: ReadWriteLock
    to_write: bool

    async def __aenter__(self) -> None:
        await self.lock.enter(to_write=self.to_write)

    async def __aexit__(self, *_: object) -> None:
        self.lock.leave()
