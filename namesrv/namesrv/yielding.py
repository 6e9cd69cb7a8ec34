"""Long computations and loops that yield to the event loop, so that no callback takes long."""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import TypeVar

from namesrv_remoting.bodies.base import Steps, chunked

T = TypeVar("T")


async def run_in_steps(work: Steps[T]) -> T:
    """Run the work to its end, and yield to the event loop between its steps."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)


async def in_chunks(items: Collection[T], size: int) -> AsyncIterator[tuple[T, ...]]:
    """Yield the items in chunks of `size`, and let the event loop run between two chunks."""
    taken = 0
    for chunk in chunked(items, size):
        yield chunk
        taken += len(chunk)
        if taken < len(items):
            await asyncio.sleep(0)
