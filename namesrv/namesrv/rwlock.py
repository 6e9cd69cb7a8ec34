"""Read-write lock for asyncio tasks.

The lock is held by any number of readers or by one writer. Tasks that cannot get the lock at once wait in one queue, in
the order of arrival. Consecutive readers at the head of the queue get the lock together, a writer gets it alone. So no
task starves.

The lock is not re-entrant: a task that holds the lock and acquires it again waits for ever.
"""

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from namesrv.histogram import WAIT_BOUNDS, Histogram


class ReadWriteLock:
    """`async with lock.read():` among other readers, `async with lock.write():` alone."""

    def __init__(self) -> None:
        # number of readers that hold the lock, or -1 for a writer
        self._inside = 0
        # Waiting tasks in the order of arrival -> True for a writer. The task at the head cannot get the lock now,
        # except between the cancellation of a waiting task and that task's next step, which removes it from the queue.
        self._queue: dict[asyncio.Future[None], bool] = {}
        # waiting times of tasks that did not get the lock at once, separately for readers and writers
        self.waits = {to_write: Histogram(WAIT_BOUNDS) for to_write in (False, True)}

    def read(self) -> AbstractAsyncContextManager[None]:
        """A section that reads, together with other readers."""
        return _Section(self, to_write=False)

    def write(self) -> AbstractAsyncContextManager[None]:
        """A section that changes things, alone."""
        return _Section(self, to_write=True)

    async def enter(self, *, to_write: bool) -> None:
        """Acquire the lock; without contention this awaits nothing and makes no future."""
        if not self._queue and self._try_enter(to_write=to_write):
            return
        entry = asyncio.get_running_loop().create_future()
        self._queue[entry] = to_write
        began = time.monotonic()
        try:
            await entry
        except BaseException:
            if entry in self._queue:
                # The next tasks in the queue may have waited for this one only.
                del self._queue[entry]
                self._admit_from_queue()
            elif not entry.cancelled():
                # This task got the lock, but was cancelled before its next step.
                self.leave()
            raise
        self.waits[to_write].observe(time.monotonic() - began)

    def leave(self) -> None:
        """Release the lock."""
        self._inside = max(0, self._inside - 1)
        self._admit_from_queue()

    def _try_enter(self, *, to_write: bool) -> bool:
        if self._inside < 0 or (to_write and self._inside):
            return False
        self._inside = -1 if to_write else self._inside + 1
        return True

    def _admit_from_queue(self) -> None:
        while self._queue:
            entry, to_write = next(iter(self._queue.items()))
            # A cancelled task that has not run since is skipped.
            if not entry.cancelled():
                # The lock is acquired here, not in the waiting task's next step, so that no other task gets it first.
                if not self._try_enter(to_write=to_write):
                    return
                entry.set_result(None)
            del self._queue[entry]

    def __repr__(self) -> str:
        waiting = [to_write for entry, to_write in self._queue.items() if not entry.cancelled()]
        return (
            f"<ReadWriteLock [{max(0, self._inside)} readers | writer: {'yes' if self._inside < 0 else 'no'}"
            f" | waiting: {waiting.count(False)} read, {waiting.count(True)} write]>"
        )


@dataclass(slots=True)
class _Section(AbstractAsyncContextManager[None]):
    """One read or write section. Leaving awaits nothing, so that a cancellation cannot keep the lock."""

    lock: ReadWriteLock
    to_write: bool

    async def __aenter__(self) -> None:
        await self.lock.enter(to_write=self.to_write)

    async def __aexit__(self, *_: object) -> None:
        self.lock.leave()
