"""Lists of NameServers from an environment, a file, a name or a URL, kept when their source fails."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from namesrv_runtime import name_servers
from namesrv_runtime.address import parse_address
from namesrv_runtime.name_servers import NameServerList, NameServerSourceError, resolve
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, settle
from tests.support.threads import without_new_threads

# 64 KiB, and one more
TOO_LONG = b"10.0.0.1:9876\n".ljust(65_537, b"#")


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876),
        ("namesrv.example:1", "namesrv.example", 1),
        ("[fe80::1%eth0]:65535", "fe80::1%eth0", 65535),
    ],
)
def test_address_has_host_and_port(address: str, host: str, port: int) -> None:
    """An address is IPv4, a name, or IPv6 in brackets."""
    assert parse_address(address) == (host, port)


@pytest.mark.parametrize(
    "address",
    [
        *("", "9876", ":9876", "[]:9876", "namesrv", "namesrv:", "namesrv:http", "namesrv:0", "namesrv:65536"),
        *("namesrv:-1", "namesrv:+1", "namesrv:\u0661", "::1:9876", "[::1]", "[127.0.0.1]:9876", "[::1:9876"),
    ],
)
def test_invalid_address_is_refused(address: str) -> None:
    """The message contains the value and the expected form."""
    with pytest.raises(ValueError, match=r"^address '.*' is not host:port or \[ipv6\]:port$"):
        parse_address(address)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (" ;,\n# a:1", "no addresses"),
        ("a:1;b", "address 'b' is not host:port"),
        ("a:1 b:2", "address 'a:1 b:2' is not host:port"),
        ("env:", "address 'env:' is not host:port"),
        ("dns:a", "address 'a' is not host:port"),
        ("http://", "URL without a host"),
        ("http://a:b/", "Port could not be cast"),
        ("http://a:0/", "URL without a host"),
        ("http://a:65536/", "Port out of range"),
        ("http://[::1/", "Invalid IPv6 URL"),
        ("ftp://a/x", "address 'ftp://a/x' is not host:port"),
    ],
)
def test_invalid_source(source: str, message: str) -> None:
    """The error names the source and the reason, also when the list is created."""
    with pytest.raises(ValueError, match=message) as caught:
        NameServerList(source, clock=FakeClock(), on_change=lambda _: None, logger=logging.getLogger("test"))
    assert str(caught.value).startswith(f"name servers {source!r}: ")


# -- sources ---------------------------------------------------------------------------------------------------------


async def test_list_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A literal list needs no lookup; the environment is read on each request, by default RocketMQ's variable."""
    monkeypatch.setenv("SERVERS", "c:3")
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")

    assert await resolve("10.0.0.1:9876;[::1]:1") == ("10.0.0.1:9876", "[::1]:1")
    for source in ("", "env:NAMESRV_ADDR"):
        assert await resolve(source) == ("a:1", "b:2")
    assert await resolve("env:SERVERS") == ("c:3",)


async def test_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """The mark is not a part of the first address."""
    (tmp_path / "servers").write_bytes(b"\xef\xbb\xbfa:1\nb:2\n")

    assert await resolve(f"file:{tmp_path / 'servers'}") == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("source", "content", "reason"),
    [
        ("file:{file}", b"", "no addresses"),
        ("file:{file}", b"a:1;b", "address 'b' is not host:port"),
        ("file:{file}", b"\xff", "can't decode byte 0xff"),
        ("file:{file}", TOO_LONG, "more than 65536 bytes"),
        ("file:{file}/none", b"", "Not a directory"),
        ("file:/", b"", "Is a directory"),
        ("file:\0", b"", "embedded null"),
        ("env:SERVERS_UNSET", b"", "no addresses"),
        ("dns:..:1", b"", "label"),
    ],
    ids=["empty", "no address", "no text", "too long", "absent", "directory", "null", "unset", "no name"],
)
async def test_failing_source(tmp_path: Path, source: str, content: bytes, reason: str) -> None:
    """Every system error becomes one error class that names the source."""
    (tmp_path / "servers").write_bytes(content)
    source = source.format(file=tmp_path / "servers")

    with pytest.raises(NameServerSourceError, match=reason) as caught:
        await resolve(source)
    assert str(caught.value).startswith(f"name servers from {source}: ")


