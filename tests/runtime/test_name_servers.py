"""Lists of NameServers and their sources are checked, and the last list is kept when its source fails."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from namesrv_runtime.name_servers import NameServerList, check_source, parse_list
from tests.support.fake_clock import FakeClock, settle

# -- lists -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("10.0.0.1:9876", ("10.0.0.1:9876",)),
        ("b:2;a:1", ("b:2", "a:1")),
        ("a:1,b:2;c:3", ("a:1", "b:2", "c:3")),
        (" a:1 ;; b:2; ", ("a:1", "b:2")),
        ("a:1;b:2;a:1", ("a:1", "b:2")),
        ("a:1\r\nb:2\n", ("a:1", "b:2")),
        ("# ours\na:1 # the first\n\n#b:2\nc:3", ("a:1", "c:3")),
        ("[::1]:9876;[fe80::1]:1", ("[::1]:9876", "[fe80::1]:1")),
    ],
    ids=["one", "order", "separators", "blanks", "twice", "lines", "comments", "ipv6"],
)
def test_list(text: str, addresses: tuple[str, ...]) -> None:
    """Addresses come in the list's order, each once."""
    assert addresses == parse_list(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no addresses"),
        (" ;,\n# a:1", "no addresses"),
        ("a:1;b", "address 'b' is not host:port"),
        ("a:0", "address 'a:0' is not host:port"),
        ("a:65536", "address 'a:65536' is not host:port"),
        ("::1:9876", "address '::1:9876' is not host:port"),
        ("a:1 b:2", "address 'a:1 b:2' is not host:port"),
        ("<html>", "address '<html>' is not host:port"),
    ],
)
def test_what_is_no_list(text: str, message: str) -> None:
    """One address that is none spoils the list, and the error names it."""
    with pytest.raises(ValueError, match=message):
        parse_list(text)


# -- sources ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "",
        "a:1;[::1]:2",
        "env:SERVERS",
        "file:/etc/namesrv/servers",
        "dns:namesrv.example:9876",
        "dns:[::1]:9876",
        "http://config.example/rocketmq/nsaddr",
        "https://config.example:8443/x?nofix=1",
        "http://[::1]:8080/x",
    ],
)
def test_source(source: str) -> None:
    """All the forms are taken as they are, and nothing is looked up."""
    assert source == check_source(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (" ", "name servers ' ': no addresses"),
        ("a:1;b", "name servers 'a:1;b': address 'b' is not host:port"),
        ("env:", "name servers 'env:': address 'env:' is not host:port"),
        ("file:", "name servers 'file:': address 'file:' is not host:port"),
        ("dns:a", "name servers 'dns:a': address 'a' is not host:port"),
        ("dns:", "name servers 'dns:': address '' is not host:port"),
        ("http:", "name servers 'http:': URL without a host"),
        ("http://", "name servers 'http://': URL without a host"),
        ("http:/path", "name servers 'http:/path': URL without a host"),
        ("http://a:b/", "name servers 'http://a:b/': Port could not be cast"),
        ("http://a:0/", "name servers 'http://a:0/': URL without a host"),
        ("http://a:65536/", "name servers 'http://a:65536/': Port out of range"),
        ("http://a b/", "name servers 'http://a b/': URL without a host"),
        ("http://[::1/", r"name servers 'http://\[::1/': Invalid IPv6 URL"),
        ("ftp://a/x", "name servers 'ftp://a/x': address 'ftp://a/x' is not host:port"),
    ],
)
def test_what_is_no_source(source: str, message: str) -> None:
    """The error names the source and what is wrong with it."""
    with pytest.raises(ValueError, match=f"^{message}"):
        check_source(source)


# -- over time -------------------------------------------------------------------------------------------------------


class Watched:
    """A list that is read from a variable, and what was told of it."""

    def __init__(self, source: str = "env:SERVERS", servers: str = "") -> None:
        self.environ = {"SERVERS": servers}
        self.told: list[tuple[str, ...]] = []
        self.clock = FakeClock()
        self.list = NameServerList(source, clock=self.clock, on_change=self.told.append, environ=self.environ)

    async def look(self, servers: str) -> None:
        """Look, once the variable holds this."""
        self.environ["SERVERS"] = servers
        await self.list.refresh()


