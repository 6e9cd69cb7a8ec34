"""Clients that wait for routes to change."""

import asyncio
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

# Watchers woken between two looks at the sockets: each of them answers a question of its own.
BATCH: Final = 64


class RouteWatchers:
    """Waiting questions, by topic."""

    def __init__(self) -> None:
        # topic -> those who wait for it
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        # all who wait
        self._futures: set[asyncio.Future[None]] = set()
        # woken, but not told yet; in order, and each once however often it was woken
        self._woken: dict[asyncio.Future[None], None] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def __repr__(self) -> str:
        return f"<RouteWatchers [{len(self._futures)} waiting for {len(self._waiting)} topics]>"

    async def wait(self, topics: Collection[str]) -> None:
        """Return when one of the topics has changed; cancelled by whoever has waited long enough."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.add(future)
        for topic in topics:
            self._waiting.setdefault(topic, set()).add(future)
        try:
            await future
        finally:
            self._futures.discard(future)
            for topic in topics:
                waiting = self._waiting.get(topic)
                if waiting is not None:
                    waiting.discard(future)
                    if not waiting:
                        del self._waiting[topic]

    def wake(self, topics: Iterable[str] | None) -> None:
        """Let those go who wait for one of the topics (None: everybody), a batch at a time."""
        if not self._futures:
            return
        if topics is None:
            found = set(self._futures)
        else:
            # a change may be of a hundred thousand topics, few of which anybody waits for
            found = set().union(*(self._waiting[topic] for topic in self._waiting.keys() & topics))
        if found and not self._woken:
            asyncio.get_running_loop().call_soon(self._release)
        self._woken.update(dict.fromkeys(found))

    def _release(self) -> None:
        for future in list(islice(self._woken, BATCH)):
            del self._woken[future]
            if not future.done():
                future.set_result(None)
        if self._woken:
            asyncio.get_running_loop().call_soon(self._release)
