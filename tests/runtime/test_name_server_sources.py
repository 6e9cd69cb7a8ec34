"""The list of NameServers is read from an environment, a file, a name or a URL."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from namesrv_runtime import name_servers
from namesrv_runtime.name_servers import NameServerList, NameServerSourceError, resolve
from tests.support.fake_clock import FakeClock, settle
from tests.support.guard import GUARD_SECONDS

# 64 KiB, and one more
TOO_LONG = b"10.0.0.1:9876\n".ljust(65_537, b"#")


async def test_static_list_is_what_it_says() -> None:
    """A list needs nobody."""
    assert ("10.0.0.1:9876", "[::1]:1") == await resolve("10.0.0.1:9876;[::1]:1")


@pytest.mark.parametrize("source", ["", "env:NAMESRV_ADDR"])
async def test_environment_of_rocketmq_is_the_default(source: str) -> None:
    """Without a source it is the variable that RocketMQ's clients look at."""
    assert ("a:1", "b:2") == await resolve(source, {"NAMESRV_ADDR": "a:1;b:2"})


async def test_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read when it is asked for, not when the process starts."""
    monkeypatch.setenv("SERVERS", "c:3")

    assert ("c:3",) == await resolve("env:SERVERS")


async def test_file_has_lines_and_comments(tmp_path: Path) -> None:
    """A file may be kept by people."""
    (tmp_path / "servers").write_text("# ours\na:1\nb:2;c:3 # two more\n")

    assert ("a:1", "b:2", "c:3") == await resolve(f"file:{tmp_path / 'servers'}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no addresses"),
        (b"a:1;b", "address 'b' is not host:port"),
        (b"\xff", "can't decode byte 0xff"),
        (TOO_LONG, "more than 65536 bytes"),
    ],
    ids=["empty", "no address", "no text", "too long"],
)
async def test_file_that_is_no_list(tmp_path: Path, content: bytes, reason: str) -> None:
    """The error names the source and the reason."""
    (tmp_path / "servers").write_bytes(content)

    with pytest.raises(NameServerSourceError, match=f"^name servers from file:.*/servers: .*{reason}"):
        await resolve(f"file:{tmp_path / 'servers'}")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("env:SERVERS", "no addresses"),
        ("file:{tmp_path}/none", "No such file or directory"),
        ("file:{tmp_path}", "Is a directory"),
        ("file:\0", "embedded null"),
        ("dns:..:1", "label"),
    ],
)
async def test_source_that_fails(tmp_path: Path, source: str, reason: str) -> None:
    """Whatever the machine says about it becomes the one error."""
    with pytest.raises(NameServerSourceError, match=f"^name servers from .*{reason}"):
        await resolve(source.format(tmp_path=tmp_path), {})


# -- names -----------------------------------------------------------------------------------------------------------


def knows(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """The machine's resolver answers every question with these addresses, each twice, as some do."""

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        if not hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (found, port, 0, 0))
            if ":" in found
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port))
            for found in hosts + hosts
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_name_stands_for_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv4 and IPv6, in the resolver's order, each once; the latter in brackets."""
    knows(monkeypatch, "127.0.0.2", "::1", "127.0.0.1")

    assert ("127.0.0.2:9876", "[::1]:9876", "127.0.0.1:9876") == await resolve("dns:localhost:9876")


async def test_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver's own words are in the error."""
    knows(monkeypatch)

    with pytest.raises(NameServerSourceError, match=r"^name servers from dns:gone.example:9876: .*Name or service"):
        await resolve("dns:gone.example:9876")


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.1:9876"), ("[::1]", "[::1]:9876")])
async def test_address_in_place_of_a_name(host: str, address: str) -> None:
    """The real resolver gives an address back as it is."""
    assert (address,) == await resolve(f"dns:{host}:9876")


async def test_name_of_this_machine() -> None:
    """The real resolver knows localhost, in one form or both."""
    found = await resolve("dns:localhost:9876")

    assert found
    assert {"127.0.0.1:9876", "[::1]:9876"} >= set(found)


# -- URLs ------------------------------------------------------------------------------------------------------------


