"""The bounded queue between the event loop, which puts items, and the thread that writes their lines."""

from collections import deque
from typing import Any, Final, NamedTuple, TypeAlias, final

# Two seconds of a hundred thousand heartbeats; an item takes about 200 bytes for each unit of its weight.
DEFAULT_MAX_QUEUED: Final = 200_000
# A chunk is the weight that is encoded and written at once; the loop waits while the writing thread runs Python.
# Chunks grow with the queue. In a chunk, a light item counts as a quarter, because its encoding takes a quarter of
# the time.
_LEAST_CHUNK: Final = 128
_MOST_CHUNK: Final = 256
_CHUNKS_QUEUED: Final = 32
_LIGHT_SHARE: Final = 0.25


@final
class Item(NamedTuple):
    """One event and its time."""

    # seconds since 1970; this time decides which file gets the line
    wall: float
    # seconds on the monotonic clock
    monotonic: float
    what: Any
    # units of the queue's limit that the item takes; an ordinary line takes 1
    weight: int = 1


# A very frequent item may be a plain tuple that begins with the same two times as an Item and has a weight of 1; its
# encoder knows the rest. A plain tuple takes half the time to make and half the memory.
Light: TypeAlias = tuple[Any, ...]


class Dropped(NamedTuple):
    """The `what` of an item that marks the place of dropped items in the queue."""

    lines: int


class LineQueue:
    """Items that wait to be written; one thread puts them, another one takes them, without a lock."""

    def __init__(self, max_queued: int) -> None:
        # items that were lost since the start
        self.dropped = 0
        self._max_queued = max_queued
        self._items: deque[Item | Light] = deque()
        # weight put and weight written so far; each number is changed by one thread only
        self._put = 0
        self._written = 0
        # dropped items for which no Dropped stands in the queue yet
        self._unreported = 0

    @property
    def weight(self) -> int:
        """The weight of the items that are not written yet."""
        return self._put - self._written

    @property
    def first(self) -> Item | Light | None:
        """The item that is written next; None if the queue is empty. For the writing thread."""
        return self._items[0] if self._items else None

    def put(self, item: Item | Light) -> None:
        """Queue an item; drop and count the item when the queue is full."""
        weight = item.weight if type(item) is Item else 1
        if self._put - self._written + weight > self._max_queued:
            self.dropped += 1
            self._unreported += 1
            return
        if self._unreported:
            self._items.append(Item(item[0], item[1], Dropped(self._unreported), 0))
            self._unreported = 0
        self._put += weight
        self._items.append(item)

    def take(self, begin: float, end: float, max_lines: int) -> tuple[list[Item | Light], int]:
        """Take the next items between these times, or one item for dropped ones; return them and their weight.

        The weight counts as queued until `written` is called with it.
        """
        items = self._items
        chunk: list[Item | Light] = []
        weight, cost = 0, 0.0
        most = min(max(self.weight // _CHUNKS_QUEUED, _LEAST_CHUNK), _MOST_CHUNK)
        while items and cost < most and len(chunk) < max_lines:
            item = items[0]
            if not begin <= item[0] < end:
                break
            if type(item) is Item:
                if type(item.what) is Dropped:
                    return (chunk, weight) if chunk else ([items.popleft()], 0)
                weight += item.weight
                cost += item.weight
            else:
                weight += 1
                cost += _LIGHT_SHARE
            chunk.append(items.popleft())
        return chunk, weight

    def written(self, weight: int) -> None:
        """Note that items of this weight left the queue for good, written or lost."""
        self._written += weight
