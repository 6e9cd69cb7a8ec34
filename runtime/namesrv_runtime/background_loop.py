"""An event loop in a thread of its own, for threaded code that uses what lives on a loop.

Any thread may call, and waits. Fork-safe: the child of a fork has none of the thread,
and gives up its copies of the parent's sockets, so that a server still notices when the parent dies.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar, TypeVarTuple, Unpack

from namesrv_runtime import loops

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# all that run, for forks
_running: "set[BackgroundLoop]" = set()


class StoppedError(RuntimeError):
    """There is no thread to do the work: it was never started, or another one has stopped it meanwhile."""


class BackgroundLoop:
    """A loop in a thread of its own, from `start` to `stop`; it may be started again. Errors speak of its `owner`.

    `sockets` names the file descriptors that the child of a fork has to give up; any thread may be told to look for
    them. `in_child` is called in the child; in the parent `in_parent` is called on the loop, with the descriptors that
    the child knew of: one that was being made in that moment is not among them.
    """

    def __init__(
        self,
        name: str,
        *,
        owner: str = "the loop",
        sockets: Callable[[], Iterable[int]] = tuple,
        in_child: Callable[[], None] = lambda: None,
        in_parent: Callable[[frozenset[int]], None] | None = None,
    ) -> None:
        self._name = name
        self._owner = owner
        self._sockets = sockets
        self._in_child = in_child
        self._in_parent = in_parent
        # what the child of a fork knew to give up
        self._given_up: frozenset[int] = frozenset()
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
                raise RuntimeError(f"{self._owner} is started already")
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

    def call(self, work: Coroutine[Any, Any, T], timeout_seconds: float | None) -> T:
        """Run the work on the loop and wait for it.

        Raises:
            RuntimeError: called from the loop's own thread, which would wait for itself.
            StoppedError: not started, or stopped before the work was done.
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
            raise StoppedError(f"{self._owner} was stopped") from None
        except TimeoutError:
            # nothing happens if it is the work's own
            future.cancel()
            raise

    def tell(self, callback: Callable[[Unpack[Ts]], object], *arguments: *Ts) -> None:
        """Call something on the loop soon, and do not wait for it.

        Raises:
            StoppedError: not started.
        """
        with self._gate:
            self._running_loop().call_soon_threadsafe(callback, *arguments)

    def check_other_thread(self) -> None:
        """Raises RuntimeError in the loop's own thread, which must not wait for itself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(f"cannot be called from {self._owner}'s own callbacks: it would deadlock")

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise StoppedError(f"{self._owner} is not started")
        return self._loop

    # -- forks --------------------------------------------------------------------------------------------------------

    def _before_fork(self) -> None:
        try:
            self._given_up = frozenset(self._sockets())
        except (AttributeError, RuntimeError):
            # its thread changed something in this very moment: then none of them counts as given up
            self._given_up = frozenset()

    def _after_fork_in_parent(self) -> None:
        if self._in_parent is not None:
            # it may have been stopped by another thread
            with contextlib.suppress(RuntimeError):
                self.tell(self._in_parent, self._given_up)

    def _after_fork_in_child(self) -> None:
        """The thread is not here, and its sockets are the parent's."""
        _running.discard(self)
        self._gate = threading.Lock()
        # Kept, and never closed: the loop polls by a descriptor that it shares with the parent's.
        self._parents = (self._loop, self._thread)
        self._loop = self._thread = None
        try:
            _give_up(self._sockets())
        finally:
            self._in_child()


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


def _each(verb: Callable[[BackgroundLoop], None]) -> Callable[[], None]:
    def for_each() -> None:
        for background in list(_running):
            verb(background)

    return for_each


os.register_at_fork(
    before=_each(BackgroundLoop._before_fork),  # noqa: SLF001 - its own module
    after_in_parent=_each(BackgroundLoop._after_fork_in_parent),  # noqa: SLF001
    after_in_child=_each(BackgroundLoop._after_fork_in_child),  # noqa: SLF001
)
