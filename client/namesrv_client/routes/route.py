"""A route, how two routes of a topic differ, who is told of that, and the errors when there is no route."""

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

logger: Final = logging.getLogger("namesrv_client.callback")

# what an iterator keeps for somebody who does not look
_KEPT: Final = 10_000

Source = Literal["pull", "watch", "disk", "default"]


class RouteError(RemotingError):
    """There is no usable route; the subclasses say whether that is known."""


class TopicNotFoundError(RouteError):
    """A NameServer that knows its brokers says that the topic does not exist."""


class RouteUnavailableError(RouteError):
    """It cannot be told: no server answered, none was ready, or the route is older than the caller accepts."""


class NoQueueError(RouteError):
    """The topic has a route, and no queue of it can be written to (or read from)."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where the queues of one topic are, how old that knowledge is, and where it comes from.

    `age` is the time since a server last confirmed it. `confirmed_absent_since` (monotonic seconds) is set while a
    server says that the topic does not exist any more; the last route is kept all the same, for the caller to decide.
    """

    topic: str
    data: TopicRouteData
    source: Source
    # monotonic seconds; of the moment in which this was handed out
    confirmed_at: float
    confirmed_absent_since: float | None = None
    clock: Clock | None = field(default=None, repr=False, compare=False)
    # which run of which server told it; empty: none did
    run: str = field(default="", repr=False, compare=False)

    @property
    def age(self) -> float:
        """Seconds since a server last confirmed it."""
        return 0.0 if self.clock is None else max(0.0, self.clock.monotonic() - self.confirmed_at)

    @property
    def brokers(self) -> Mapping[str, BrokerData]:
        """The broker groups by name."""
        return {data.broker_name: data for data in self.data.broker_datas}


@dataclass(frozen=True, slots=True)
class RouteChange:
    """How the route of a topic changed; `new` is None when the topic is gone, `old` when it was not known before."""

    topic: str
    old: Route | None
    new: Route | None
    brokers_added: tuple[str, ...] = ()
    brokers_removed: tuple[str, ...] = ()
    # other addresses, cluster or zone
    brokers_changed: tuple[str, ...] = ()
    # by broker name; changed: other numbers or permissions
    queues_added: tuple[str, ...] = ()
    queues_removed: tuple[str, ...] = ()
    queues_changed: tuple[str, ...] = ()


def difference(topic: str, old: Route | None, new: Route | None) -> RouteChange | None:
    """How two routes of a topic differ; None when they say the same. One that is confirmed absent counts as none."""
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
    """The names that came, that went, and that stand for something else."""
    added = tuple(sorted(now.keys() - before.keys()))
    removed = tuple(sorted(before.keys() - now.keys()))
    changed = tuple(sorted(name for name in before.keys() & now.keys() if before[name] != now[name]))
    return added, removed, changed


class RouteChanges:
    """An async iterator of changes, from the moment it was made until the client ends.

    A reader that falls behind by 10,000 loses the oldest.
    """

    def __init__(self) -> None:
        self._changes: deque[RouteChange] = deque(maxlen=_KEPT)
        self._has_news = asyncio.Event()
        self._is_ended = False

    def __repr__(self) -> str:
        return f"<RouteChanges [{len(self._changes)} waiting]>"

    def put(self, change: RouteChange | None) -> None:
        """One more; None: there will be no more."""
        if change is None:
            self._is_ended = True
        else:
            self._changes.append(change)
        self._has_news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RouteChange:
        await self.arrival()
        change = self.take()
        if change is None:
            raise StopAsyncIteration
        return change

    async def arrival(self) -> None:
        """Return once there is a change to take, or will be no more."""
        while not self._changes and not self._is_ended:
            self._has_news.clear()
            await self._has_news.wait()

    def take(self) -> RouteChange | None:
        """The next change, if there is one; any thread may take it, also when the client is gone."""
        return self._changes.popleft() if self._changes else None


class RouteListeners:
    """The callbacks and iterators of one client."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[RouteChange], None]] = []
        # those that somebody still holds
        self._iterators: weakref.WeakSet[RouteChanges] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<RouteListeners [{len(self._callbacks)} callbacks | {len(self._iterators)} iterators]>"

    def add(self, callback: Callable[[RouteChange], None]) -> Callable[[], None]:
        """Call back with every change; call what is returned to end that."""
        self._callbacks.append(callback)

        def end() -> None:
            with suppress(ValueError):
                self._callbacks.remove(callback)

        return end

    def iterator(self) -> RouteChanges:
        """Every change from now on."""
        changes = RouteChanges()
        self._iterators.add(changes)
        return changes

    def notify(self, change: RouteChange) -> None:
        """Pass a change to everybody; a callback that fails is logged, and keeps it from nobody else."""
        for callback in tuple(self._callbacks):
            try:
                callback(change)
            except Exception:
                logger.exception("callback failed on the change of topic %s", change.topic)
        for changes in tuple(self._iterators):
            changes.put(change)

    def end(self) -> None:
        """No more changes: iterators end when they are empty."""
        for changes in tuple(self._iterators):
            changes.put(None)
