"""Lists of NameServers are read from an environment, a file, a name or a URL, and kept when their source fails."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from namesrv_runtime import name_servers
from namesrv_runtime.address import parse_address
from namesrv_runtime.name_servers import NameServerList, NameServerSourceError, check_source, parse_list, resolve
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, settle

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
    """IPv4, a name, and IPv6 in brackets."""
    assert (host, port) == parse_address(address)


@pytest.mark.parametrize(
    "address",
    [
        *("", "9876", ":9876", "[]:9876", "namesrv", "namesrv:", "namesrv:http", "namesrv:0", "namesrv:65536"),
        *("namesrv:-1", "namesrv:+1", "namesrv:\u0661", "::1:9876", "[::1]", "[127.0.0.1]:9876", "[::1:9876"),
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    """The message shows it, and what it should have been."""
    with pytest.raises(ValueError, match=r"^address '.*' is not host:port or \[ipv6\]:port$"):
        parse_address(address)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("10.0.0.1:9876", ("10.0.0.1:9876",)),
        ("b:2;a:1,c:3;b:2", ("b:2", "a:1", "c:3")),
        (" a:1 ;; b:2; ", ("a:1", "b:2")),
        ("# ours\r\na:1 # the first\n\n#b:2\nc:3", ("a:1", "c:3")),
        ("[::1]:9876;[fe80::1]:1", ("[::1]:9876", "[fe80::1]:1")),
    ],
)
def test_list(text: str, addresses: tuple[str, ...]) -> None:
    """Addresses come in the list's order, each once."""
    assert addresses == parse_list(text)


@pytest.mark.parametrize(
    "source",
    [
        *("", "a:1;[::1]:2", "env:SERVERS", "file:/etc/namesrv/servers", "dns:namesrv.example:9876", "dns:[::1]:9876"),
        *("http://config.example/rocketmq/nsaddr", "https://config.example:8443/x?nofix=1", "http://[::1]:8080/x"),
    ],
)
def test_source(source: str) -> None:
    """All the forms are taken as they are, and nothing is looked up."""
    assert source == check_source(source)


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
def test_what_is_no_source(source: str, message: str) -> None:
    """The error names the source and what is wrong with it, also when a list is made of it."""
    with pytest.raises(ValueError, match=message) as caught:
        NameServerList(source, clock=FakeClock(), on_change=lambda _: None)
    assert str(caught.value).startswith(f"name servers {source!r}: ")


# -- where lists come from -------------------------------------------------------------------------------------------


async def test_list_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list needs nobody; the environment is read when it is asked for, RocketMQ's variable without a source."""
    monkeypatch.setenv("SERVERS", "c:3")
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")

    assert await resolve("10.0.0.1:9876;[::1]:1") == ("10.0.0.1:9876", "[::1]:1")
    for source in ("", "env:NAMESRV_ADDR"):
        assert await resolve(source) == ("a:1", "b:2")
    assert await resolve("env:SERVERS") == ("c:3",)


async def test_file_has_lines_and_comments(tmp_path: Path) -> None:
    """A file may be kept by people."""
    (tmp_path / "servers").write_text("# ours\na:1\nb:2;c:3 # two more\n")

    assert await resolve(f"file:{tmp_path / 'servers'}") == ("a:1", "b:2", "c:3")


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
async def test_source_that_fails(tmp_path: Path, source: str, content: bytes, reason: str) -> None:
    """Whatever the machine says about it becomes the one error, which names the source."""
    (tmp_path / "servers").write_bytes(content)
    source = source.format(file=tmp_path / "servers")

    with pytest.raises(NameServerSourceError, match=reason) as caught:
        await resolve(source)
    assert str(caught.value).startswith(f"name servers from {source}: ")


async def test_name_stands_for_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv4 and IPv6, in the resolver's order, each once; the latter in brackets. The real one knows localhost."""
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
    """A web server that answers every question with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        # first lines of the questions
        self.asked: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(question.decode().splitlines()[0])
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
    """An answer with this body, and its length or another."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body) if length is None else length, body)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


