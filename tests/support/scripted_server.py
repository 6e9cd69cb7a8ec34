"""A server played by hand: the test accepts connections, and reads and writes each of them itself.

Frames are encoded and decoded here without the code under test.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import msgpack

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS
from namesrv_remoting.command import RemotingCommand
from tests.support.fake_clock import GUARD_SECONDS, settle
from tests.support.raw_peer import Connection
from tests.support.spelling import JSON, NATIVE, cut

HOST = "127.0.0.1"
Call = asyncio.Task[RemotingCommand]


class ScriptedRequest(NamedTuple):
    """A frame sent by a client: header members (a list in the native header), and body."""

    header: Any
    body: bytes

    @property
    def opaque(self) -> int:
        return int(self.header["opaque"] if isinstance(self.header, dict) else self.header[1])

    @property
    def code(self) -> int:
        return int(self.header["code"] if isinstance(self.header, dict) else self.header[0])


class Peer(Connection):
    """One accepted connection, seen from the server."""

    @property
    def address(self) -> tuple[str, int]:
        name = self.writer.get_extra_info("peername")
        return name[0], name[1]

    async def receive(self) -> ScriptedRequest:
        serialize_type, header, body = await self.receive_frame()
        return ScriptedRequest(msgpack.unpackb(header) if serialize_type == NATIVE else json.loads(header), body)

    def answer(self, opaque: int, body: bytes = b"", **members: object) -> None:
        """Write a response with a JSON header, by default a success."""
        self.send(frame({"code": 0, "flag": 1, "opaque": opaque, **members}, body))

    async def gone(self) -> None:
        """Return when the client has ended the connection, after any further bytes."""
        with contextlib.suppress(ConnectionResetError):
            await self.reader.read()


def frame(header: Mapping[str, object], body: bytes = b"") -> bytes:
    """A frame with a JSON header."""
    return cut(JSON, json.dumps(header).encode(), body)


class ScriptedServer:
    """Listens on a free port or on a socket bound by the test, and returns accepted connections in order."""

    def __init__(self, host: str = HOST, *, bound: socket.socket | None = None) -> None:
        self._host = host
        self._bound = bound
        self._accepted: asyncio.Queue[Peer] = asyncio.Queue()
        self._peers: list[Peer] = []
        self._server: asyncio.Server | None = None
        self._guard = asyncio.timeout(GUARD_SECONDS)
        self.port = 0

    @property
    def address(self) -> str:
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._peers)

    async def accept(self) -> Peer:
        return await self._accepted.get()

    async def __aenter__(self) -> Self:
        await self._guard.__aenter__()
        place: dict[str, Any] = {"host": self._host, "port": 0} if self._bound is None else {"sock": self._bound}
        self._server = await asyncio.start_server(self._connected, **place)
        self.port = self._server.sockets[0].getsockname()[1]
        # another test's server may have used this port with another protocol
        PROCESS_PROTOCOLS.forget(self.address)
        return self

    async def __aexit__(self, *raised: object) -> None:
        assert self._server is not None
        await self.stop()
        await self._server.wait_closed()
        await self._guard.__aexit__(*raised)  # type: ignore[arg-type]  # type, value, traceback

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        # connections that the kernel has already accepted still reach `_connected`
        await settle()
        self.hang_up()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self._peers.append(peer)
        self._take(peer)

    def _take(self, peer: Peer) -> None:
        self._accepted.put_nowait(peer)

    def hang_up(self) -> None:
        """Abort all connections."""
        for peer in self._peers:
            peer.writer.transport.abort()


def ask(client: RemotingClient, code: int = 106, timeout_seconds: float = 3.0, **members: Any) -> Call:
    """Send a request in a task."""
    return asyncio.create_task(client.invoke(code, timeout_seconds=timeout_seconds, **members))


async def ask_and_answer(client: RemotingClient, server: ScriptedServer) -> Peer:
    """Open a connection with one answered request; return the connection."""
    call = ask(client)
    peer = await server.accept()
    peer.answer((await peer.receive()).opaque)
    await call
    return peer
