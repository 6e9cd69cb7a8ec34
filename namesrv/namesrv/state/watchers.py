"""The watches: requests (20001) that wait for a change of their topics."""

import asyncio
from collections import deque
from collections.abc import Iterator, KeysView
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final

from namesrv.net.steps import BatchSize

# The most watches that are woken in one iteration of the loop, because each of them sends a response.
BATCH: Final = 64
# A watch with more topics has no entry per topic; its topics are compared with the changed ones, so many in a step.
FEW_TOPICS: Final = 256
STEP_TOPICS: Final = 10_000
# The most watches that are collected in one step: watches of the same hundred topics are found a hundred times when all
# of these topics change.
STEP_WATCHES: Final = 2_000


class RouteWatchers:
    """All waiting watches, each represented by a future."""

    def __init__(self, batch_size: BatchSize | None = None) -> None:
        # topic -> its small watches; the oldest watch is first, here and below
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        # all watches -> their topics
        self._futures: dict[asyncio.Future[None], KeysView[str]] = {}
        # large watches
        self._large: dict[asyncio.Future[None], None] = {}
        # small watches of changed topics, to be woken
        self._due: deque[Iterator[asyncio.Future[None]]] = deque()
        # large watches to be compared with the changed topics
        self._unchecked: deque[tuple[asyncio.Future[None], AbstractSet[str]]] = deque()
        # watches that are affected, and wait for their batch; each watch once, in order
        self._woken: dict[asyncio.Future[None], None] = {}
        self._batch_size = BatchSize(BATCH) if batch_size is None else batch_size

    def __len__(self) -> int:
        return len(self._futures)

    def __repr__(self) -> str:
        return f"<RouteWatchers [{len(self._futures)} waiting for {len(self._waiting)} topics]>"

    async def wait(self, topics: KeysView[str]) -> None:
        """Return when one of the topics has changed; the caller ends the wait by cancelling it."""
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
                # After a change of the topic, its watches have moved to `_due`.
                if (waiting := self._waiting.get(topic)) is not None:
                    waiting.pop(future, None)
                    if not waiting:
                        del self._waiting[topic]

    def wake(self, topics: AbstractSet[str] | None) -> None:
        """Wake the watches of these topics (None: all watches), a batch at a time."""
        was_idle = not self._is_busy()
        if topics is None:
            self._woken.update(dict.fromkeys(self._futures))
        else:
            # A change may have a hundred thousand topics, of which few have watches.
            self._due.extend(iter(self._waiting.pop(topic)) for topic in self._waiting.keys() & topics)
            self._unchecked.extend((future, topics) for future in self._large)
        if was_idle and self._is_busy():
            asyncio.get_running_loop().call_soon(self._release)

    def _is_busy(self) -> bool:
        return bool(self._woken or self._due or self._unchecked)

    def _wake_due(self) -> None:
        left = STEP_WATCHES
        while self._due and left > 0:
            some = list(islice(self._due[0], left))
            if not some:
                self._due.popleft()
            left -= len(some)
            # Most of these watches have been woken for another topic.
            self._woken.update((future, None) for future in some if not future.done())

    def _release(self) -> None:
        self._wake_due()
        woken: list[asyncio.Future[None]] = []
        for future in list(islice(self._woken, BATCH)):
            if len(woken) == self._batch_size.count:
                break
            del self._woken[future]
            if not future.done():
                woken.append(future)
        if woken:
            self._batch_size.wake(woken)
        left = STEP_TOPICS
        while self._unchecked and left > 0:
            future, changed = self._unchecked.popleft()
            topics = self._futures.get(future)
            if topics is None or future in self._woken:
                continue
            left -= min(len(topics), len(changed))
            if not topics.isdisjoint(changed):
                self._woken[future] = None
        if self._is_busy():
            asyncio.get_running_loop().call_soon(self._release)
