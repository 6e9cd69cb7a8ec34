"""How does threaded code use what lives on a loop?

One daemon thread with one loop; any thread may call, and waits. Fork-safe: the child of a fork has none of the thread,
and closes its copies of the parent's sockets, so that a server still notices when the parent dies.
"""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from namesrv_remoting.aio import loops

T = TypeVar("T")

# all that run, for the child of a fork
_running: "weakref.WeakSet[BackgroundLoop]" = weakref.WeakSet()


class BackgroundLoop:
    """A loop in a thread of its own, from `start` to `stop`.

    `sockets` names the file descriptors that the child of a fork has to close; `on_forked` is called there as well.
    """

    def __init__(
        self,
        name: str,
        *,
        sockets: Callable[[], Iterable[int]] = tuple,
        on_forked: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._sockets = sockets
        self._on_forked = on_forked
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<BackgroundLoop [{self._name} | {'running' if self.is_running else 'not running'}]>"

    @property
    def is_running(self) -> bool:
        """Whether there is a thread to call."""
        return self._loop is not None

    def start(self) -> None:
        """Start the thread."""
        loop = loops.new_event_loop()
        thread = threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True)
        self._loop, self._thread = loop, thread
        thread.start()
        _running.add(self)

    def stop(self) -> None:
        """End the thread; what still runs on the loop is cancelled."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        _running.discard(self)
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def call(self, work: Coroutine[Any, Any, T], timeout_seconds: float) -> T:
        """Run the work on the loop and wait for it.

        Raises:
            RuntimeError: not started, or called from the loop's own thread, which would wait for itself.
            TimeoutError: it took longer; it has been cancelled.
        """
        loop = self._loop
        if loop is None or threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(f"{self._name} is not started, or was called from its own callbacks")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result(timeout_seconds)
        except TimeoutError:
            future.cancel()
            raise

    def forget_parent(self) -> None:
        """In the child of a fork: the thread is not here, and its sockets are the parent's."""
        descriptors = list(self._sockets())
        self._loop = self._thread = None
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._on_forked()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _after_fork_in_child() -> None:
    for background in list(_running):
        background.forget_parent()
    _running.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
