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
from typing import Any, TypeVar, TypeVarTuple, Unpack

from namesrv_remoting.aio import loops

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

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
        # in the child of a fork: what the parent had
        self._parents: object = None

    def __repr__(self) -> str:
        return f"<BackgroundLoop [{self._name} | {'running' if self.is_running else 'not running'}]>"

    @property
    def is_running(self) -> bool:
        """Whether there is a thread to call."""
        return self._loop is not None

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: it runs already.
        """
        if self.is_running:
            raise RuntimeError(f"{self._name} is started already")
        loop = loops.new_event_loop()
        thread = threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True)
        self._loop, self._thread = loop, thread
        thread.start()
        _running.add(self)

    def stop(self) -> None:
        """End the thread; what still runs on the loop is cancelled. A second call does nothing.

        Raises:
            RuntimeError: called from the loop's own thread, which would wait for itself.
        """
        self.check_other_thread()
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
        try:
            self.check_other_thread()
            future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        except RuntimeError:
            # not started, or stopped a moment ago by another thread
            work.close()
            raise
        try:
            return future.result(timeout_seconds)
        except TimeoutError:
            future.cancel()
            raise

    def tell(self, callback: Callable[[Unpack[Ts]], object], *arguments: *Ts) -> None:
        """Call something on the loop soon, and do not wait for it.

        Raises:
            RuntimeError: not started.
        """
        self._running_loop().call_soon_threadsafe(callback, *arguments)

    def check_other_thread(self) -> None:
        """Raises RuntimeError in the loop's own thread, which must not wait for itself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(f"{self._name} was called from its own callbacks")

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError(f"{self._name} is not started")
        return self._loop

    def forget_parent(self) -> None:
        """In the child of a fork: the thread is not here, and its sockets are the parent's."""
        descriptors = list(self._sockets())
        # Kept, and never closed: the loop polls by a descriptor that it shares with the parent's.
        self._parents = (self._loop, self._thread)
        self._loop = self._thread = None
        for descriptor in descriptors:
            _give_up(descriptor)
        self._on_forked()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        # again: what was handed over in the last moment begins only now
        while left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _give_up(descriptor: int) -> None:
    """Close this process's copy of a socket, and put nothing in its place.

    Its number stays taken: the object that the socket belongs to does not know, and will close the number one day,
    whatever it stands for then.
    """
    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.dup2(nothing, descriptor, inheritable=False)
        finally:
            os.close(nothing)


def _after_fork_in_child() -> None:
    for background in list(_running):
        background.forget_parent()
    _running.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
