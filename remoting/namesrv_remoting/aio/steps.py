"""Long work on the loop, step by step."""

import asyncio
from collections.abc import AsyncIterator, Collection, Generator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


async def run_in_steps(work: Generator[None, None, T]) -> T:
    """Run the work to its end, letting the loop run between its steps."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)


async def in_parts(items: Collection[T], size: int) -> AsyncIterator[list[T]]:
    """The items, so many at a time, letting the loop run in between."""
    left, taken = iter(items), 0
    while part := list(islice(left, size)):
        yield part
        taken += len(part)
        if taken < len(items):
            await asyncio.sleep(0)
