"""Long work on the loop, step by step."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from typing import Final, TypeVar

from namesrv_remoting.bodies.base import Steps, parts

T = TypeVar("T")

# Of the longest first steps, a registration's of ten topics, so many take about 5 ms.
_AT_ONCE: Final = 32
# What begins between two looks at the sockets may take so long. This is processor time: what other processes take in
# between says nothing about what comes next.
_PASS_SECONDS: Final = 0.002
# What costly ones took is expected again for a while, less after each pass of cheap ones: they may come in turn.
_REMEMBERED: Final = 0.75
# With more than that waiting nobody has several requests decoded at once: as bytes they cost less than as tasks, which
# the garbage collector looks through again and again.
_CROWD: Final = 2 * _AT_ONCE


def _computing_seconds() -> float:
    # looked up with each call: a simulation has its own
    return time.thread_time()


class Pace:
    """How many of those who wait go on between two looks at the sockets: as many as 2 ms are enough for.

    That is worked out from the ones before, who took so long until each of them waited again: what they do is the
    business of others, and may take 20 microseconds or a millisecond.
    """

    def __init__(self, most: int, now: Callable[[], float] | None = None) -> None:
        self._most = most
        self._now = now or _computing_seconds
        self._began = 0.0
        # what one of them takes
        self._each = 0.0
        # how many may go on next
        self.count = most

    def __repr__(self) -> str:
        return f"<Pace [{self.count} of {self._most}]>"

    def wake(self, turns: Collection[asyncio.Future[None]]) -> None:
        """Let these go on, and see how long they take."""
        # what is ready runs in this order, and nothing in between
        loop = asyncio.get_running_loop()
        loop.call_soon(self._begin)
        for turn in turns:
            turn.set_result(None)
        loop.call_soon(self._end, len(turns))

    def _begin(self) -> None:
        self._began = self._now()

    def _end(self, count: int) -> None:
        self._each = max((self._now() - self._began) / count, self._each * _REMEMBERED)
        fitting = int(_PASS_SECONDS / self._each) if self._each else self._most
        self.count = max(1, min(fitting, self._most))


class Turns:
    """Lets so many tasks begin between two looks at the sockets; the others wait in order of arrival.

    Everything that is ready runs before the loop looks again: of two thousand that come at once nobody would be late,
    but everybody else for as long as all of them take. Whoever has many waiting stands in line once: the others do not
    wait for all of his.
    """

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = Pace(_AT_ONCE) if pace is None else pace
        # how many may still begin before the next look, and whether that one is due
        self._left = self._pace.count
        self._is_due = False
        # peers and what each has waiting, in order of arrival; a peer of None has one, nobody an empty list
        self._lines: deque[tuple[object, list[asyncio.Future[None]]]] = deque()
        # the same lists by peer
        self._line_of: dict[object, list[asyncio.Future[None]]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __repr__(self) -> str:
        return f"<Turns [{self._left} of {self._pace.count} left | {len(self)} waiting]>"

    async def begin(self, peer: object = None) -> None:
        """Return when it is the caller's turn; at once, unless many have begun since the last look.

        Those of one peer, if it is named, come one after the other, with one of each other peer in between.
        """
        self._renew_later()
        if self._left:
            self._left -= 1
            return
        await self._turn_of(peer)

    def has_waiting(self, peer: object) -> bool:
        """True if a request of this peer waits for its turn."""
        return peer in self._line_of

    @property
    def is_crowded(self) -> bool:
        """True if so many requests wait that no peer should have several decoded."""
        return self._waiting > _CROWD

    def _turn_of(self, peer: object) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting += 1
        if peer is not None and peer in self._line_of:
            self._line_of[peer].append(turn)
        else:
            line = [turn]
            self._lines.append((peer, line))
            if peer is not None:
                self._line_of[peer] = line
        return turn

    def _renew_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        begun = self._next(self._pace.count)
        self._left = self._pace.count - len(begun)
        self._is_due = bool(begun)
        if begun:
            self._pace.wake(begun)
            asyncio.get_running_loop().call_soon(self._renew)

    def _next(self, count: int) -> list[asyncio.Future[None]]:
        begun: list[asyncio.Future[None]] = []
        while self._lines and len(begun) < count:
            peer, line = self._lines.popleft()
            turn = line.pop(0)
            self._waiting -= 1
            if line:
                self._lines.append((peer, line))
            elif peer is not None:
                del self._line_of[peer]
            # cancelled ones take nobody's place
            if not turn.done():
                begun.append(turn)
        return begun


async def run_in_steps(work: Steps[T]) -> T:
    """Run the work to its end, letting the loop run between its steps."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)


async def in_parts(items: Collection[T], size: int) -> AsyncIterator[tuple[T, ...]]:
    """The items, so many at a time, letting the loop run in between."""
    taken = 0
    for part in parts(items, size):
        yield part
        taken += len(part)
        if taken < len(items):
            await asyncio.sleep(0)
