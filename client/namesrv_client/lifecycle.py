"""The life of a client, from its start to its end, and the tasks that run in between."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Literal

logger: Final = logging.getLogger("namesrv_client")


class ClientLifecycle:
    """The stages of a client, which begin once and in this order: new, started, closed."""

    def __init__(self) -> None:
        self._stage: Literal["new", "started", "closed"] = "new"
        # the tasks that run until the client is closed
        self._tasks: list[asyncio.Task[None]] = []
        # the task that closes the client; None before the first call of `close`
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<ClientLifecycle [{self._stage} | {len(self._tasks)} tasks]>"

    @property
    def is_started(self) -> bool:
        """True from `start` until `close` is called."""
        return self._stage == "started"

    @property
    def is_closed(self) -> bool:
        """True once `close` has been called."""
        return self._stage == "closed"

    def start(self) -> None:
        """Begin the stage `started`. A second start, or one after the end, is a RuntimeError."""
        if self.is_started:
            raise RuntimeError("the client is already started")
        if self.is_closed:
            raise _closed()
        self._stage = "started"

    def check_was_started(self) -> None:
        """Raise a RuntimeError before the start."""
        if self._stage == "new":
            raise RuntimeError("the client is not started")

    def start_tasks(self, background_coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Run coroutines until the client is closed. Raises a RuntimeError if it was closed during its start."""
        if self.is_closed:
            # `close` has ended the tasks there were, and nothing would end these.
            for coroutine in background_coroutines:
                coroutine.close()
            raise _closed()
        self._tasks = [asyncio.create_task(coroutine) for coroutine in background_coroutines]
        for task in self._tasks:
            task.add_done_callback(_report_bug)

    async def close(self, release: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End all tasks, and then run `release`, which closes files and connections.

        A second call waits for the first. Closing continues when the caller is cancelled.
        """
        self._stage = "closed"
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(release))
        await asyncio.shield(self._closing)

    async def _close(self, release: Callable[[], Coroutine[Any, Any, None]]) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await release()


def _closed() -> RuntimeError:
    return RuntimeError("the client is closed; make another one")


def _report_bug(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.critical("a route client task crashed", exc_info=task.exception())
