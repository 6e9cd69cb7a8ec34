"""Clients that wait for routes to change."""

import asyncio
from collections import deque
from collections.abc import Iterator, KeysView
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final

from namesrv_remoting.aio.steps import Pace

# Watchers woken between two looks at the sockets, at most: each of them answers a question of its own.
BATCH: Final = 64
# Questions about more topics are not entered by topic, but looked through when something changes, so many in a step.
FEW_TOPICS: Final = 256
STEP_TOPICS: Final = 10_000
# Those who wait for the same hundred topics are found a hundred times when all of these change: so many in a step.
STEP_WATCHES: Final = 2_000


class RouteWatchers:
    """Waiting questions."""

    def __init__(self, pace: Pace | None = None) -> None:
        # topic -> those who wait for it, among few others; whoever waits longest is first, here and below
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        # all who wait, for which topics
        self._futures: dict[asyncio.Future[None], KeysView[str]] = {}
        # those who wait for many
        self._large: dict[asyncio.Future[None], None] = {}
        # those who waited for a topic that has changed, and have yet to be woken
        self._due: deque[Iterator[asyncio.Future[None]]] = deque()
        # those who wait for many topics and have yet to be looked through, and which topics changed
        self._doubted: deque[tuple[asyncio.Future[None], AbstractSet[str]]] = deque()
        # woken, but not told yet; in order, and each once however often it was woken
        self._woken: dict[asyncio.Future[None], None] = {}
        self._pace = Pace(BATCH) if pace is None else pace

    def __len__(self) -> int:
        return len(self._futures)

    def __repr__(self) -> str:
        return f"<RouteWatchers [{len(self._futures)} waiting for {len(self._waiting)} topics]>"

    async def wait(self, topics: KeysView[str]) -> None:
        """Return when one of the topics has changed; cancelled by whoever has waited long enough."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures[future] = topics
        entered: AbstractSet[str] = topics
        if len(topics) > FEW_TOPICS:
            self._large[future] = None
            entered = frozenset()
        for topic in entered:
            self._waiting.setdefault(topic, {})[future] = None
        try:
            await future
        finally:
            del self._futures[future]
            self._large.pop(future, None)
            for topic in entered:
                # when the topic has changed its crowd is due, and no longer here
                if (waiting := self._waiting.get(topic)) is not None:
                    waiting.pop(future, None)
                    if not waiting:
                        del self._waiting[topic]

    def wake(self, topics: AbstractSet[str] | None) -> None:
        """Let those go who wait for one of the topics (None: everybody), a batch at a time."""
        was_idle = not self._is_busy()
        if topics is None:
            self._woken.update(dict.fromkeys(self._futures))
        else:
            # a change may be of a hundred thousand topics, few of which anybody waits for
            self._due.extend(iter(self._waiting.pop(topic)) for topic in self._waiting.keys() & topics)
            self._doubted.extend((future, topics) for future in self._large)
        if was_idle and self._is_busy():
            asyncio.get_running_loop().call_soon(self._release)

    def _is_busy(self) -> bool:
        return bool(self._woken or self._due or self._doubted)

    def _wake_due(self) -> None:
        left = STEP_WATCHES
        while self._due and left > 0:
            some = list(islice(self._due[0], left))
            if not some:
                self._due.popleft()
            left -= len(some)
            # most have been woken for another topic
            self._woken.update((future, None) for future in some if not future.done())

    def _release(self) -> None:
        self._wake_due()
        woken: list[asyncio.Future[None]] = []
        for future in list(islice(self._woken, BATCH)):
            if len(woken) == self._pace.count:
                break
            del self._woken[future]
            if not future.done():
                woken.append(future)
        if woken:
            self._pace.wake(woken)
        left = STEP_TOPICS
        while self._doubted and left > 0:
            future, changed = self._doubted.popleft()
            topics = self._futures.get(future)
            if topics is None or future in self._woken:
                continue
            left -= min(len(topics), len(changed))
            if not topics.isdisjoint(changed):
                self._woken[future] = None
        if self._is_busy():
            asyncio.get_running_loop().call_soon(self._release)
