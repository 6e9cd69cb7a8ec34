"""The watches: requests (20001) that wait for a change of their topics, without a task of their own."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, KeysView
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, NamedTuple, Protocol

from namesrv.encoded_routes import EncodedResponse, RoutesInView
from namesrv.net.fairness.fair_scheduler import computing_seconds
from namesrv_remoting.bodies.base import chunked

# Processor time for ending watches in one slice, after which the event loop polls the sockets again.
SLICE_SECONDS: Final = 0.002
# The most watches that end in one slice.
BATCH: Final = 64
# Watches that end between two looks at the clock.
_UNTIMED: Final = 8
# A watch with more topics is large: it has no entry per topic, and each change is compared with its topics.
FEW_TOPICS: Final = 256
# The most topics of large watches that are compared in one slice.
STEP_TOPICS: Final = 10_000
# The most entries of changed topics that are read in one slice: a watch of a hundred topics is found a hundred times
# when all of these topics change.
STEP_WATCHES: Final = 2_000


class WatchedRoutes(NamedTuple):
    """The topics of a watch, the revision after which a change of a topic ends the watch, and the client's zone."""

    topics: tuple[str, ...]
    since: int
    zone: str


class SharedResponse(NamedTuple):
    """A response to several watches, complete but for the opaque, and the revision of the last change of each topic."""

    # None if the response is too large to be shared
    response: EncodedResponse | None
    revisions: list[tuple[str, int]]


# Responses by the watched routes, and the routes in the client's address view; valid until the event loop runs other
# code.
SharedResponses = dict[tuple[WatchedRoutes, RoutesInView], SharedResponse]


class Watch(Protocol):
    """A request that waits for a change of its topics."""

    @property
    def topics(self) -> KeysView[str]:
        """The watched topics."""
        ...

    def end(self, shared: SharedResponses) -> None:
        """Respond, or start a task that responds; the watch has left the table.

        `shared` has the responses to earlier watches of the slice, and gets a new one.
        """
        ...


class RouteWatchers:
    """All waiting watches. A change ends the watches of its topics, slice by slice; of each topic the oldest first."""

    def __init__(self, now: Callable[[], float] = computing_seconds) -> None:
        # topic -> its small watches (at most FEW_TOPICS topics each); the oldest watch is first, here and below
        self._waiting: dict[str, dict[Watch, None]] = {}
        # all watches
        self._watches: dict[Watch, None] = {}
        # large watches
        self._large: dict[Watch, None] = {}
        # small watches of each changed topic, not yet moved to `_woken`
        self._due: deque[Iterator[Watch]] = deque()
        # large watches to be compared with the changed topics
        self._unchecked: deque[tuple[Watch, AbstractSet[str]]] = deque()
        # watches to be ended, each watch once, in order; some may have been removed meanwhile
        self._woken: dict[Watch, None] = {}
        self._now = now

    def __len__(self) -> int:
        return len(self._watches)

    def __repr__(self) -> str:
        return f"<RouteWatchers [{len(self._watches)} waiting for {len(self._waiting)} topics]>"

    def add(self, watch: Watch) -> None:
        """Let a watch wait until one of its topics has changed, or until it is removed."""
        self._watches[watch] = None
        if len(watch.topics) > FEW_TOPICS:
            self._large[watch] = None
            return
        for topic in watch.topics:
            self._waiting.setdefault(topic, {})[watch] = None

    def remove(self, watch: Watch) -> None:
        """Remove a watch, whose response the caller sends or gives up. Raises KeyError if it was removed before."""
        del self._watches[watch]
        if watch in self._large:
            del self._large[watch]
            return
        for topic in watch.topics:
            # After a change of the topic, its watches have moved to `_due`.
            if (waiting := self._waiting.get(topic)) is not None:
                waiting.pop(watch, None)
                if not waiting:
                    del self._waiting[topic]

    def wake(self, topics: AbstractSet[str] | None) -> None:
        """Schedule the end of the watches of these topics (None: all watches), in slices of their own."""
        was_idle = not self._is_busy()
        if topics is None:
            self._woken.update(self._watches)
        else:
            # A change may have a hundred thousand topics, of which few have watches.
            self._due.extend(iter(self._waiting.pop(topic)) for topic in self._waiting.keys() & topics)
            self._unchecked.extend((watch, topics) for watch in self._large)
        if was_idle and self._is_busy():
            asyncio.get_running_loop().call_soon(self._run_slice)

    def _is_busy(self) -> bool:
        return bool(self._woken or self._due or self._unchecked)

    def _run_slice(self) -> None:
        try:
            self._collect_due()
            self._end_woken()
            self._check_large()
        finally:
            # The other watches end even if one of them raises an error.
            if self._is_busy():
                asyncio.get_running_loop().call_soon(self._run_slice)

    def _collect_due(self) -> None:
        left = STEP_WATCHES
        while self._due and left > 0:
            some = list(islice(self._due[0], left))
            if not some:
                self._due.popleft()
            left -= len(some)
            # Watches of several changed topics are found again, and may have ended since.
            self._woken.update((watch, None) for watch in some if watch in self._watches)

    def _end_woken(self) -> None:
        shared: SharedResponses = {}
        ends = self._now() + SLICE_SECONDS
        for some in chunked(list(islice(self._woken, BATCH)), _UNTIMED):
            for watch in some:
                del self._woken[watch]
                if watch in self._watches:
                    self.remove(watch)
                    watch.end(shared)
            if self._now() >= ends:
                break

    def _check_large(self) -> None:
        left = STEP_TOPICS
        while self._unchecked and left > 0:
            watch, changed = self._unchecked.popleft()
            if watch not in self._watches or watch in self._woken:
                continue
            left -= min(len(watch.topics), len(changed))
            if not watch.topics.isdisjoint(changed):
                self._woken[watch] = None
