"""Small tools for tasks: do something whole, cancel and wait, report bugs, call code of the broker."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Do all of it or nothing: a caller who is cancelled meanwhile waits until it is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            # fetched, so that asyncio does not report it
            task.exception()
        raise


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel a task, and return when it has ended."""
    task.cancel()
    await asyncio.wait([task])


def report_bug(task: asyncio.Task[None]) -> None:
    """Say it when a task that never ends has ended; for `add_done_callback`."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("agent task %s crashed", task.get_name(), exc_info=task.exception())


def call_back(callback: Callable[[T], None], news: T) -> None:
    """Tell the broker; whatever its own code does then, the connections live."""
    try:
        callback(news)
    except Exception:
        logger.exception("callback %r failed", callback)