class AddressServer:
    """A web server that answers every question with the same bytes, or, without any, never."""

    def __init__(self) -> None:
        self.answer: bytes | None = None
        # first lines of the questions
        self.asked: list[str] = []
        self.port = 0
        self._peers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        """Where the list is."""
        return f"http://127.0.0.1:{self.port}/rocketmq/nsaddr"

    def says(self, body: bytes) -> None:
        """Answer with this body from now on."""
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One question, one answer."""
        self._peers.append(writer)
        question = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(question.decode().splitlines()[0])
        if self.answer is not None:
            writer.write(self.answer)
            writer.close()

    def hang_up(self) -> None:
        """Close what is open."""
        for writer in self._peers:
            writer.transport.abort()


@asynccontextmanager
async def address_server() -> AsyncIterator[AddressServer]:
    """Serve until the block ends."""
    served = AddressServer()
    async with asyncio.timeout(GUARD_SECONDS):
        listening = await asyncio.start_server(served.serve, "127.0.0.1", 0)
        served.port = listening.sockets[0].getsockname()[1]
        try:
            yield served
        finally:
            served.hang_up()
            listening.close()
            await settle()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


async def test_body_of_an_answer_is_the_list() -> None:
    """One GET to the URL, and what comes back is a list like any other."""
    async with address_server() as served:
        served.says(b"10.0.0.1:9876;10.0.0.2:9876\n")

        assert ("10.0.0.1:9876", "10.0.0.2:9876") == await resolve(served.url)
        assert ["GET /rocketmq/nsaddr HTTP/1.1"] == served.asked


async def test_answer_without_a_length_ends_with_the_connection() -> None:
    """As from a server of HTTP/1.0."""
    async with address_server() as served:
        served.answer = b"HTTP/1.0 200 OK\r\n\r\na:1"

        assert ("a:1",) == await resolve(served.url)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\na:1", "HTTP Error 404: Not Found"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\na:1", "HTTP Error 500: Oops"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "no addresses"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "address '<html>' is not host:port"),
        # what is there would be a list
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na:1;b:2", "response truncated, 2 bytes missing"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na:1", "IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n" + TOO_LONG, "more than 65536 bytes"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + TOO_LONG, "more than 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff", "can't decode byte 0xff"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "SSH-2.0-OpenSSH_9.9"),
        (b"", "Remote end closed connection"),
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/hosts\r\n\r\n", "Redirection to url 'file:///etc/hosts' is not"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://a:b/\r\n\r\n", "nonnumeric port"),
    ],
    ids=[
        "not found",
        "error",
        "empty",
        "no list",
        "cut short",
        "chunk cut short",
        "too long",
        "too long without length",
        "no text",
        "no HTTP",
        "nothing",
        "sent to a file",
        "sent nowhere",
    ],
)
async def test_answer_that_is_no_list(answer: bytes, reason: str) -> None:
    """Errors, half an answer, too much of one and what is no HTTP are all the one error."""
    async with address_server() as served:
        served.answer = answer

        with pytest.raises(NameServerSourceError, match=f"^name servers from {served.url}: .*{reason}"):
            await resolve(served.url)


async def test_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is silent is given up; others are served meanwhile."""
    monkeypatch.setattr(name_servers, "_HTTP_TIMEOUT_SECONDS", 0.05)
    async with address_server() as served:
        with pytest.raises(NameServerSourceError, match="timed out"):
            await resolve(served.url)

        assert 1 == len(served.asked)


async def test_server_that_is_not_there() -> None:
    """Nobody listens."""
    async with address_server() as served:
        url = served.url

    with pytest.raises(NameServerSourceError, match=f"^name servers from {url}: .*refused"):
        await resolve(url)


async def test_a_source_of_each_kind_may_fail_and_come_back(tmp_path: Path) -> None:
    """File and URL: there, gone, there again and another one."""
    path = tmp_path / "servers"
    async with address_server() as served:
        for source in (f"file:{path}", served.url):
            told: list[tuple[str, ...]] = []
            servers = NameServerList(source, clock=FakeClock(), on_change=told.append)
            failed = []
            for address in ("a:1", "", "b:2"):
                if address:
                    path.write_text(address)
                else:
                    path.unlink()
                served.says(address.encode())
                await servers.refresh()
                failed.append(servers.last_error is not None)

            assert [False, True, False] == failed
            assert [("a:1",), ("b:2",)] == told
