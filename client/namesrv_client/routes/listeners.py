"""Callbacks and iterators that get every change of a route."""

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from namesrv_client.routes.route import RouteChange

logger: Final = logging.getLogger(__name__)

# what an iterator keeps for somebody who does not look
_KEPT: Final = 10_000


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

    def put(self, change: RouteChange) -> None:
        """One more."""
        self._changes.append(change)
        self._has_news.set()

    def end(self) -> None:
        """There will be no more."""
        self._is_ended = True
        self._has_news.set()

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> RouteChange:
        """The next change, as soon as there is one."""
        while not self._changes:
            if self._is_ended:
                raise StopAsyncIteration
            self._has_news.clear()
            await self._has_news.wait()
        return self._changes.popleft()


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
            changes.end()
