"""The list of NameServers: where it comes from, and how it is kept up to date.

A source is written as
    10.0.0.1:9876;10.0.0.2:9876     a list, `;` or `,` between
    env:NAMESRV_ADDR                such a list in an environment variable, read again each time
    file:/etc/namesrv/servers       such a list in a file, lines and # comments allowed
    dns:namesrv.example:9876        every address that the name has
    http://host/path, https://…     such a list as the body of a response
and an empty source means env:NAMESRV_ADDR, which is where RocketMQ's own clients look.
"""

import asyncio
import http.client
import io
import logging
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from namesrv_runtime.address import parse_address
from namesrv_runtime.clock import Clock, timeout_on
from namesrv_runtime.threads import addresses_of, in_thread

# RocketMQ's port of NameServers
USUAL_PORT: Final = 9876
DEFAULT_SOURCE: Final = "env:NAMESRV_ADDR"
# the refresh interval of RocketMQ's clients
REFRESH_SECONDS: Final = 120.0
# The interval while the list is urgent. An unreachable server may have started at another address, and 45 s later
# clients remove the brokers that have not registered there: the brokers need the new address well before. The list of
# a thousand agents at a URL is then requested 67 times a second, each time by another agent.
_URGENT_SECONDS: Final = 15.0
# the longest silence of a web server, and the longest time until the whole response is read, redirections included
_HTTP_TIMEOUT_SECONDS: Final = 3.0
_FETCH_SECONDS: Final = 10.0
# No real list of addresses is longer; a longer body is an error page or an attack.
_MAX_LIST_BYTES: Final = 64 * 1024


class NameServerSourceError(Exception):
    """The list of NameServers cannot be read or is malformed; the message names the source and the reason."""


