"""TCP proxy that cuts, stalls and heals the way between two peers."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Self

from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS
from namesrv_testing.ports import held_port
from tests.support.fake_clock import settle


class TcpProxy:
    """Forwards 127.0.0.1:port to a target; an async context manager.

    `cut()` closes all connections and refuses new ones. `stall()` keeps connections open, accepts new ones, and
    forwards nothing, not even an end. `heal()` undoes both. `switch()` continues open connections with another target,
    as a load balancer does. `closing` is the number of next connections that are closed at once, as a server at its
    limit does. With a `delay`, a function of no arguments, data is forwarded so many seconds late.
    """

    def __init__(self, target: tuple[str, int], delay: Callable[[], float] | None = None) -> None:
        self.target = target
        self._delay = delay
        self.port = 0
        # connections accepted so far
        self.accepted = 0
        self.closing = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._server: asyncio.Server | None = None
        # holds the port, also while the proxy does not listen
        self._held = contextlib.ExitStack()
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        state = "cut" if self._is_cut else "flows" if self._flows.is_set() else "stalled"
        return f"<TcpProxy [{self.address} -> {self.target} | {state} | {self.connections} connections]>"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._open)

    async def __aenter__(self) -> Self:
        self.port = self._held.enter_context(held_port())
        # another test's server may have used this port with another protocol
        PROCESS_PROTOCOLS.forget(self.address)
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # an aborted transport closes a moment later
        await settle()
        self._held.close()

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._is_cut = True
        if self._server is not None:
            self._server.close()
        for connection in self._open:
            connection.abort()
        # stalled connections end, too
        self._flows.set()

    def stall(self) -> None:
        """Forward nothing, and close nothing."""
        self._flows.clear()

    async def heal(self) -> None:
        self._flows.set()
        if self._is_cut:
            self._is_cut = False
            await self._listen()

    def switch(self, target: tuple[str, int]) -> None:
        """Forward to another target from now on: the old target sees closed connections, the peers notice nothing."""
        self.target = target
        for connection in self._open:
            connection.switch()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._taken, "127.0.0.1", self.port)

    def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.closing:
            self.closing -= 1
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(_Connection(self._flows, reader, writer, self._delay)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: "_Connection") -> None:
        self._open.add(connection)
        try:
            while connection.is_switched and not connection.is_aborted:
                connection.is_switched = False
                await self._flows.wait()
                if not connection.is_switched and not connection.is_aborted:
                    await connection.forward(*await asyncio.open_connection(*self.target))
        except OSError:
            # the target does not listen
            pass
        finally:
            connection.abort()
            self._open.discard(connection)


class _Connection:
    """One accepted connection, and its connection to the target."""

    def __init__(
        self,
        flows: asyncio.Event,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        delay: Callable[[], float] | None,
    ) -> None:
        self._delay = delay
        self.is_switched = True
        self.is_aborted = False
        self._flows = flows
        self._near = reader, writer
        self._far: asyncio.StreamWriter | None = None

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward both ways until either side ends."""
        self._far = writer
        if self.is_switched or self.is_aborted:
            # switched or aborted while the target was dialled
            writer.transport.abort()
            return
        pumps = [asyncio.ensure_future(self._pump(*way)) for way in ((self._near[0], writer), (reader, self._near[1]))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if not self.is_switched:
                # deliver the bytes on their way
                for side in (self._near[1], writer):
                    side.close()
                    with contextlib.suppress(OSError):
                        await side.wait_closed()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = await reader.read(65536)
                if self._delay is not None:
                    await asyncio.sleep(self._delay())
                await self._flows.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()

    def switch(self) -> None:
        """End only the connection to the target."""
        self.is_switched = True
        if self._far is not None:
            self._far.transport.abort()

    def abort(self) -> None:
        self.is_aborted = True
        self._near[1].transport.abort()
        if self._far is not None:
            self._far.transport.abort()
