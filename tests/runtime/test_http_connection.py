"""Slow peers of a uvicorn server; tests/namesrv/observability/test_http.py has other hostile ones."""

import asyncio
from functools import partial

import pytest
from starlette.responses import PlainTextResponse
from uvicorn.config import Config
from uvicorn.server import ServerState

from namesrv_runtime.http_connection import HttpConnection, HttpConnections, HttpLimits

HEAD = b"GET / HTTP/1.1\r\nhost: x\r\n"
LIMITS = HttpLimits(max_connections=10, request_seconds=0.05, idle_seconds=5.0, write_seconds=5.0)


@pytest.mark.parametrize("sent", [b"", b"G", HEAD, HEAD + b"\r\n" + HEAD])
async def test_incomplete_head_ends_the_connection(sent: bytes) -> None:
    """A head must be complete in time, started or not; earlier complete requests are answered."""
    config = Config(PlainTextResponse("answer"), log_config=None, lifespan="off")
    config.load()
    made = partial(HttpConnection, config, ServerState(), {}, open_connections=HttpConnections(LIMITS))
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
