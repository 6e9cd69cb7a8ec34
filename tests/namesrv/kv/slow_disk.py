"""Disk whose writes the test times, and whose failures it chooses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.fake_clock import settle

T = TypeVar("T")


class Disk(ThreadPoolExecutor):
    """The loop's threads, except that a write happens when the test says so."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self._writes: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Note the write."""
        future: Future[T] = Future()
        self._writes.append((future, lambda: fn(*args, **kwargs)))
        return future

    @property
    def waiting(self) -> int:
        """How many writes were asked for and not done yet."""
        return len(self._writes)

    async def write(self) -> None:
        """Do the write that waits."""
        future, work = self._writes.pop(0)
        try:
            future.set_result(work())
        except OSError as error:
            future.set_exception(error)
        await settle()


@asynccontextmanager
async def slow_disk() -> AsyncIterator[Disk]:
    """A disk of which every write is a step of the test."""
    disk = Disk()
    asyncio.get_running_loop().set_default_executor(disk)
    yield disk
    assert 0 == disk.waiting


async def begin(*changes: Coroutine[Any, Any, T]) -> list[asyncio.Task[T]]:
    """Start changes, in this order, and let them come as far as they can."""
    tasks = [asyncio.create_task(change) for change in changes]
    await settle()
    return tasks


def take_away(directory: Path) -> None:
    """The data directory is gone, as after a mount that failed."""
    directory.rename(directory.with_name("away"))


def bring_back(directory: Path) -> None:
    """And here it is again, as it was."""
    directory.with_name("away").rename(directory)
