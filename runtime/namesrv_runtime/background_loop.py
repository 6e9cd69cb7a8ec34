"""Runs an asyncio object on an event loop in a background thread, for callers that use threads.

Any thread may call the object, and waits for the result. The module is fork-safe: the child of a fork has no such
thread, and gives up its copies of the parent's sockets, so that a server still notices when the parent dies.
To the servers, the end of a process without a `stop` looks like a crash.
"""

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, TypeVarTuple, Unpack

from namesrv_runtime import loops

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
Ts = TypeVarTuple("Ts")

# A call may take this much longer than the deadlines of its work before the caller gets a TimeoutError.
_GRACE_SECONDS: Final = 5.0

# All loops together have this time to halt when the interpreter ends: a callback of the application may block a loop.
_HALT_SECONDS: Final = 1.0

# all started objects, for the fork handlers and the end of the interpreter
_running: "set[Threaded[Any]]" = set()


class StoppedError(RuntimeError):
    """The background thread is not running: `start` was never called, or another thread has called `stop`."""


class _OfLoop(Protocol):
    """The asyncio object behind a Threaded: entering the context starts the object, leaving the context stops it."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *_: object) -> object: ...

    def socket_descriptors(self) -> Iterable[int]: ...


W_co = TypeVar("W_co", bound=_OfLoop, covariant=True)


class Threaded(ABC, Generic[W_co]):
    """An asyncio object on a loop in a thread of its own, from `start` to `stop`.

    Error messages name the `owner`. In the child of a fork the object is not started and has none of the parent's
    connections; the child may call `start`.
    """

    def __init__(self, name: str, owner: str, call_seconds: float, stop_seconds: float = 0.0) -> None:
        self._name = name
        self._owner = owner
        # the deadline of one call, and the further time that stopping may take
        self._call_seconds = call_seconds
        self._stop_seconds = stop_seconds
        # held while the object is started or stopped
        self._lock = threading.RLock()
        # held for a moment while work is handed to the loop, or the loop is taken away
        self._gate = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._inner: W_co | None = None
        # the sockets that the child of the latest fork closes, as far as they were known just before the fork
        self._given_up: frozenset[int] = frozenset()
        # loop, thread and object of the parent process, kept alive in the child of a fork
        self._parents: object = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} [{self._inner or 'not started'}]>"

    def start(self) -> None:
        """Start the thread and the object, without waiting for any server. A second call does nothing."""
        self._check_other_thread()
        with self._lock:
            if self._inner is not None:
                return
            inner = self._made()
            with self._gate:
                loop = loops.new_event_loop()
                thread = threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True)
                try:
                    thread.start()
                except BaseException:
                    loop.close()
                    raise
                self._loop, self._thread = loop, thread
                _running.add(self)
            self._inner = inner
            try:
                self._call(inner.__aenter__())
            except BaseException:
                self._end()
                raise

    def stop(self) -> None:
        """Stop the object within its deadline, and end the thread, which must not be the caller's own.

        Calls that other threads wait for end with an error of the object, or with a StoppedError. A second call does
        nothing.
        """
        self._check_other_thread()
        with self._lock:
            # Without the second condition, a stop while the interpreter ends would wait for a halted loop.
            if self._inner is None or self not in _running:
                return
            try:
                self._call(self._inner.__aexit__(None, None, None), self._stop_seconds)
            finally:
                self._end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def _made(self) -> W_co:
        """Make the asyncio object that is to run in the thread."""

    def _forget(self) -> None:
        self._inner = None

    def _end(self) -> None:
        self._forget()
        with self._gate:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            _running.discard(self)
        if loop is not None and thread is not None:
            # The stop comes after all work that was handed in, so that no caller waits for work that is never done.
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> W_co:
        inner = self._inner
        if inner is None:
            raise RuntimeError(f"{self._owner} is not started")
        return inner

    def _check_other_thread(self) -> None:
        """Raise a RuntimeError in the loop's own thread, which must not wait for itself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(f"cannot be called from {self._owner}'s own callbacks: it would deadlock")

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise StoppedError(f"{self._owner} is not started")
        return self._loop

    def _call(self, work: Coroutine[Any, Any, T], more_seconds: float = 0.0) -> T:
        return self._wait_for(work, self._call_seconds + more_seconds + _GRACE_SECONDS)

    def _wait_for(self, work: Coroutine[Any, Any, T], timeout_seconds: float | None) -> T:
        """Run the work on the loop and wait for it.

        Raises:
            RuntimeError: the caller is the loop's own thread, which would wait for itself.
            StoppedError: the object is not started, or was stopped before the work was done.
            TimeoutError: the work took longer, and has been cancelled, as it is after Ctrl-C.
        """
        try:
            self._check_other_thread()
            with self._gate:
                future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        except RuntimeError:
            work.close()
            raise
        try:
            return future.result(timeout_seconds)
        except concurrent.futures.CancelledError:
            raise StoppedError(f"{self._owner} was stopped") from None
        except BaseException:
            # The caller has stopped waiting, at a timeout or at Ctrl-C. Cancelling work that has ended does nothing.
            future.cancel()
            raise

    def _read(self, read: Callable[[W_co], T]) -> T:
        """Call `read` with the object, in the loop's thread, and return its result."""
        inner = self._started()

        async def value() -> T:
            return read(inner)

        return self._call(value())

    def _call_soon(self, callback: Callable[[Unpack[Ts]], object], *arguments: *Ts) -> None:
        """Call a function on the loop soon, without waiting. Raises StoppedError if the object is not started."""
        with self._gate:
            self._running_loop().call_soon_threadsafe(callback, *arguments)

    def _halt(self) -> threading.Event:
        """Halt the loop after its current callback; return an event that is set once the loop has halted."""
        _running.discard(self)
        halted = threading.Event()
        try:
            self._call_soon(_halt, halted)
        except RuntimeError:
            # Another thread has stopped the object.
            halted.set()
        return halted

    # -- forks --------------------------------------------------------------------------------------------------------

    def _sockets(self) -> Iterable[int]:
        """The socket descriptors of the object's connections; any thread may call this."""
        return () if self._inner is None else self._inner.socket_descriptors()

    def _before_fork(self) -> None:
        try:
            self._given_up = frozenset(self._sockets())
        except (AttributeError, RuntimeError):
            # The loop's thread changed the connections at this very moment: then no socket counts as given up.
            self._given_up = frozenset()

    def _after_fork_in_parent(self) -> None:
        # Another thread may have stopped the object.
        with contextlib.suppress(RuntimeError):
            self._call_soon(self._forked_child, self._given_up)

    def _forked_child(self, given_up: frozenset[int]) -> None:
        """Called on the parent's loop after a fork, with the sockets that the child has closed.

        Sockets that were made at the very moment of the fork are missing.
        """

    def _after_fork_in_child(self) -> None:
        """Forget the thread, which does not exist in the child, and close the child's copies of the sockets."""
        _running.discard(self)
        self._lock, self._gate = threading.RLock(), threading.Lock()
        # The parent's objects are kept and never closed: the loop shares its polling descriptor with the parent's
        # loop, and collected transports would close descriptor numbers that may belong to other files by then.
        self._parents = (self._loop, self._thread, self._inner)
        self._loop = self._thread = None
        try:
            _give_up(self._sockets())
        finally:
            self._forget()


