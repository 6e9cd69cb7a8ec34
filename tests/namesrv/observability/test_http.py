"""The HTTP port with peers that are odd, slow or hostile."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from namesrv.observability.http import LIMITS, HttpListener
from namesrv_runtime.http_connection import HttpLimits
from tests.support.fake_clock import GUARD_SECONDS, until
from tests.support.raw_peer import RawPeer

GET = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n"


class Site:
    """A listening server with a short page, a large one, one that waits and one with a bug."""

    def __init__(self, limits: HttpLimits) -> None:
        # lets the waiting page answer
        self.go = asyncio.Event()
        self.asked: list[str] = []
        pages = {"/page": self._page, "/large": self._large, "/wait": self._wait, "/bug": self._bug}
        self.counts: Counter[tuple[str, int | str]] = Counter()
        app = Starlette(routes=[Route(path, page) for path, page in pages.items()])
        self.listener = HttpListener(app, self.counts, limits)
        self.address = ("", 0)
        self._peers: list[RawPeer] = []

    async def _page(self, request: Request) -> PlainTextResponse:
        self.asked.append(request.url.query)
        return PlainTextResponse(f"page {request.url.query}\n")

    async def _large(self, _: Request) -> PlainTextResponse:
        self.asked.append("large")
        return PlainTextResponse(b"x" * 8_000_000)

    async def _wait(self, request: Request) -> PlainTextResponse:
        self.asked.append(request.url.query)
        await self.go.wait()
        return PlainTextResponse(f"waited {request.url.query}\n")

    async def _bug(self, _: Request) -> PlainTextResponse:
        raise RuntimeError("a bug")

    async def connect(self, **options: Any) -> RawPeer:
        """A connection to it."""
        peer = await RawPeer.connect(self.address, **options)
        self._peers.append(peer)
        return peer

    async def ask(self, request: bytes) -> bytes:
        """Everything that comes back on a connection of its own, until the server closes it."""
        peer = await self.connect()
        peer.send(request)
        return await peer.reader.read()

    async def close(self) -> None:
        """End it, and the peers."""
        await self.listener.close()
        for peer in self._peers:
            peer.writer.transport.abort()


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Site]:
    """A site, until the block ends."""
    async with asyncio.timeout(GUARD_SECONDS):
        site = Site(replace(LIMITS, **limits))
        (site.address,) = await site.listener.listen("127.0.0.1", 0)
        try:
            yield site
        finally:
            await site.close()
            await until(lambda: not site.listener.connections)


async def read_answer(peer: RawPeer) -> tuple[bytes, bytes]:
    """Status line and body of the next answer."""
    head = await peer.reader.readuntil(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    (length,) = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")]
    return lines[0], await peer.reader.readexactly(length)


async def test_connection_is_kept() -> None:
    """It serves one request after another; when several come at once the first is answered, and then it is closed."""
    async with serving() as site:
        peer = await site.connect()
        for query in (b"1", b"2"):
            peer.send(b"GET /page?" + query + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (b"HTTP/1.1 200 OK", b"page " + query + b"\n") == await read_answer(peer)
        peer.send(b"".join(b"GET /page?%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(3, 6)))
        assert (await read_answer(peer))[1] == b"page 3\n"
        assert await peer.at_end()


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
async def test_other_statuses(request_: bytes, status: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """What is not there, not allowed, not HTTP, too large, or our own fault; the next peer is served."""
    async with serving() as site:
        peer = await site.connect()
        peer.send(request_)
        assert (await peer.reader.readline()).startswith(b"HTTP/1.1 " + status)

        assert b"page" in await site.ask(b"GET /page HTTP/1.0\r\n\r\n")
    # a stranger's mistake is counted, and only a bug of ours is worth a line
    assert [b"bug" in request_] == [bool(caplog.records)]
    assert (b"400" in status) == bool(site.counts)


async def test_noise_after_a_request_ends_the_connection_quietly(caplog: pytest.LogCaptureFixture) -> None:
    """While the answer to the request before it is still in work."""
    async with serving() as site:
        peer = await site.connect()
        peer.send(b"GET /wait?1 HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: site.asked)
        peer.send(b"\x00" * 20_000)
        site.go.set()
        await peer.reader.read()
    assert caplog.records == []


async def test_peer_that_sends_its_request_slowly() -> None:
    """Has so much time for it, however steadily it sends, and is closed without an answer."""
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


@pytest.mark.parametrize(
    ("limits", "sent", "answers"),
    [
        ({"request_seconds": 0.2}, b"", 0),
        ({"idle_seconds": 0.2}, GET, 1),
        ({"request_seconds": 0.3}, GET + GET[:10], 1),
    ],
    ids=["nothing", "nothing more", "half of its second request"],
)
async def test_peer_that_says(limits: dict[str, float], sent: bytes, answers: int) -> None:
    """Is closed after a while; for a second request it has as much time as for a first one, not as if it were idle."""
    async with serving(**limits) as site:
        peer = await site.connect()
        peer.send(sent)
        for _ in range(answers):
            await read_answer(peer)

        assert await peer.at_end()


async def test_peer_that_does_not_read() -> None:
    """Is closed after a while, and its answer forgotten."""
    async with serving(write_seconds=0.3) as site:
        await (peer := await site.connect(receive_buffer=4096)).reader.read(0)
        peer.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: site.asked)

        await until(lambda: not site.listener.connections)


async def test_peer_that_reads_slowly_gets_its_answer() -> None:
    """All of it, and nothing more is done for a peer that asks on meanwhile."""
    async with serving() as site:
        peer = await site.connect(receive_buffer=4096)
        peer.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        await until(lambda: site.asked)

        assert len((await read_answer(peer))[1]) == 8_000_000
        assert await peer.at_end()
        assert len(site.asked) == 1


async def test_one_connection_too_many_takes_the_place_of_the_idlest() -> None:
    """Who waits for an answer keeps its place, and so does who asked last."""
    async with serving(max_connections=3) as site:
        busy, first, second = [await site.connect() for _ in range(3)]
        busy.send(b"GET /wait?busy HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: site.asked)
        first.send(GET)
        await read_answer(first)

        newcomer = await site.connect()
        newcomer.send(GET)

        assert await read_answer(newcomer) == (b"HTTP/1.1 200 OK", b"page \n")
        assert await second.at_end()
        first.send(GET)
        assert await read_answer(first) == (b"HTTP/1.1 200 OK", b"page \n")
        site.go.set()
        assert await read_answer(busy) == (b"HTTP/1.1 200 OK", b"waited busy\n")
        assert len(site.listener.connections) == 3


async def test_nobody_comes_in_while_all_are_busy() -> None:
    """The one too many is closed, and the others get their answers."""
    async with serving(max_connections=2) as site:
        busy = [await site.connect() for _ in range(2)]
        for peer in busy:
            peer.send(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: len(site.asked) == 2)

        assert await (await site.connect()).at_end()

        site.go.set()
        assert [(await read_answer(peer))[1] for peer in busy] == [b"waited \n"] * 2


async def test_closing_ends_everything() -> None:
    """Connections that wait and answers in work."""
    async with serving() as site:
        idle, busy = await site.connect(), await site.connect()
        idle.send(GET)
        await read_answer(idle)
        busy.send(b"GET /wait?cut HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: len(site.asked) == 2)

        await site.listener.close()

        assert await idle.at_end()
        assert await busy.at_end()
        with pytest.raises(ConnectionError):
            await site.connect()