def parse_list(text: str) -> tuple[str, ...]:
    """The addresses of a list, in order, each once. Raises ValueError for an empty list or one not of host:port."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    parts = [part.strip() for line in lines for part in line.replace(",", ";").split(";")]
    addresses = tuple(dict.fromkeys(address for address in parts if address))
    for address in addresses:
        parse_address(address)
    if not addresses:
        raise ValueError("no addresses")
    return addresses


def parse_servers(servers: Iterable[str]) -> tuple[str, ...]:
    """The addresses of servers on a command line, separated like a list; each may lack the usual port.

    Raises ValueError.
    """
    parts = [part.strip() for part in ";".join(servers).replace(",", ";").split(";")]
    # The port is added after a name, an IPv4 address and a bracketed IPv6 address.
    parts = [f"{it}:{USUAL_PORT}" if it and (it.endswith("]") or ":" not in it) else it for it in parts]
    for part in parts:
        if part.count(":") > 1 and "[" not in part:
            # `::1:9876` may be an address with or without a port.
            raise ValueError(f"an IPv6 address needs brackets: [{part}], or with a port [{part}]:{USUAL_PORT}")
    return parse_list(";".join(parts))


def check_source(source: str) -> str:
    """Return the source unchanged. Raises ValueError, with the source, if it has none of the forms above."""
    kind, _, rest = source.partition(":")
    if kind in ("env", "file") and rest:
        return source
    try:
        if kind == "dns":
            parse_address(rest)
        elif kind in ("http", "https"):
            parts = urlsplit(source)
            # Reading the port raises ValueError if the port is not a number or too large.
            if not parts.hostname or parts.port == 0 or not source.isprintable() or " " in source:
                raise ValueError("URL without a host")
        elif source:
            parse_list(source)
    except ValueError as error:
        raise ValueError(f"name servers {source!r}: {error}") from error
    return source


async def resolve(source: str) -> tuple[str, ...]:
    """The addresses that a source names now. Raises NameServerSourceError if it names none, or cannot be read."""
    source = source or DEFAULT_SOURCE
    kind, _, rest = source.partition(":")
    try:
        if kind == "env":
            return parse_list(os.environ.get(rest, ""))
        if kind == "file":
            return parse_list(await in_thread(_read_file, rest))
        if kind == "dns":
            return await _look_up(rest)
        if kind in ("http", "https"):
            return parse_list(await in_thread(_fetch, source))
        return parse_list(source)
    # HTTPException, for a response that is not HTTP, does not inherit from OSError.
    except (ValueError, OSError, http.client.HTTPException) as error:
        raise NameServerSourceError(f"name servers from {source}: {str(error) or type(error).__name__}") from error


def _read_file(path: str) -> str:
    with Path(path).open("rb") as file:
        return _text(file.read(_MAX_LIST_BYTES + 1))


async def _look_up(address: str) -> tuple[str, ...]:
    host, port = parse_address(address)
    hosts = dict.fromkeys(str(entry[4][0]) for entry in await addresses_of(host, port))
    return tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts)


def _fetch(url: str) -> str:
    request = urllib.request.Request(url, headers={"Accept": "text/plain"})  # noqa: S310 - http or https, see above
    deadline = time.monotonic() + _FETCH_SECONDS
    opener = urllib.request.build_opener(_HandlerWithDeadline(deadline))
    try:
        with opener.open(request, timeout=_HTTP_TIMEOUT_SECONDS) as response:
            data = response.read(_MAX_LIST_BYTES + 1)
            # `length` is the missing part of the announced length; half a list may end in half an address.
            if len(data) <= _MAX_LIST_BYTES and response.length:
                raise ValueError(f"response truncated, {response.length} bytes missing")
            return _text(data)
    except urllib.error.HTTPError as error:
        # The error is also a response, which keeps its socket open.
        error.close()
        raise


# urllib's timeout is that of each read from the socket, so that a server that sends one byte after another would never
# time out. This class checks the deadline of the whole request before each read.
class _HandlerWithDeadline(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_with_deadline(http.client.HTTPConnection, self._deadline), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_with_deadline(http.client.HTTPSConnection, self._deadline), req)


def _with_deadline(connection: type[http.client.HTTPConnection], deadline: float) -> type[http.client.HTTPConnection]:
    class Response(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
            super().__init__(sock, *arguments, **options)
            # `fp` is a BufferedReader of the socket.
            self.fp = io.BufferedReader(_SocketReader(self.fp.detach(), sock, deadline))

    return type("Connection", (connection,), {"response_class": Response})


class _SocketReader(io.RawIOBase):
    def __init__(self, reader: io.RawIOBase, sock: socket.socket, deadline: float) -> None:
        self._reader = reader
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(min(left, _HTTP_TIMEOUT_SECONDS))
        return self._reader.readinto(buffer)

    def close(self) -> None:
        super().close()
        self._reader.close()


def _text(data: bytes) -> str:
    if len(data) > _MAX_LIST_BYTES:
        raise ValueError(f"more than {_MAX_LIST_BYTES} bytes")
    # "utf-8-sig" leaves out a byte order mark, which some editors write.
    return data.decode("utf-8-sig")


@dataclass(eq=False, repr=False)
class NameServerList:
    """The last known list, refreshed from time to time; the list survives a failing source."""

    source: str
    _: KW_ONLY
    clock: Clock
    on_change: Callable[[tuple[str, ...]], None]
    # gets a warning for each new error of the source
    logger: logging.Logger
    refresh_seconds: float = REFRESH_SECONDS
    # True while the list is read every 15 s, because a server is unreachable and may be in the list at another address
    is_urgent: Callable[[], bool] = lambda: False
    # addresses, in the source's order; empty until the first success
    addresses: tuple[str, ...] = field(default=(), init=False)
    # the error of the last refresh; None if it succeeded
    last_error: str | None = field(default=None, init=False)
    # set once the first refresh is over, successful or not
    looked: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        check_source(self.source)

    def open(self) -> None:
        """Make `looked_within` wait for a new refresh, in the running event loop; the last list stays."""
        self.looked = asyncio.Event()

    async def refresh(self) -> None:
        """Resolve the source once, and call `on_change` if the set of addresses changed."""
        try:
            resolved = await resolve(self.source)
        except NameServerSourceError as error:
            if str(error) != self.last_error:
                self.logger.warning("%s%s", error, "; the last list stays in use" if self.addresses else "")
            self.last_error = str(error)
        else:
            self.last_error, before, self.addresses = None, self.addresses, resolved
            if set(resolved) != set(before):
                self.on_change(resolved)
        self.looked.set()

    async def looked_within(self, seconds: float) -> bool:
        """Wait for the end of the first refresh; False if it takes longer than `seconds`."""
        try:
            async with timeout_on(self.clock, seconds):
                await self.looked.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Refresh every `refresh_seconds` until cancelled; every second until the first list is known.

        While the list is urgent, it is refreshed every 15 s.
        """
        if not self.looked.is_set():
            await self.refresh()
        while True:
            due = self.clock.monotonic() + (self.refresh_seconds if self.addresses else min(1.0, self.refresh_seconds))
            while (left := due - self.clock.monotonic()) > 0:
                await self.clock.sleep(min(left, _URGENT_SECONDS))
                if self.is_urgent():
                    break
            await self.refresh()

    def __repr__(self) -> str:
        return f"<NameServerList [{self.source} | {len(self.addresses)} addresses | {self.last_error or 'ok'}]>"