async def test_lack_of_threads_is_an_error_of_the_source(tmp_path: Path) -> None:
    """Files are read in a thread; a process at its limit of threads reads the file again later."""
    with without_new_threads(), pytest.raises(NameServerSourceError, match="can't start new thread"):
        await resolve(f"file:{tmp_path}")


async def test_name_resolves_to_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv4 and IPv6 addresses keep the resolver's order without duplicates; the real resolver knows localhost."""
    assert await resolve("dns:127.0.0.1:9876") == ("127.0.0.1:9876",)
    assert await resolve("dns:[::1]:9876") == ("[::1]:9876",)
    assert {"127.0.0.1:9876", "[::1]:9876"} >= set(await resolve("dns:localhost:9876"))

    hosts = [("127.0.0.2", 9876), ("::1", 9876, 0, 0), ("127.0.0.1", 9876)] * 2

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        if host == "gone.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", found) for found in hosts]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    assert await resolve("dns:localhost:9876") == ("127.0.0.2:9876", "[::1]:9876", "127.0.0.1:9876")
    with pytest.raises(NameServerSourceError, match=r"^name servers from dns:gone.example:9876: .*Name or service"):
        await resolve("dns:gone.example:9876")


class AddressServer:
    """A web server that answers every request with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        # the request lines
        self.asked: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(request.decode().splitlines()[0])
        writer.write(self.answer)
        writer.close()


@asynccontextmanager
async def address_server(answer: bytes) -> AsyncIterator[AddressServer]:
    """Serve until the block ends."""
    served = AddressServer(answer)
    async with asyncio.timeout(GUARD_SECONDS), await asyncio.start_server(served.serve, "127.0.0.1", 0) as listening:
        served.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/rocketmq/nsaddr"
        yield served


def ok(body: bytes, length: int | None = None) -> bytes:
    """A response with this body and its length or another one."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body) if length is None else length, body)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\na:1", "HTTP Error 404: Not Found"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\na:1", "HTTP Error 500: Oops"),
        (ok(b""), "no addresses"),
        (ok(b"<html>"), "address '<html>' is not host:port"),
        # the truncated part would be a valid list
        (ok(b"a:1;b:2", 9), "response truncated, 2 bytes missing"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na:1", "IncompleteRead"),
        (ok(TOO_LONG), "more than 65536 bytes"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + TOO_LONG, "more than 65536 bytes"),
        (ok(b"\xff"), "can't decode byte 0xff"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "SSH-2.0-OpenSSH_9.9"),
        (b"", "Remote end closed connection"),
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/hosts\r\n\r\n", "Redirection to url 'file:///etc/hosts' is not"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://a:b/\r\n\r\n", "nonnumeric port"),
    ],
    ids=[
        *("not found", "error", "empty", "no list", "cut short", "chunk cut short", "too long"),
        *("too long without length", "no text", "no HTTP", "nothing", "sent to a file", "sent nowhere"),
    ],
)
async def test_invalid_response(answer: bytes, reason: str) -> None:
    """Error statuses, truncated and too large responses and other protocols raise the same error."""
    async with address_server(answer) as served:
        with pytest.raises(NameServerSourceError, match=f"^name servers from {served.url}: .*{reason}"):
            await resolve(served.url)


