"""How does a test cut, stall and heal the way between two peers?"""

import asyncio
import contextlib
from typing import Self


class TcpProxy:
    """Forwards 127.0.0.1:port to a target until it is told otherwise; an async context manager.

    `cut()` closes all connections and refuses new ones, `stall()` keeps them open and forwards nothing (a black hole:
    new ones are taken and starved too), `heal()` undoes both.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        # connections ever taken
        self.accepted = 0

    @property
    def address(self) -> str:
        """Where to connect."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        """Listen."""
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close everything."""
        await self.cut()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def cut(self) -> None:
        """Close all connections, and refuse new ones."""
        self._is_cut = True
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        self._flows.set()

    def stall(self) -> None:
        """Forward nothing, and close nothing."""
        self._flows.clear()

    async def heal(self) -> None:
        """Forward again."""
        self._flows.set()
        if self._is_cut:
            self._is_cut = False
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._flows.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._writers.add(far_writer)
            try:
                await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
            finally:
                far_writer.transport.abort()
                self._writers.discard(far_writer)
        writer.transport.abort()
        self._writers.discard(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
