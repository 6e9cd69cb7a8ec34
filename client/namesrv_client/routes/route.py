"""A route, the difference between two routes of a topic, listeners for changes, and errors for missing routes."""

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from namesrv_remoting.bodies.route import BrokerData, TopicRouteData
from namesrv_remoting.errors import RemotingError
from namesrv_runtime.clock import Clock
from namesrv_runtime.server_events import CALLBACK_ERRORS, check_plain

logger: Final = logging.getLogger("namesrv_client.callback")

# changes that an iterator keeps for a slow reader
_KEPT: Final = 10_000

Source = Literal["pull", "watch", "disk"]


class RouteError(RemotingError):
    """A usable route is missing; each subclass stands for a reason."""


class TopicNotFoundError(RouteError):
    """A NameServer that knows all its brokers reports that the topic does not exist."""


class RouteUnavailableError(RouteError):
    """No server could answer (unreachable, not ready or refusing), and no route that is young enough is in memory."""


class NoQueueError(RouteError):
    """The topic has a route without any queue that can be written to."""


@dataclass(frozen=True, slots=True)
class Route:
    """The brokers and queues of one topic, with the age and the source of the information.

    `age` is the time since a server last confirmed the route. `confirmed_absent_since` (monotonic seconds) is set
    while a server reports that the topic does not exist any more; the last route is kept, for the caller to decide.
    """

    topic: str
    data: TopicRouteData
    source: Source
    # monotonic seconds of the last confirmation before this object was handed out
    confirmed_at: float
    confirmed_absent_since: float | None = None
    clock: Clock | None = field(default=None, repr=False, compare=False)
    # boot id and connection of the server that sent the route (see RouteResponse); empty and 0 for a route from disk
    sender: tuple[str, int] = field(default=("", 0), repr=False, compare=False)

    @property
    def age(self) -> float:
        """Seconds since a server last confirmed the route."""
        return 0.0 if self.clock is None else max(0.0, self.clock.monotonic() - self.confirmed_at)

    @property
    def brokers(self) -> Mapping[str, BrokerData]:
        """The broker groups by name."""
        return {data.broker_name: data for data in self.data.broker_datas}


@dataclass(frozen=True, slots=True)
class RouteChange:
    """A change of a topic's route; `new` is None if the topic is gone, `old` if the topic was unknown before."""

    topic: str
    old: Route | None
    new: Route | None
    brokers_added: tuple[str, ...] = ()
    brokers_removed: tuple[str, ...] = ()
    # groups with other addresses, another cluster or zone
    brokers_changed: tuple[str, ...] = ()
    # names of brokers whose queues were added, removed, or got other numbers or permissions
    queues_added: tuple[str, ...] = ()
    queues_removed: tuple[str, ...] = ()
    queues_changed: tuple[str, ...] = ()


def difference(topic: str, old: Route | None, new: Route | None) -> RouteChange | None:
    """The difference of two routes of a topic; None if they are equal. A confirmed absent route counts as no route."""
    before, now = (
        None if route is None or route.confirmed_absent_since is not None else route.data for route in (old, new)
    )
    if before == now:
        return None
    empty = TopicRouteData((), ())
    was, data = before or empty, now or empty
    return RouteChange(
        topic,
        old,
        None if now is None else new,
        *_compared(*({group.broker_name: group for group in each.broker_datas} for each in (was, data))),
        *_compared(*({queues.broker_name: queues for queues in each.queue_datas} for each in (was, data))),
    )


def _compared(before: Mapping[str, object], now: Mapping[str, object]) -> tuple[tuple[str, ...], ...]:
    """The names that were added, that were removed, and whose values changed."""
    added = tuple(sorted(now.keys() - before.keys()))
    removed = tuple(sorted(before.keys() - now.keys()))
    changed = tuple(sorted(name for name in before.keys() & now.keys() if before[name] != now[name]))
    return added, removed, changed


class RouteChanges:
    """An async iterator over all changes from its creation until the client ends.

    A reader that falls behind by 10,000 changes loses the oldest.
    """

    def __init__(self) -> None:
        self._changes: deque[RouteChange] = deque(maxlen=_KEPT)
        self._has_news = asyncio.Event()
        self._is_ended = False

    def __repr__(self) -> str:
        return f"<RouteChanges [{len(self._changes)} waiting]>"

    def put(self, change: RouteChange | None) -> None:
        """Add a change; None ends the iterator."""
        if change is None:
            self._is_ended = True
        else:
            self._changes.append(change)
        self._has_news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RouteChange:
        while not self._changes:
            if self._is_ended:
                raise StopAsyncIteration
            self._has_news.clear()
            await self._has_news.wait()
        return self._changes.popleft()

    def take(self) -> RouteChange | None:
        """The next change, if there is one; any thread may call this once the client has ended."""
        with suppress(IndexError):
            return self._changes.popleft()
        return None


class RouteListeners:
    """The callbacks and iterators of one client."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[RouteChange], None]] = []
        # iterators that the application still holds
        self._iterators: weakref.WeakSet[RouteChanges] = weakref.WeakSet()
        self._is_ended = False
        # number of changes so far
        self.notified = 0

    def __repr__(self) -> str:
        return f"<RouteListeners [{len(self._callbacks)} callbacks | {len(self._iterators)} iterators]>"

    def add(self, callback: Callable[[RouteChange], None]) -> Callable[[], None]:
        """Call `callback` with every change; the returned function ends that. A coroutine function is a TypeError."""
        check_plain("on_change", callback)
        self._callbacks.append(callback)

        def end() -> None:
            with suppress(ValueError):
                self._callbacks.remove(callback)

        return end

    def iterator(self) -> RouteChanges:
        """An iterator over all changes from now on."""
        changes = RouteChanges()
        if self._is_ended:
            changes.put(None)
        self._iterators.add(changes)
        return changes

    def notify(self, change: RouteChange) -> None:
        """Pass a change to all callbacks and iterators; a callback that raises is logged and stops no other one."""
        self.notified += 1
        for callback in tuple(self._callbacks):
            try:
                callback(change)
            except CALLBACK_ERRORS:
                logger.exception("callback failed on the change of topic %s", change.topic)
        for changes in tuple(self._iterators):
            changes.put(change)

    def end(self) -> None:
        """End all iterators, once the reader has taken what they hold; later iterators end at once."""
        self._is_ended = True
        for changes in tuple(self._iterators):
            changes.put(None)
