"""Peers that connect and do not ask."""

import asyncio
from functools import partial
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from uvicorn.config import Config
from uvicorn.server import ServerState

from namesrv_console.access.connection import HttpConnection

HEAD = b"GET / HTTP/1.1\r\nhost: x\r\n"


class Impatient(HttpConnection):
    """Waits for next to nothing."""

    head_seconds = 0.05


@pytest.mark.parametrize("sent", [b"", b"G", HEAD, HEAD + b"\r\n" + HEAD])
async def test_head_that_does_not_come_ends_the_connection(sent: bytes) -> None:
    """Whether it has begun or not, and also after a request that was answered; what was asked is answered before."""
    config = Config(PlainTextResponse("answer"), http=Impatient, log_config=None, lifespan="off")
    config.load()
    made: Any = partial(Impatient, config, ServerState(), {})
    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(sent)
        try:
            received = await reader.read()
        except ConnectionResetError:
            received = b""
        assert received.count(b"answer") == sent.count(b"\r\n\r\n")
        writer.close()
