"""Long work on the loop, step by step."""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import TypeVar

from namesrv_remoting.bodies.base import Steps, parts

T = TypeVar("T")


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