async def test_only_another_set_is_told() -> None:
    """Another order is no change for those who keep connections, but it is the order that counts from now on."""
    watched = Watched()

    await watched.look("a:1;b:2")
    await watched.look("a:1;b:2")
    await watched.look("b:2;a:1")
    assert ("b:2", "a:1") == watched.list.addresses
    await watched.look("b:2")
    await watched.look("b:2;c:3")

    assert [("a:1", "b:2"), ("b:2",), ("b:2", "c:3")] == watched.told


async def test_last_known_list_is_never_lost() -> None:
    """A source that fails changes nothing and tells nobody; what failed is there to be seen until it works again."""
    watched = Watched()
    errors = []
    for servers in ("a:1;b:2", "", "c:3;b", "a:1;b:2"):
        await watched.look(servers)
        errors.append(watched.list.last_error)
        assert ("a:1", "b:2") == watched.list.addresses

    assert [
        None,
        "name servers from env:SERVERS: no addresses",
        "name servers from env:SERVERS: address 'b' is not host:port or [ipv6]:port",
        None,
    ] == errors
    assert [("a:1", "b:2")] == watched.told


async def test_list_is_read_every_two_minutes() -> None:
    """At once, and then every 120 s; a change is told when it is read."""
    watched = Watched(servers="a:1")
    running = asyncio.create_task(watched.list.run())
    await settle()
    assert [("a:1",)] == watched.told
    assert watched.list.looked.is_set()

    watched.environ["SERVERS"] = "b:2"
    await watched.clock.advance(119.9)
    assert [("a:1",)] == watched.told
    await watched.clock.advance(0.1)
    assert [("a:1",), ("b:2",)] == watched.told
    watched.environ["SERVERS"] = ""
    await watched.clock.advance(120.0)
    watched.environ["SERVERS"] = "c:3"
    await watched.clock.advance(120.0)
    assert [("a:1",), ("b:2",), ("c:3",)] == watched.told

    running.cancel()


async def test_list_that_was_never_there_is_asked_for_every_second() -> None:
    """A broker that starts before its list is written must not wait two minutes."""
    watched = Watched()
    running = asyncio.create_task(watched.list.run())
    await settle()
    assert watched.list.looked.is_set()
    assert "name servers from env:SERVERS: no addresses" == watched.list.last_error

    watched.environ["SERVERS"] = "a:1"
    await watched.clock.advance(0.9)
    assert [] == watched.told
    await watched.clock.advance(0.1)
    assert [("a:1",)] == watched.told

    running.cancel()


async def test_who_has_looked_already_waits_first() -> None:
    """A caller that looked itself does not make the source answer twice."""
    looks: list[str] = []

    class Environ(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            looks.append(name)
            return super().get(name, default)

    environ: Mapping[str, str] = Environ(SERVERS="a:1")
    clock = FakeClock()
    servers = NameServerList("env:SERVERS", clock=clock, on_change=lambda _: None, refresh_seconds=7.0, environ=environ)
    await servers.refresh()
    running = asyncio.create_task(servers.run())
    await settle()
    assert 1 == len(looks)

    await clock.advance(7.0)

    assert 2 == len(looks)
    running.cancel()


async def test_list_shows_itself() -> None:
    """Where from, how many, and what is wrong."""
    watched = Watched()
    await watched.look("a:1;b:2")
    assert "<NameServerList [env:SERVERS | 2 addresses | ok]>" == repr(watched.list)

    await watched.look("")

    assert "<NameServerList [env:SERVERS | 2 addresses | name servers from env:SERVERS: no addresses]>" == repr(
        watched.list
    )


def test_list_of_what_is_no_source() -> None:
    """Refused when made."""
    with pytest.raises(ValueError, match="name servers 'a': address 'a' is not host:port"):
        NameServerList("a", clock=FakeClock(), on_change=lambda _: None)
