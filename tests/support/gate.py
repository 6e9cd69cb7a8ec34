"""Handler that holds a request up until the test opens a gate."""

import asyncio

from namesrv_remoting.aio.dispatch import Reply, Request


class Gate:
    """A handler that notes who came, and answers only when it is opened."""

    def __init__(self) -> None:
        self.came: list[int | None] = []
        self.done: list[int | None] = []
        self.cancelled: list[int | None] = []
        self._opened = asyncio.Event()

    def open(self) -> None:
        """Let everybody through."""
        self._opened.set()

    async def __call__(self, request: Request) -> Reply:
        """Wait."""
        opaque = request.command.opaque
        self.came.append(opaque)
        try:
            await self._opened.wait()
        except asyncio.CancelledError:
            self.cancelled.append(opaque)
            raise
        self.done.append(opaque)
        return Reply()