async def test_body_of_an_answer_is_the_list() -> None:
    """One GET to the URL, and what comes back is a list like any other; HTTP/1.0 ends it with the connection."""
    async with address_server(ok(b"10.0.0.1:9876;10.0.0.2:9876\n")) as served:
        assert await resolve(served.url) == ("10.0.0.1:9876", "10.0.0.2:9876")
        assert served.asked == ["GET /rocketmq/nsaddr HTTP/1.1"]
        served.answer = b"HTTP/1.0 200 OK\r\n\r\na:1"
        assert await resolve(served.url) == ("a:1",)
    with pytest.raises(NameServerSourceError, match=f"^name servers from {served.url}: .*refused"):
        await resolve(served.url)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\na:1", "HTTP Error 404: Not Found"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\na:1", "HTTP Error 500: Oops"),
        (ok(b""), "no addresses"),
        (ok(b"<html>"), "address '<html>' is not host:port"),
        # what is there would be a list
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
async def test_answer_that_is_no_list(answer: bytes, reason: str) -> None:
    """Errors, half an answer, too much of one and what is no HTTP are all the one error."""
    async with address_server(answer) as served:
        with pytest.raises(NameServerSourceError, match=f"^name servers from {served.url}: .*{reason}"):
            await resolve(served.url)


async def test_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is silent is given up."""
    monkeypatch.setattr(name_servers, "_HTTP_TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NameServerSourceError, match="timed out"):
        await resolve(f"http://127.0.0.1:{silent.getsockname()[1]}/")


# -- over time -------------------------------------------------------------------------------------------------------


class Watched:
    """A list that is read from a variable, and what was told of it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []
        self.clock = FakeClock()
        self.list = NameServerList("env:SERVERS", clock=self.clock, on_change=self.told.append)

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


async def test_only_another_set_is_told(watched: Watched) -> None:
    """Another order is no change for those who keep connections, but it is the order that counts from now on."""
    await watched.look("a:1;b:2")
    await watched.look("a:1;b:2")
    await watched.look("b:2;a:1")
    assert watched.list.addresses == ("b:2", "a:1")
    await watched.look("b:2")
    await watched.look("b:2;c:3")

    assert watched.told == [("a:1", "b:2"), ("b:2",), ("b:2", "c:3")]


async def test_last_known_list_is_never_lost(watched: Watched) -> None:
    """A source that fails changes nothing and tells nobody; what failed is there to be seen until it works again."""
    said = []
    for servers in ("a:1;b:2", "", "c:3;b", "a:1;b:2"):
        await watched.look(servers)
        said.append(repr(watched.list))
        assert watched.list.addresses == ("a:1", "b:2")

    errors = ("ok", "no addresses", "address 'b' is not host:port or [ipv6]:port", "ok")
    words = [error if error == "ok" else f"name servers from env:SERVERS: {error}" for error in errors]
    assert [f"<NameServerList [env:SERVERS | 2 addresses | {each}]>" for each in words] == said
    assert watched.told == [("a:1", "b:2")]


async def test_list_is_read_every_two_minutes(watched: Watched) -> None:
    """At once, unless the caller has looked already, and then every 120 s; a change is told when it is read."""
    await watched.look("a:1")
    os.environ["SERVERS"] = "b:2"
    async with watched.running():
        await watched.clock.advance(119.9)
        assert watched.told == [("a:1",)]
        await watched.clock.advance(0.1)
        assert watched.told == [("a:1",), ("b:2",)]
        os.environ["SERVERS"] = ""
        await watched.clock.advance(120.0)
        os.environ["SERVERS"] = "c:3"
        await watched.clock.advance(120.0)
        assert watched.told == [("a:1",), ("b:2",), ("c:3",)]


async def test_list_that_was_never_there_is_asked_for_every_second(watched: Watched) -> None:
    """A broker that starts before its list is written must not wait two minutes."""
    async with watched.running():
        assert watched.list.last_error == "name servers from env:SERVERS: no addresses"
        os.environ["SERVERS"] = "a:1"
        await watched.clock.advance(0.9)
        assert watched.told == []
        await watched.clock.advance(0.1)
        assert watched.told == [("a:1",)]
