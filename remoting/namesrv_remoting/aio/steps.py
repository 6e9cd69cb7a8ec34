"""Long work on the loop, step by step."""

import asyncio
from collections.abc import Generator
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
