"""Long work on the loop, step by step."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import Final, TypeVar

from namesrv_remoting.bodies.base import Steps, parts

T = TypeVar("T")

# Of the longest first steps, a registration's of ten topics, so many take about 5 ms.
_AT_ONCE: Final = 32


class Turns:
    """Lets so many tasks begin between two looks at the sockets; the others wait in order of arrival.

    Everything that is ready runs before the loop looks again: of two thousand that come at once nobody would be late,
    but everybody else for as long as all of them take.
    """

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        # how many may still begin before the next look
        self._left = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<Turns [{self._left} of {self._at_once} left | {len(self)} waiting]>"

    async def begin(self) -> None:
        """Return when it is the caller's turn; at once, unless many have begun since the last look."""
        loop = asyncio.get_running_loop()
        if self._left:
            if self._left == self._at_once:
                loop.call_soon(self._renew)
            self._left -= 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _renew(self) -> None:
        self._left = self._at_once
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            # cancelled ones take nobody's place
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._left < self._at_once:
            asyncio.get_running_loop().call_soon(self._renew)


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
