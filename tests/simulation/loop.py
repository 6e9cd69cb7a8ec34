"""An event loop that never waits: the world steps it, and machine time and simulated sockets drive it."""

import asyncio
import contextvars
import functools
import heapq
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tests.simulation.disk import ProcessDied
from tests.simulation.network import SameListener

if TYPE_CHECKING:
    from tests.simulation.network import Network
    from tests.simulation.world import Machine

T = TypeVar("T")

# Timers within this time are due.
_RESOLUTION: Final = 1e-6


class _Future(asyncio.Future[T]):
    """A future whose hash, and so its place in a set, does not depend on its address in memory."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[T]):
    """A task whose hash does not depend on its address in memory."""

    def __init__(self, number: int, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class _Handle:
    """A replacement of asyncio.Handle and TimerHandle that is faster to create."""

    __slots__ = ("args", "callback", "context", "due", "is_cancelled")

    def __init__(self, callback: Any, args: Any, context: contextvars.Context, due: float = 0.0) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.due = due
        self.is_cancelled = False

    def __repr__(self) -> str:
        return f"<Handle [{self.callback!r} at {self.due:.6f}]>"

    def cancel(self) -> None:
        # A cancelled timer stays in the heap until it is due.
        self.is_cancelled = True
        self.callback = self.args = None

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.due


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of one life of a machine's process."""

    # Attributes of asyncio's base class that its stubs lack.
    _ready: deque[_Handle]
    _closed: bool
    _check_closed: Callable[[], None]

    def __init__(self, machine: "Machine", network: "Network") -> None:
        super().__init__()
        self.machine = machine
        self._network = network
        self._numbers, self._timer_numbers = itertools.count(), itertools.count()
        # (when, number, handle)
        self._timers: list[tuple[float, int, _Handle]] = []
        # uvloop runs timers before sockets; asyncio's own loop runs them afterwards.
        self._runs_timers_first = machine.world.random(f"loop of {machine.name} {machine.lives}").random() < 0.5
        self._delays = machine.world.random(f"threads of {machine.name} {machine.lives}")
        # All tasks of this loop; asyncio's own list has the tasks of all loops.
        self._tasks: list[weakref.ref[_Task[Any]]] = []
        self.main: asyncio.Task[None] | None = None
        self.set_exception_handler(self._record_problem)
        self.set_task_factory(self._new_task)

    def _new_task(self, _: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = _Task(next(self._numbers), coro, loop=self, **options)
        self._tasks.append(weakref.ref(task))
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(next(self._numbers), self)

    def call_soon(  # type: ignore[override]  # with fewer types
        self, callback: Any, *args: Any, context: Any = None
    ) -> _Handle:
        if self._closed:
            self._check_closed()
        handle = _Handle(callback, args, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        machine = self.machine
        if machine.next_at > machine.world.now and machine.loop is self:
            machine.wake()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]  # with fewer types
        self, callback: Any, *args: Any, context: Any = None
    ) -> _Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]  # with fewer types
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> _Handle:
        if self._closed:
            self._check_closed()
        handle = _Handle(callback, args, contextvars.copy_context() if context is None else context, when)
        heapq.heappush(self._timers, (when, next(self._timer_numbers), handle))
        if self.machine.loop is self:
            self.machine.wake_at(when)
        return handle

    def call_later(  # type: ignore[override]  # with fewer types
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> _Handle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def time(self) -> float:
        return self.machine.monotonic()

    def is_running(self) -> bool:
        return False

    def _record_problem(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self.machine.loop is self:
            self.machine.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    def next_due(self) -> float | None:
        """The loop's time of the next timer, or None."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    @property
    def has_work(self) -> bool:
        """Return true if a callback is ready."""
        return bool(self._ready)

    def forget_ready(self) -> None:
        """Cancel the callbacks of the current iteration."""
        for handle in self._ready:
            handle.cancel()

    def _due(self, now: float) -> list[_Handle]:
        """Remove and return the timers that are due."""
        timers = self._timers
        due: list[_Handle] = []
        while timers and timers[0][0] < now:
            handle = heapq.heappop(timers)[2]
            if not handle.is_cancelled:
                due.append(handle)
        return due

    def step(self) -> None:
        """Run one iteration."""
        ready, timers = self._ready, self._timers
        if timers and timers[0][0] < (now := self.machine.monotonic() + _RESOLUTION) and (due := self._due(now)):
            if self._runs_timers_first:
                ready.extendleft(reversed(due))
            else:
                ready.extend(due)
        asyncio._set_running_loop(self)
        try:
            # Callbacks that these callbacks add run in the next iteration.
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle.is_cancelled:
                    try:
                        handle.context.run(handle.callback, *handle.args)
                    except Exception as error:  # noqa: BLE001 - no caller receives it
                        self.call_exception_handler({"message": "in a callback", "exception": error})
                    except ProcessDied:
                        pass
        finally:
            asyncio._set_running_loop(None)

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Tasks that are not done."""
        found = (reference() for reference in self._tasks)
        return [task for task in found if task is not None and not task.done()]

    @property
    def timers(self) -> list[_Handle]:
        """Timers that are not cancelled."""
        return [handle for _, _, handle in self._timers if not handle.is_cancelled]

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # what our code passes
        """Run the function at a later time, and deliver its result later still, like a thread."""
        done: asyncio.Future[T] = self.create_future()
        world, machine = self.machine.world, self.machine
        slow = 0.0 if machine.disk is None else machine.disk.slow_seconds
        begins = world.now + self._delays.uniform(1e-4, 3e-3) + slow

        def work() -> None:
            if machine.loop is not self:
                return
            if machine.frozen_until > world.now:
                world.at(machine.frozen_until, work)
                return
            settle: Callable[[], None]
            with machine.entered():
                try:
                    settle = functools.partial(done.set_result, func(*args))
                except ProcessDied:
                    return
                except Exception as error:  # noqa: BLE001 - its caller gets it
                    settle = functools.partial(done.set_exception, error)
            world.at(world.now + self._delays.uniform(1e-4, 3e-3), lambda: self._deliver(done, settle))

        world.at(begins, work)
        return done

    def _deliver(self, done: asyncio.Future[T], settle: Callable[[], None]) -> None:
        if self.machine.loop is self and not done.done():
            self.call_soon(lambda: None if done.done() else settle(), context=contextvars.Context())

    async def create_server(  # type: ignore[override]  # what our code passes
        self, factory: Any, host: Any = None, port: Any = None, *, sock: Any = None, **options: Any
    ) -> Any:
        return self._network.listen(self, factory, port) if sock is None else SameListener()

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:  # type: ignore[override]  # what our code passes
        end = await self._network.connect(self, host, port)
        protocol = factory()
        made = self.create_future()
        end.begin(protocol, made)
        try:
            await made
        except BaseException:
            end.abort()
            raise
        return end, protocol
