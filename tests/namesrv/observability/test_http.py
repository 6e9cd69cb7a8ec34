"""The HTTP port with malformed, slow and hostile peers."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from namesrv.net.tls.detector import ServerTls
from namesrv.observability.http import LIMITS, HttpListener
from namesrv.settings.model import Settings
from namesrv_remoting.aio.tls import server_context
from namesrv_runtime.http_connection import HttpLimits
from tests.support.certificates import Authority
from tests.support.fake_clock import GUARD_SECONDS, until
from tests.support.raw_peer import RawPeer

GET = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n"


class Site:
    """A listening server with four pages: short, large, waiting and failing."""

    def __init__(self, limits: HttpLimits, tls: ServerTls | None) -> None:
        # lets the waiting page respond
        self.go = asyncio.Event()
        self.requested: list[str] = []
        pages = {"/page": self._page, "/large": self._large, "/wait": self._wait, "/bug": self._bug}
        self.counts: Counter[tuple[str, int | str]] = Counter()
        app = Starlette(routes=[Route(path, page) for path, page in pages.items()])
        self.listener = HttpListener(app, self.counts, limits, tls=tls)
        self.address = ("", 0)
        self._peers: list[RawPeer] = []

    async def _page(self, request: Request) -> PlainTextResponse:
        self.requested.append(request.url.query)
        return PlainTextResponse(f"page {request.url.query}\n")

    async def _large(self, _: Request) -> PlainTextResponse:
        self.requested.append("large")
        return PlainTextResponse(b"x" * 8_000_000)

    async def _wait(self, request: Request) -> PlainTextResponse:
        self.requested.append(request.url.query)
        await self.go.wait()
        return PlainTextResponse(f"waited {request.url.query}\n")

    async def _bug(self, _: Request) -> PlainTextResponse:
        raise RuntimeError("a bug")

    async def connect(self, **options: Any) -> RawPeer:
        """A connection to the site."""
        peer = await RawPeer.connect(self.address, **options)
        self._peers.append(peer)
        return peer

    async def ask(self, request: bytes) -> bytes:
        """All bytes of the response on a new connection, until the server closes it."""
        peer = await self.connect()
        peer.send(request)
        return await peer.reader.read()

    async def close(self) -> None:
        """Close the listener and the peers."""
        await self.listener.close()
        for peer in self._peers:
            peer.writer.transport.abort()


@asynccontextmanager
async def serving(*, tls: ServerTls | None = None, **limits: Any) -> AsyncIterator[Site]:
    """A site that is open within the block."""
    async with asyncio.timeout(GUARD_SECONDS):
        site = Site(replace(LIMITS, **limits), tls)
        (site.address,) = await site.listener.listen("127.0.0.1", 0)
        try:
            yield site
        finally:
            await site.close()
            await until(lambda: not site.listener.connections)


async def read_response(peer: RawPeer) -> tuple[bytes, bytes]:
    """Status line and body of the next response."""
    head = await peer.reader.readuntil(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    (length,) = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")]
    return lines[0], await peer.reader.readexactly(length)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n", b"404 Not Found"),
        (b"POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", b"405 Method Not Allowed"),
        (b"GET /page HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400 Bad Request"),
        (b"GET /page HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 9000, b"400 Bad Request"),
        (b"GET /bug HTTP/1.1\r\nHost: x\r\n\r\n", b"500 Internal Server Error"),
    ],
)
async def test_error_statuses(request_: bytes, status: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Each faulty request gets its status, and the next peer is served."""
    async with serving() as site:
        peer = await site.connect()
        peer.send(request_)
        assert (await peer.reader.readline()).startswith(b"HTTP/1.1 " + status)

        assert b"page" in await site.ask(b"GET /page HTTP/1.0\r\n\r\n")
    # faulty requests are counted, and only a bug of the server is logged
    assert [bool(caplog.records)] == [b"bug" in request_]
    assert bool(site.counts) == (b"400" in status)


@pytest.mark.parametrize("sent", [b"", b"G", GET[:-2], GET + GET[:-2]])
async def test_incomplete_head_ends_the_connection(sent: bytes) -> None:
    """A head must be complete in time, started or not; earlier complete requests are answered."""
    async with serving(request_seconds=0.05) as site:
        received = b""
        with contextlib.suppress(ConnectionResetError):
            received = await site.ask(sent)

    assert received.count(b"page \n") == sent.count(b"\r\n\r\n")


