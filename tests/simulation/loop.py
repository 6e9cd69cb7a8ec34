"""An event loop that waits for nothing: the world steps it, its time is the machine's, its sockets are simulated."""

import asyncio
import contextvars
import functools
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tests.simulation.disk import ProcessDied

if TYPE_CHECKING:
    from tests.simulation.network import Network
    from tests.simulation.world import Machine

T = TypeVar("T")

# a timer that is so close is due
_RESOLUTION: Final = 1e-6


class _Future(asyncio.Future[T]):
    """A future whose place in a set does not depend on where it lies in memory."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[T]):
    """The same for tasks."""

    def __init__(self, number: int, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class _NoSelector:
    """There are no descriptors to wait for, and never any wait."""

    def select(self, timeout: float | None) -> list[Any]:
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of one life of one machine's process."""

    # asyncio's own, which its stubs leave out
    _ready: deque[asyncio.Handle]
    _scheduled: list[Any]
    _timer_cancelled_count: int
    _run_once: Callable[[], None]

    def __init__(self, machine: "Machine", network: "Network") -> None:
        super().__init__()
        self.machine = machine
        self._network = network
        self._numbers = itertools.count()
        self._selector = _NoSelector()
        self._clock_resolution = _RESOLUTION
        # uvloop's way; asyncio's own loop looks at sockets first
        self._looks_at_timers_first = machine.world.random(f"loop of {machine.name} {machine.lives}").random() < 0.5
        self._delays = machine.world.random(f"threads of {machine.name} {machine.lives}")
        self.main: asyncio.Task[None] | None = None
        self.set_exception_handler(self._complain)
        self.set_task_factory(self._new_task)

    def _new_task(self, _: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return _Task(next(self._numbers), coro, loop=self, **options)

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(next(self._numbers), self)

    def _call_soon(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        handle: asyncio.Handle = super()._call_soon(callback, args, context)  # type: ignore[misc]  # not in the stubs
        if self.machine.loop is self:
            self.machine.wake(0.0)
        return handle

    def call_at(  # type: ignore[override]  # with fewer types
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        if self.machine.loop is self:
            self.machine.wake(when)
        return handle

    def time(self) -> float:
        return self.machine.monotonic()

    def is_running(self) -> bool:
        return False

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self.machine.loop is self:
            self.machine.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def next_due(self) -> float | None:
        """The loop's time at which there is something to do, 0 for now, None for never."""
        if self._ready:
            return 0.0
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._forget_cancelled()
        return scheduled[0]._when if scheduled else None

    def _forget_cancelled(self) -> None:
        self._timer_cancelled_count -= 1
        heapq.heappop(self._scheduled)._scheduled = False

    def forget_ready(self) -> None:
        """Nothing that was to run in this pass does."""
        for handle in self._ready:
            handle.cancel()

    def _put_timers_first(self) -> None:
        now, due = self.time() + _RESOLUTION, []
        while self._scheduled and self._scheduled[0]._when < now:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            due.append(handle)
        self._ready.extendleft(reversed(due))

    def step(self) -> None:
        """Make one pass."""
        if self._looks_at_timers_first and self._ready:
            self._put_timers_first()
        asyncio._set_running_loop(self)
        try:
            self._run_once()
        finally:
            asyncio._set_running_loop(None)

    @property
    def timers(self) -> list[asyncio.TimerHandle]:
        """Timers that are not cancelled."""
        return [handle for handle in self._scheduled if not handle._cancelled]

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # what our code passes
        """Do the work at one later moment, and tell of it at another one, as a thread would."""
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
            tell: Callable[[], None]
            with machine.entered():
                try:
                    tell = functools.partial(done.set_result, func(*args))
                except ProcessDied:
                    return
                except Exception as error:  # noqa: BLE001 - its caller gets it
                    tell = functools.partial(done.set_exception, error)
            world.at(world.now + self._delays.uniform(1e-4, 3e-3), lambda: self._told(done, tell))

        world.at(begins, work)
        return done

    def _told(self, done: asyncio.Future[T], tell: Callable[[], None]) -> None:
        if self.machine.loop is self and not done.done():
            self.call_soon(lambda: None if done.done() else tell(), context=contextvars.Context())

    async def create_server(  # type: ignore[override]  # what our code passes
        self, factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        return self._network.listen(self, factory, port)

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