def waited(verb: Callable[Concatenate[V, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Threaded[Any], P], T]:
    """Make a blocking method of a coroutine method: the coroutine runs on the loop, and the caller waits for it."""

    @functools.wraps(verb)
    def call(self: Threaded[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(verb(self._started(), *args, **kwargs))

    return call


def direct(verb: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[Threaded[Any], P], T]:
    """Make a method of one that any thread may call directly, because it only reads memory."""

    @functools.wraps(verb)
    def call(self: Threaded[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return verb(self._started(), *args, **kwargs)

    return call


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        # In a loop, because tasks that were handed over at the last moment begin only now.
        while left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _halt(halted: threading.Event) -> None:
    """Called on the loop: block its thread for ever."""
    halted.set()
    threading.Event().wait()


def _halt_all() -> None:
    """Halt all loops before the interpreter ends: a thread within uvloop's C code could crash the ending interpreter.

    The loops are not closed, and nothing is cancelled: daemon threads that wait for a call would report errors.
    """
    gives_up_at = time.monotonic() + _HALT_SECONDS
    for halted in [background._halt() for background in list(_running)]:  # noqa: SLF001 - its own module
        halted.wait(max(0.0, gives_up_at - time.monotonic()))


def _give_up(descriptors: Iterable[int]) -> None:
    """Close this process's copies of sockets, and keep their descriptor numbers taken with /dev/null.

    The objects that own the sockets will close these numbers some day; if the numbers were free, that would close
    unrelated files.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)


def _each(verb: Callable[[Threaded[Any]], None]) -> Callable[[], None]:
    def for_each() -> None:
        for background in list(_running):
            verb(background)

    return for_each


os.register_at_fork(
    before=_each(Threaded._before_fork),  # noqa: SLF001 - its own module
    after_in_parent=_each(Threaded._after_fork_in_parent),  # noqa: SLF001
    after_in_child=_each(Threaded._after_fork_in_child),  # noqa: SLF001
)
# Registered when this module is imported, so that handlers of the application, which run in the reverse order, can
# still stop their objects.
atexit.register(_halt_all)
