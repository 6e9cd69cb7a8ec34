"""Threads of simulated processes: one runs at a time, until it waits for something.

Each thread is a greenlet with a stack of its own, because switches of real threads would wait for the scheduler. Our
code uses these replacements of `threading`, `Queue` and `time.sleep`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import greenlet

from tests.simulation.disk import ProcessDied

if TYPE_CHECKING:
    from tests.simulation.world import Machine, World

# Delay until a runnable thread continues.
_WAKE_SECONDS: Final = (2e-5, 5e-4)


class SimulatedThread:
    """One thread of a process."""

    def __init__(self, world: "World", target: Callable[..., None], args: Iterable[Any]) -> None:
        assert world.running is not None
        self._world = world
        self._machine: Machine = world.running
        self._is_dead = self.has_ended = False
        # Number of waits so far: a wake-up for an earlier wait is ignored.
        self._waits = 0
        self._stack = greenlet.greenlet(lambda: self._run(target, args))

    def start(self) -> None:
        self._machine.threads.append(self)
        self.wake_soon()

    def _run(self, target: Callable[..., None], args: Iterable[Any]) -> None:
        if not self._is_dead:
            with suppress(ProcessDied):
                target(*args)
        self.has_ended = True

    def wait(self, seconds: float | None) -> None:
        """Let other threads run until this thread is woken or the time is over."""
        if seconds is not None:
            self._wake_at(self._world.now + seconds)
        resumer = self._stack.parent
        assert resumer is not None
        resumer.switch()
        if self._is_dead:
            raise ProcessDied

    def wake_soon(self) -> None:
        """Continue the thread, which is waiting."""
        self._wake_at(self._world.now + self._machine.wake_delays.uniform(*_WAKE_SECONDS))

    def _wake_at(self, when: float) -> None:
        wait = self._waits
        self._world.at(when, lambda: self._wake(wait))

    def _wake(self, wait: int) -> None:
        if wait != self._waits or self.has_ended or self._is_dead:
            return
        if self._machine.frozen_until > self._world.now:
            self._world.at(self._machine.frozen_until, lambda: self._wake(wait))
            return
        self._continue()

    def _continue(self) -> None:
        self._waits += 1
        world = self._world
        before, world.thread = world.thread, self
        with self._machine.entered():
            # Control returns here when the thread waits or ends.
            self._stack.parent = greenlet.getcurrent()
            self._stack.switch()
        world.thread = before

    def die(self) -> None:
        """End the thread where it is; a thread that ends its own process ends by itself."""
        self._is_dead = True
        if not self.has_ended and self._world.thread is not self:
            self._continue()


class _Event:
    """A replacement of threading.Event."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._is_set = False
        self._waiting: list[SimulatedThread] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for thread in self._waiting:
            thread.wake_soon()
        self._waiting.clear()

    def wait(self, timeout: float | None = None) -> bool:
        thread = self._world.thread
        assert thread is not None, "the process would block"
        if not self._is_set:
            self._waiting.append(thread)
            thread.wait(timeout)
            if thread in self._waiting:
                self._waiting.remove(thread)
        return self._is_set


class _Queue:
    """A replacement of an unbounded queue.Queue."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._items: deque[Any] = deque()
        self._waiting: list[SimulatedThread] = []

    def put(self, item: Any) -> None:
        self._items.append(item)
        for thread in self._waiting:
            thread.wake_soon()
        self._waiting.clear()

    def get(self) -> Any:
        while not self._items:
            assert self._world.thread is not None, "the process would block"
            self._waiting.append(self._world.thread)
            self._world.thread.wait(None)
        return self._items.popleft()


class Threading:
    """A replacement of the module threading, as far as our code uses it."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._real_thread, self._real_sleep = get_ident(), time.sleep

    def Thread(self, *, target: Callable[..., None], args: Iterable[Any], **_: Any) -> SimulatedThread:  # noqa: N802
        return SimulatedThread(self._world, target, args)

    def Event(self) -> _Event:  # noqa: N802
        return _Event(self._world)

    def Queue(self, size: int = 0) -> _Queue:  # noqa: N802
        assert not size, "bounded queues are not simulated"
        return _Queue(self._world)

    def sleep(self, seconds: float) -> None:
        """A replacement of time.sleep."""
        if get_ident() != self._real_thread:
            # A thread of a library that another test has left running.
            self._real_sleep(seconds)
            return
        assert self._world.thread is not None, "the process would block"
        self._world.thread.wait(seconds)
