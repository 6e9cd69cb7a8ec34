"""The base of the test servers, brokers and clients: a thread that can be frozen, and that follows a clock."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from namesrv_runtime.background_loop import Threaded, W_co
from namesrv_testing.clock import TestClock

# Iterations of the loop for the work of one step of the clock: a timer, a task, a write, a read.
_PASSES: Final = 6


class TestThread(Threaded[W_co]):
    """A real server, broker or client in a thread of its own."""

    __test__ = False
    # set by subclasses before the start
    clock: TestClock

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._inner is None:
            super().start()
            self._unfollow: Callable[[], None] = self.clock.follow(self.settle)

    def stop(self) -> None:
        """Stop the thread gracefully, even if it is frozen. A second call does nothing."""
        if self._inner is not None:
            self._unfollow()
            self.thaw()
            super().stop()

    # -- faults -------------------------------------------------------------------------------------------------------

    @property
    def is_frozen(self) -> bool:
        """True between `freeze` and `thaw`."""
        return self._thawed is not None

    _thawed: threading.Event | None = None

    def freeze(self) -> None:
        """Stop the thread, as SIGSTOP would: connections stay open, and no request is answered."""
        if self._thawed is None:
            thawed, began = threading.Event(), threading.Event()

            def hold() -> None:
                began.set()
                thawed.wait()

            self._call_soon(hold)
            began.wait()
            self._thawed = thawed

    def thaw(self) -> None:
        """Let a frozen thread continue."""
        if self._thawed is not None:
            self._thawed.set()
            self._thawed = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the thread for the length of a block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self.is_frozen:
            raise RuntimeError(f"{self._owner} is frozen: thaw() it first")
        return super()._running_loop()

    def settle(self) -> None:
        """Let the thread read what has arrived and do what is due; a frozen thread does nothing."""
        if not self.is_frozen and self._inner is not None:
            self._call(_passes())


async def _passes() -> None:
    for _ in range(_PASSES):
        await asyncio.sleep(0)
