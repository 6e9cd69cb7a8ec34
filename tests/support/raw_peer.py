"""An asyncio peer of a server over a socket, byte by byte if the test wants it."""

import asyncio
import socket
import struct
from typing import Self

from tests.support.fake_clock import GUARD_SECONDS
from tests.support.spelling import Response, read_response


class Connection:
    """One end of a connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive_frame(self) -> tuple[int, bytes, bytes]:
        length, word = struct.unpack(">II", await self.reader.readexactly(8))
        rest = await self.reader.readexactly(length - 4)
        return word >> 24, rest[: word & 0xFFFFFF], rest[word & 0xFFFFFF :]

    async def at_end(self) -> bool:
        """True when the other side ends the connection without sending anything more.

        Raises:
            TimeoutError: the connection stays open.
        """
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        """Close gracefully: the other side reads the sent bytes, then the end."""
        self.writer.close()

    def reset(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class RawPeer(Connection):
    """One connection to a server under test."""

    @classmethod
    async def connect(cls, address: tuple[str, int], *, receive_buffer: int = 0, source: str = "") -> Self:
        """Connect; with a small receive buffer the server soon sees a slow reader.

        `source` is the local address of the connection, for example 127.0.0.2.
        """
        dialled = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        dialled.setblocking(False)  # noqa: FBT003 - positional only
        if receive_buffer:
            dialled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            if source:
                dialled.bind((source, 0))
            await asyncio.get_running_loop().sock_connect(dialled, address)
        except OSError:
            dialled.close()
            raise
        dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # reads only a few KiB ahead of the test
        reader, writer = await asyncio.open_connection(sock=dialled, limit=4096)
        return cls(reader, writer)

    @property
    def address(self) -> str:
        name = self.writer.get_extra_info("sockname")
        return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    async def send_slowly(self, data: bytes) -> None:
        """Send bytes one by one, with time for the server to read, until the server closes the connection."""
        for at in range(len(data)):
            if self.reader.at_eof() or self.writer.is_closing():
                return
            self.writer.write(data[at : at + 1])
            for _ in range(3):
                await asyncio.sleep(0)

    async def receive(self) -> Response:
        return read_response(*await self.receive_frame())

    async def ask(self, data: bytes) -> Response:
        self.send(data)
        return await self.receive()

    def widen(self) -> None:
        """Use a normal receive buffer again: a mebibyte through a window of 4 KiB takes seconds on a busy machine."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