async def test_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent server is an error after the timeout."""
    monkeypatch.setattr(name_servers, "_HTTP_TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NameServerSourceError, match="timed out"):
        await resolve(f"http://127.0.0.1:{silent.getsockname()[1]}/")


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nX-Header: ", ok(b"", 60_000)], ids=["head", "body"])
async def test_response_that_never_ends_times_out(monkeypatch: pytest.MonkeyPatch, begin: bytes) -> None:
    """A server that sends one byte after another is an error once the time of the whole request is over."""
    monkeypatch.setattr(name_servers, "_FETCH_SECONDS", 0.1)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        # Writing to a transport that is closed is a RuntimeError on uvloop.
        with suppress(ConnectionError, RuntimeError):
            while not reader.at_eof():
                writer.write(b"#")
                await writer.drain()
                # slowly, so that the response does not exceed the limit of 64 KiB first
                await asyncio.sleep(0.01)
        writer.close()
        ended.set()

    ended = asyncio.Event()
    async with asyncio.timeout(GUARD_SECONDS), await asyncio.start_server(drip, "127.0.0.1", 0) as listening:
        with pytest.raises(NameServerSourceError, match=r"/: timed out$"):
            await resolve(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/")
        await ended.wait()


# -- refreshing ------------------------------------------------------------------------------------------------------


class Watched:
    """A list read from a variable, with its recorded changes."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, ...]] = []
        self.clock = FakeClock()
        self.list = NameServerList(
            "env:SERVERS", clock=self.clock, on_change=self.changes.append, logger=logging.getLogger("test")
        )

    async def look(self, servers: str) -> None:
        os.environ["SERVERS"] = servers
        await self.list.refresh()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.list.run())
        await settle()
        assert self.list.looked.is_set()
        yield
        task.cancel()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """A list whose variable is empty."""
    monkeypatch.setenv("SERVERS", "")
    return Watched()


async def test_only_a_different_set_is_a_change(watched: Watched) -> None:
    """A new order is not reported but used from now on."""
    await watched.look("a:1;b:2")
    await watched.look("a:1;b:2")
    await watched.look("b:2;a:1")
    assert watched.list.addresses == ("b:2", "a:1")
    await watched.look("b:2")
    await watched.look("b:2;c:3")

    assert watched.changes == [("a:1", "b:2"), ("b:2",), ("b:2", "c:3")]


async def test_failing_source_keeps_the_list(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """A failing source changes nothing, its error is visible until it works again, and each error is logged once."""
    shown = []
    await watched.look("")
    for servers in ("a:1;b:2", "", "c:3;b", "a:1;b:2"):
        await watched.look(servers)
        await watched.look(servers)
        shown.append(repr(watched.list))
        assert watched.list.addresses == ("a:1", "b:2")

    errors = ("ok", "no addresses", "address 'b' is not host:port or [ipv6]:port", "ok")
    words = [error if error == "ok" else f"name servers from env:SERVERS: {error}" for error in errors]
    assert [f"<NameServerList [env:SERVERS | 2 addresses | {each}]>" for each in words] == shown
    kept = [f"{each}; the last list stays in use" for each in words[1:3]]
    assert [record.getMessage() for record in caplog.records] == [words[1], *kept]
    assert watched.changes == [("a:1", "b:2")]


async def test_list_is_read_every_two_minutes(watched: Watched) -> None:
    """The first read is at once, unless the caller has read already; the next ones come every 120 s."""
    await watched.look("a:1")
    os.environ["SERVERS"] = "b:2"
    async with watched.running():
        await watched.clock.advance(119.9)
        assert watched.changes == [("a:1",)]
        await watched.clock.advance(0.1)
        assert watched.changes == [("a:1",), ("b:2",)]
        os.environ["SERVERS"] = ""
        await watched.clock.advance(120.0)
        os.environ["SERVERS"] = "c:3"
        await watched.clock.advance(120.0)
        assert watched.changes == [("a:1",), ("b:2",), ("c:3",)]


async def test_missing_list_is_read_every_second(watched: Watched) -> None:
    """A broker that starts before its list is written must not wait two minutes."""
    async with watched.running():
        assert watched.list.last_error == "name servers from env:SERVERS: no addresses"
        os.environ["SERVERS"] = "a:1"
        await watched.clock.advance(0.9)
        assert watched.changes == []
        await watched.clock.advance(0.1)
        assert watched.changes == [("a:1",)]
