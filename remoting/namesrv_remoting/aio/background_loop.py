"""How does threaded code use what lives on a loop?

One daemon thread with one loop; any thread may call, and waits. Fork-safe: the child of a fork has none of the thread,
and gives up its copies of the parent's sockets, so that a server still notices when the parent dies.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar, TypeVarTuple, Unpack

from namesrv_remoting.aio import loops

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# all that run, for the child of a fork
_running: "set[BackgroundLoop]" = set()


class StoppedError(RuntimeError):
    """Another thread has stopped the loop before the work was done."""


class BackgroundLoop:
    """A loop in a thread of its own, from `start` to `stop`; it may be started again.

    `sockets` names the file descriptors that the child of a fork has to give up; `on_forked` is called there as well.
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
        # held, for a moment, by who hands something to the loop, and by who takes the loop away
        self._gate = threading.Lock()
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
        with self._gate:
            if self._loop is not None:
                raise RuntimeError(f"{self._name} is started already")
            self._loop = loops.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name=self._name, daemon=True)
            self._thread.start()
            _running.add(self)

    def stop(self) -> None:
        """End the thread; what other threads wait for ends with a StoppedError. A second call does nothing.

        Raises:
            RuntimeError: called from the loop's own thread, which would wait for itself.
        """
        self.check_other_thread()
        with self._gate:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            _running.discard(self)
        if loop is not None and thread is not None:
            # after all that was handed in, so that nobody waits for what is never done
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def call(self, work: Coroutine[Any, Any, T], timeout_seconds: float) -> T:
        """Run the work on the loop and wait for it.

        Raises:
            RuntimeError: not started, or called from the loop's own thread, which would wait for itself.
            StoppedError: another thread has stopped the loop meanwhile.
            TimeoutError: it took longer; it has been cancelled.
        """
        try:
            self.check_other_thread()
            with self._gate:
                future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        except RuntimeError:
            work.close()
            raise
        try:
            return future.result(timeout_seconds)
        except concurrent.futures.CancelledError:
            raise StoppedError(f"{self._name} was stopped") from None
        except TimeoutError:
            # nothing happens if it is the work's own
            future.cancel()
            raise

    def tell(self, callback: Callable[[Unpack[Ts]], object], *arguments: *Ts) -> None:
        """Call something on the loop soon, and do not wait for it.

        Raises:
            RuntimeError: not started.
        """
        with self._gate:
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
        self._gate = threading.Lock()
        # Kept, and never closed: the loop polls by a descriptor that it shares with the parent's.
        self._parents = (self._loop, self._thread)
        self._loop = self._thread = None
        _give_up(self._sockets())
        self._on_forked()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        # again: what was handed over in the last moment begins only now
        while left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _give_up(descriptors: Iterable[int]) -> None:
    """Close this process's copies of sockets, and put nothing in their places.

    The numbers stay taken: the objects that the sockets belong to do not know, and will close the numbers one day,
    whatever they stand for then.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)


def _after_fork_in_child() -> None:
    for background in list(_running):
        background.forget_parent()
    _running.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
