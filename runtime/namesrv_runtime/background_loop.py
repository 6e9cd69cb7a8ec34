"""What lives on an event loop, for threaded code: behind a loop in a thread of its own.

Any thread may call, and waits. Fork-safe: the child of a fork has none of the thread,
and gives up its copies of the parent's sockets, so that a server still notices when the parent dies.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, TypeVarTuple, Unpack

from namesrv_runtime import loops

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
Ts = TypeVarTuple("Ts")

# What a call may take beyond the work's own deadlines before the caller gets its thread back.
_GRACE_SECONDS: Final = 5.0

# all that run, for forks
_running: "set[Threaded[Any]]" = set()


class StoppedError(RuntimeError):
    """There is no thread to do the work: it was never started, or another one has stopped it meanwhile."""


class _OfLoop(Protocol):
    """What a Threaded has behind it: started when it is entered, stopped when it is left."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *_: object) -> object: ...

    def socket_descriptors(self) -> Iterable[int]: ...


W_co = TypeVar("W_co", bound=_OfLoop, covariant=True)


class Threaded(ABC, Generic[W_co]):
    """Something that lives on a loop, behind a thread of its own: made by `start`, gone after `stop`.

    Errors speak of its `owner`. The child of a fork has one that is not started, with none of the parent's connections;
    it may start its own.
    """

    def __init__(self, name: str, owner: str, call_seconds: float, stop_seconds: float = 0.0) -> None:
        self._name = name
        self._owner = owner
        # the work's own deadlines, of one call, and what stopping takes beyond it
        self._call_seconds = call_seconds
        self._stop_seconds = stop_seconds
        # held by who starts or stops
        self._lock = threading.RLock()
        # held, for a moment, by who hands something to the loop, and by who takes the loop away
        self._gate = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._inner: W_co | None = None
        # the sockets that the child of a fork knew to give up
        self._given_up: frozenset[int] = frozenset()
        # in the child of a fork: what the parent had
        self._parents: object = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} [{self._inner or 'not started'}]>"

    def start(self) -> None:
        """Start the thread and what lives in it; does not wait for any server. A second call does nothing."""
        self._check_other_thread()
        with self._lock:
            if self._inner is not None:
                return
            inner = self._made()
            with self._gate:
                self._loop = loops.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
                _running.add(self)
            self._inner = inner
            try:
                self._call(inner.__aenter__())
            except BaseException:
                self._end()
                raise

    def stop(self) -> None:
        """Stop what lives in the thread, within its deadline, and end the thread, which must not be the caller's own.

        What other threads wait for meanwhile ends with a StoppedError. A second call does nothing.
        """
        self._check_other_thread()
        with self._lock:
            if self._inner is None:
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
        """What is to live in the thread."""

    def _forget(self) -> None:
        self._inner = None

    def _end(self) -> None:
        self._forget()
        with self._gate:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            _running.discard(self)
        if loop is not None and thread is not None:
            # after all that was handed in, so that nobody waits for what is never done
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> W_co:
        inner = self._inner
        if inner is None:
            raise RuntimeError(f"{self._owner} is not started")
        return inner

    def _check_other_thread(self) -> None:
        """Raises RuntimeError in the loop's own thread, which must not wait for itself."""
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
            RuntimeError: called from the loop's own thread, which would wait for itself.
            StoppedError: not started, or stopped before the work was done.
            TimeoutError: it took longer; it has been cancelled.
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
        except TimeoutError:
            # nothing happens if it is the work's own
            future.cancel()
            raise

    def _read(self, read: Callable[[W_co], T]) -> T:
        """What is to be read, or called, in the thread."""
        inner = self._started()

        async def value() -> T:
            return read(inner)

        return self._call(value())

    def _tell(self, callback: Callable[[Unpack[Ts]], object], *arguments: *Ts) -> None:
        """Call something on the loop soon, and do not wait for it. Raises StoppedError if it is not started."""
        with self._gate:
            self._running_loop().call_soon_threadsafe(callback, *arguments)

    # -- forks --------------------------------------------------------------------------------------------------------

    def _sockets(self) -> Iterable[int]:
        """Of the connections; any thread may look for them."""
        return () if self._inner is None else self._inner.socket_descriptors()

    def _before_fork(self) -> None:
        try:
            self._given_up = frozenset(self._sockets())
        except (AttributeError, RuntimeError):
            # its thread changed something in this very moment: then none of them counts as given up
            self._given_up = frozenset()

    def _after_fork_in_parent(self) -> None:
        # it may have been stopped by another thread
        with contextlib.suppress(RuntimeError):
            self._tell(self._forked_child, self._given_up)

    def _forked_child(self, given_up: frozenset[int]) -> None:
        """In the parent, on the loop, with the sockets that the child gave up, but for those made in that moment."""

    def _after_fork_in_child(self) -> None:
        """The thread is not here, and its sockets are the parent's."""
        _running.discard(self)
        self._lock, self._gate = threading.RLock(), threading.Lock()
        # Kept, and never closed: the loop polls by a descriptor that it shares with the parent's, and transports would
        # close theirs when they are collected, whoever has the numbers then.
        self._parents = (self._loop, self._thread, self._inner)
        self._loop = self._thread = None
        try:
            _give_up(self._sockets())
        finally:
            self._forget()


def waited(verb: Callable[Concatenate[V, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Threaded[Any], P], T]:
    """A verb that runs in the thread, and is waited for."""

    @functools.wraps(verb)
    def call(self: Threaded[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(verb(self._started(), *args, **kwargs))

    return call


def direct(verb: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[Threaded[Any], P], T]:
    """A verb that any thread may call: it reads what is in memory."""

    @functools.wraps(verb)
    def call(self: Threaded[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return verb(self._started(), *args, **kwargs)

    return call


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
