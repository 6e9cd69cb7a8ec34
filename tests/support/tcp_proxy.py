"""TCP proxy that cuts, stalls and heals the way between two peers."""

import asyncio
import contextlib
from typing import Self

from tests.support.fake_clock import settle


class TcpProxy:
    """Forwards 127.0.0.1:port to a target until it is told otherwise; an async context manager.

    `cut()` closes all connections and refuses new ones, `stall()` keeps them open and forwards nothing, not even an end
    (a black hole: new ones are taken and starved too), `heal()` undoes both. `switch()` goes on with another target
    behind the connections that there are, as a balancer does.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.port = 0
        # connections ever taken
        self.accepted = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        state = "cut" if self._is_cut else "flows" if self._flows.is_set() else "stalled"
        return f"<TcpProxy [{self.address} -> {self.target} | {state} | {len(self._connections)} connections]>"

    @property
    def address(self) -> str:
        """Where to connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._connections)

    async def __aenter__(self) -> Self:
        """Listen."""
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close everything."""
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # an aborted transport is gone a moment later
        await settle()

    def cut(self) -> None:
        """Close all connections, and refuse new ones."""
        self._is_cut = True
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in self._connections:
            connection.abort()
        # what was stalled ends, too
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

    def switch(self, target: tuple[str, int]) -> None:
        """Forward to another target from now on: the old one sees the end of its connections, our peers see nothing."""
        self.target = target
        for connection in self._connections:
            connection.switch()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection = _Connection(self, reader, writer)
        self._connections.add(connection)
        try:
            await connection.run()
        except (OSError, asyncio.CancelledError):
            # the target is not there; or the test is over, and a stream's task that is cancelled is reported
            pass
        finally:
            connection.abort()
            self._connections.discard(connection)

    async def flowing(self) -> None:
        """Return when something may pass."""
        await self._flows.wait()


class _Connection:
    """One connection that was taken, and the one to the target that goes on from it."""

    def __init__(self, proxy: TcpProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._far: asyncio.StreamWriter | None = None
        self._is_switched = True
        self._is_aborted = False

    async def run(self) -> None:
        """Forward both ways until either side ends."""
        while self._is_switched and not self._is_aborted:
            self._is_switched = False
            await self._proxy.flowing()
            if self._has_news():
                continue
            reader, self._far = await asyncio.open_connection(*self._proxy.target)
            if self._has_news():
                # while it was dialled
                self._far.transport.abort()
                continue
            up = asyncio.ensure_future(self._pump(self._reader, self._far))
            down = asyncio.ensure_future(self._pump(reader, self._writer))
            try:
                await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
                if not self._is_switched:
                    # whatever was on its way arrives
                    await self._drained()
            finally:
                up.cancel()
                down.cancel()
                await asyncio.wait((up, down))
                self._far.transport.abort()

    def _has_news(self) -> bool:
        return self._is_switched or self._is_aborted

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = await reader.read(65536)
                await self._proxy.flowing()
                if not data:
                    return
                writer.write(data)
                await writer.drain()

    async def _drained(self) -> None:
        for writer in (self._writer, self._far):
            assert writer is not None
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def switch(self) -> None:
        """End the far side only."""
        self._is_switched = True
        if self._far is not None:
            self._far.transport.abort()

    def abort(self) -> None:
        """End both sides at once."""
        self._is_aborted = True
        for writer in (self._writer, self._far):
            if writer is not None:
                writer.transport.abort()