async def test_incomplete_head_of_a_later_request_ends_the_connection() -> None:
    """The request after a response has a deadline of its own."""
    async with serving(request_seconds=0.05) as site:
        peer = await site.connect()
        peer.send(GET)
        await read_response(peer)
        peer.send(b"G")

        assert await peer.at_end()


async def test_slow_request_is_closed() -> None:
    """A request must be complete within its deadline, even if its bytes arrive steadily."""
    async with serving(request_seconds=0.3) as site:
        peer = await site.connect()
        while not peer.reader.at_eof():
            peer.send(b"x")
            try:
                await asyncio.wait_for(peer.reader.read(1), 0.02)
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert site.counts == {}


async def test_peer_that_reads_slowly_gets_its_response() -> None:
    """A slow reader gets its whole response, and its pipelined request is not handled."""
    async with serving() as site:
        peer = await site.connect(receive_buffer=4096)
        peer.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        await until(lambda: site.requested)

        assert len((await read_response(peer))[1]) == 8_000_000
        assert await peer.at_end()
        assert len(site.requested) == 1


@pytest.mark.parametrize("sent", [b"", b"G"], ids=["quiet", "begins another request"])
async def test_peer_that_does_not_read_is_closed(sent: bytes) -> None:
    """The response must be read within its deadline, whatever the peer sends meanwhile."""
    async with serving(write_seconds=0.1) as site:
        peer = await site.connect(receive_buffer=4096)
        peer.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await peer.reader.readuntil(b"xxxx")
        peer.send(sent)

        await until(lambda: not site.listener.connections)


async def test_request_that_begins_before_the_response_is_read_has_a_deadline() -> None:
    """A peer that reads its response late, and has begun another request, has to complete that one in time."""
    async with serving(request_seconds=0.1) as site:
        peer = await site.connect(receive_buffer=4096)
        peer.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await peer.reader.readuntil(b"xxxx")
        peer.send(b"G")

        await peer.reader.readexactly(8_000_000 - 4)
        assert await peer.at_end()


async def test_connection_beyond_the_limit_replaces_the_idlest() -> None:
    """A connection that waits for a response, and one with a later request, stay open."""
    async with serving(max_connections=3) as site:
        busy, first, second = [await site.connect() for _ in range(3)]
        busy.send(b"GET /wait?busy HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: site.requested)
        first.send(GET)
        await read_response(first)

        newcomer = await site.connect()
        newcomer.send(GET)

        assert await read_response(newcomer) == (b"HTTP/1.1 200 OK", b"page \n")
        assert await second.at_end()
        first.send(GET)
        assert await read_response(first) == (b"HTTP/1.1 200 OK", b"page \n")
        site.go.set()
        assert await read_response(busy) == (b"HTTP/1.1 200 OK", b"waited busy\n")
        assert len(site.listener.connections) == 3


async def test_connection_beyond_the_limit_is_closed_while_all_are_busy() -> None:
    """The additional connection is closed, and the busy ones get their responses."""
    async with serving(max_connections=2) as site:
        busy = [await site.connect() for _ in range(2)]
        for peer in busy:
            peer.send(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: len(site.requested) == 2)

        assert await (await site.connect()).at_end()

        site.go.set()
        assert [(await read_response(peer))[1] for peer in busy] == [b"waited \n"] * 2


async def test_closing_the_listener_closes_all_connections() -> None:
    """Closing the listener closes idle and busy connections."""
    async with serving() as site:
        idle, busy = await site.connect(), await site.connect()
        idle.send(GET)
        await read_response(idle)
        busy.send(b"GET /wait?cut HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: len(site.requested) == 2)

        await site.listener.close()

        assert await idle.at_end()
        assert await busy.at_end()
        with pytest.raises(ConnectionError):
            await site.connect()


async def test_peers_without_https_are_counted(tmp_path: Path) -> None:
    """Plain HTTP on the HTTPS port counts as a bad request, and a failed handshake as `tls`."""
    issued = Authority(tmp_path).issue("server")
    files = Settings.model_validate({"tls_mode": "enforcing", **issued.server_settings}).tls_files
    async with serving(tls=ServerTls("enforcing", server_context(files, "none"))) as site:
        assert b"this port speaks HTTPS only" in await site.ask(GET)
        assert site.counts == {("other", 400): 1}

        # A TLS record with a handshake that is none.
        await site.ask(b"\x16\x03\x01\x00\x05hello")
        assert site.counts == {("other", 400): 1, ("other", "tls"): 1}
