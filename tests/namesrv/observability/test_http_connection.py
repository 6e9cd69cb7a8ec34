"""What does an HTTP server say to peers that are odd, slow or hostile?"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest

from namesrv.observability.http_connection import HttpLimits, Response, plain
from namesrv.observability.http_listener import HttpListener
from tests.support.guard import GUARD_SECONDS
from tests.support.raw_peer import RawPeer, until

GET = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n"


class Site:
    """A listening server with a short page, a large one, one that waits and one with a bug."""

    def __init__(self, tasks: asyncio.TaskGroup, limits: HttpLimits) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        # lets the waiting page answer
        self.go = asyncio.Event()
        self.asked: list[str] = []
        self.ended: list[str] = []
        pages = {"/page": self._page, "/large": self._large, "/wait": self._wait, "/bug": self._bug}
        self.listener = HttpListener(pages, tasks.create_task, self.counts, limits)
        self.address = ("", 0)
        self._peers: list[RawPeer] = []

    async def _page(self, query: str) -> Response:
        self.asked.append(query)
        return plain(HTTPStatus.OK, f"page {query}\n")

    async def _large(self, _: str) -> Response:
        return Response(HTTPStatus.OK, b"x" * 8_000_000)

    async def _wait(self, query: str) -> Response:
        self.asked.append(query)
        try:
            await self.go.wait()
        finally:
            self.ended.append(query)
        return plain(HTTPStatus.OK, f"waited {query}\n")

    async def _bug(self, _: str) -> Response:
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

    def close(self) -> None:
        """End it, and the peers."""
        self.listener.close()
        for peer in self._peers:
            peer.writer.transport.abort()


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Site]:
    """A site, until the block ends."""
    async with asyncio.timeout(GUARD_SECONDS), asyncio.TaskGroup() as tasks:
        site = Site(tasks, HttpLimits(**limits))
        (site.address,) = await site.listener.listen("127.0.0.1", 0)
        try:
            yield site
        finally:
            site.close()
            await until(lambda: not site.listener._connections)


async def read_answer(peer: RawPeer) -> tuple[bytes, bytes]:
    """Status line and body of the next answer."""
    head = await peer.reader.readuntil(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    (length,) = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")]
    return lines[0], await peer.reader.readexactly(length)


async def test_answer_is_plain_http() -> None:
    """Status, length, kind and body; nothing is to be cached."""
    async with serving() as site:
        answer = await site.ask(b"GET /page?a=1&b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"HTTP/1.1 200 OK" == head.split(b"\r\n")[0]
    assert {b"content-type: text/plain; charset=utf-8", b"content-length: 11", b"cache-control: no-store"} <= set(
        head.lower().split(b"\r\n")
    )
    assert b"page a=1&b\n" == body
    assert {("/page", 200): 1} == site.counts


async def test_connection_is_kept() -> None:
    """One question after the other, also when they come at once, in their order."""
    async with serving() as site:
        peer = await site.connect()
        for query in (b"1", b"2"):
            peer.send(b"GET /page?" + query + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (b"HTTP/1.1 200 OK", b"page " + query + b"\n") == await read_answer(peer)
        peer.send(b"".join(b"GET /page?%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(3, 6)))
        assert [b"page 3\n", b"page 4\n", b"page 5\n"] == [(await read_answer(peer))[1] for _ in range(3)]


async def test_http_1_0() -> None:
    """Is answered, and the connection closed."""
    async with serving() as site:
        assert (await site.ask(b"GET /page HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\npage \n")


async def test_head() -> None:
    """The same head without a body, and the connection stays in step."""
    async with serving() as site:
        peer = await site.connect()
        peer.send(b"HEAD /page HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        head = await peer.reader.readuntil(b"\r\n\r\n")
        assert b"content-length: 6" in head.lower()
        assert (b"HTTP/1.1 200 OK", b"page \n") == await read_answer(peer)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n", b"404 Not Found"),
        (b"GET /page/ HTTP/1.1\r\nHost: x\r\n\r\n", b"404 Not Found"),
        (b"GET http://x/page HTTP/1.1\r\nHost: x\r\n\r\n", b"404 Not Found"),
        (b"POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", b"404 Not Found"),
        (b"POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", b"405 Method Not Allowed"),
        (b"OPTIONS /page HTTP/1.1\r\nHost: x\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /page HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /page HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", b"400 Bad Request"),
        (b"GET /page HTTP/2.0\r\nHost: x\r\n\r\n", b"505 HTTP Version Not Supported"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"505 HTTP Version Not Supported"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400 Bad Request"),
        (b"GET /page HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"400 Bad Request"),
        (b"GET /page HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 9000, b"431 Request Header Fields Too Large"),
        (b"GET /bug HTTP/1.1\r\nHost: x\r\n\r\n", b"500 Internal Server Error"),
    ],
)
async def test_other_statuses(request_: bytes, status: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """What is not there, not allowed, not HTTP, too large, or our own fault; the next peer is served."""
    async with serving() as site:
        peer = await site.connect()
        peer.send(request_)
        assert b"HTTP/1.1 " + status == (await read_answer(peer))[0]

        assert b"page" in await site.ask(b"GET /page HTTP/1.0\r\n\r\n")
    assert [b"bug" in request_] == [bool(caplog.records)]


async def test_allowed_methods_are_named() -> None:
    """As HTTP wants it of a 405."""
    async with serving() as site:
        answer = await site.ask(b"PUT /page HTTP/1.0\r\n\r\n")

    assert b"allow: get, head\r\n" in answer.lower()


async def test_body_ends_the_connection() -> None:
    """Nobody reads bodies here: what follows one is not taken for a request."""
    async with serving() as site:
        answer = await site.ask(b"GET /page HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + GET)

    assert 1 == answer.count(b"HTTP/1.1 200 OK")
    assert b"connection: close\r\n" in answer.lower()
    assert [""] == site.asked


async def test_peer_that_sends_its_request_slowly() -> None:
    """Has so much time for it, however steadily it sends, and is closed without an answer."""
    async with serving(request_seconds=0.3) as site:
        peer = await site.connect()
        started = asyncio.get_running_loop().time()
        while not peer.reader.at_eof():
            peer.send(b"x")
            try:
                await asyncio.wait_for(peer.reader.read(1), 0.02)
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert 0.2 <= asyncio.get_running_loop().time() - started <= 5.0
        assert {} == site.counts


async def test_peer_that_says_nothing() -> None:
    """Is closed after as much time."""
    async with serving(request_seconds=0.2) as site:
        assert await (await site.connect()).at_end()


async def test_peer_that_says_nothing_more() -> None:
    """Is closed when its next request does not come."""
    async with serving(idle_seconds=0.2) as site:
        peer = await site.connect()
        peer.send(GET)
        await read_answer(peer)

        assert await peer.at_end()


async def test_peer_that_sends_half_of_its_second_request() -> None:
    """Has as much time for the rest as for a first one, not as long as one that is idle."""
    async with serving(request_seconds=0.3) as site:
        peer = await site.connect()
        peer.send(GET + GET[:10])
        await read_answer(peer)

        assert await peer.at_end()


async def test_peer_that_does_not_read() -> None:
    """Is closed after a while, and its answer forgotten."""
    async with serving(write_seconds=0.3) as site:
        await (peer := await site.connect(receive_buffer=4096)).reader.read(0)
        peer.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: site.counts)

        await until(lambda: not site.listener._connections)


async def test_peer_that_reads_slowly_is_asked_nothing_more() -> None:
    """While its answer is unread, further requests wait in its socket; then all are answered."""
    async with serving() as site:
        peer = await site.connect(receive_buffer=4096)
        peer.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        await until(lambda: site.counts)
        assert [] == site.asked

        assert 8_000_000 == len((await read_answer(peer))[1])
        assert (b"HTTP/1.1 200 OK", b"page \n") == await read_answer(peer)


async def test_peer_that_hangs_up_meanwhile() -> None:
    """Nobody works on for it."""
    async with serving() as site:
        peer = await site.connect()
        peer.send(b"GET /wait?gone HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: site.asked)

        peer.reset()

        await until(lambda: ["gone"] == site.ended)


async def test_peer_that_ends_its_half() -> None:
    """It has said all that it wants to say, and gets its answer."""
    async with serving() as site:
        peer = await site.connect()
        peer.send(b"GET /wait?half HTTP/1.1\r\nHost: x\r\n\r\n")
        peer.writer.write_eof()
        await until(lambda: site.asked)

        site.go.set()

        assert (b"HTTP/1.1 200 OK", b"waited half\n") == await read_answer(peer)
        assert await peer.at_end()


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

        assert (b"HTTP/1.1 200 OK", b"page \n") == await read_answer(newcomer)
        assert await second.at_end()
        first.send(GET)
        assert (b"HTTP/1.1 200 OK", b"page \n") == await read_answer(first)
        site.go.set()
        assert (b"HTTP/1.1 200 OK", b"waited busy\n") == await read_answer(busy)
        assert 3 == len(site.listener._connections)


async def test_nobody_comes_in_while_all_are_busy() -> None:
    """The one too many is closed, and the others get their answers."""
    async with serving(max_connections=2) as site:
        busy = [await site.connect() for _ in range(2)]
        for peer in busy:
            peer.send(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: len(site.asked) == 2)

        assert await (await site.connect()).at_end()

        site.go.set()
        assert [b"waited \n"] * 2 == [(await read_answer(peer))[1] for peer in busy]


async def test_closing_ends_everything() -> None:
    """Connections that wait and answers in work."""
    async with serving() as site:
        idle, busy = await site.connect(), await site.connect()
        idle.send(GET)
        await read_answer(idle)
        busy.send(b"GET /wait?cut HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: len(site.asked) == 2)

        site.listener.close()

        assert await idle.at_end()
        assert await busy.at_end()
        await until(lambda: ["cut"] == site.ended)
        with pytest.raises(ConnectionRefusedError):
            await site.connect()
