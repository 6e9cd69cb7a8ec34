"""The web console running in the test's own process, with browser tabs on it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx2
from starlette.applications import Starlette

from namesrv_console.app import create_app
from namesrv_console.console import Console
from namesrv_console.settings import ConsoleSettings
from namesrv_runtime.clock import Clock
from tests.support.console_access import PASSWORD, fields
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.tcp_proxy import TcpProxy

BASE = "http://127.0.0.1:9878"


class Message(NamedTuple):
    """One event of a stream."""

    id: str
    parts: dict[str, str]


class Tab:
    """One browser tab: the event stream of a page."""

    def __init__(self, app: Starlette, of: str, *, since: str = "", last_event_id: str | None = None) -> None:
        self.messages: list[Message] = []
        self.status: int | None = None
        self._app = app
        self._query = urlencode({"of": of, "since": since}).encode()
        self._headers = [] if last_event_id is None else [(b"last-event-id", last_event_id.encode())]
        self._left = asyncio.Event()
        # while cleared, the tab does not read its stream
        self.reads = asyncio.Event()
        self.reads.set()

    async def run(self) -> None:
        scope: dict[str, Any] = {"type": "http", "http_version": "1.1", "scheme": "http", "method": "GET"}
        scope |= {"path": "/live", "query_string": self._query, "headers": [(b"host", b"127.0.0.1:9878")]}
        scope |= {"server": ("127.0.0.1", 9878), "client": ("127.0.0.1", 1)}
        scope["headers"] += self._headers
        await self._app(scope, self._receive, self._send)

    def leave(self) -> None:
        self._left.set()

    @property
    def parts(self) -> dict[str, str]:
        """The last content received for each element id; a later part of an element does not change that element's."""
        return {name: html for message in self.messages for name, html in message.parts.items()}

    async def _receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        await self.reads.wait()
        if body := message.get("body", b"").decode():
            fields = dict(line.split(": ", 1) for line in body.splitlines() if line)
            self.messages.append(Message(fields["id"], dict(json.loads(fields["data"])["parts"])))


class Shown(NamedTuple):
    """A running console and an HTTP client of it."""

    console: Console
    app: Starlette
    http: httpx2.AsyncClient
    tasks: asyncio.TaskGroup

    async def text(self, path: str, **headers: str) -> str:
        answer = await self.http.get(path, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def sign_in(self, name: str) -> None:
        """Sign in as a user whom `write_users` has written."""
        self.http.cookies.clear()
        form = fields(await self.text("/login")) | {"name": name, "password": f"{PASSWORD} of {name}"}
        assert (await self.http.post("/login", data=form)).status_code == 303

    def tab(self, of: str, **seen: Any) -> Tab:
        tab = Tab(self.app, of, **seen)
        self.tasks.create_task(tab.run())
        return tab


class _Over(Exception):  # noqa: N818 - no error: it ends the TaskGroup
    """The block has ended."""


@asynccontextmanager
async def console(clock: Clock, *servers: str, **settings: Any) -> AsyncIterator[Shown]:
    """A console of these servers, until the block ends."""
    made = Console(ConsoleSettings(servers=servers, **settings), clock=clock)
    app = create_app(made)
    transport = httpx2.ASGITransport(app=app)
    try:
        async with asyncio.timeout(GUARD_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(made.run())
            async with httpx2.AsyncClient(transport=transport, base_url=BASE) as http:
                yield Shown(made, app, http, tasks)
            raise _Over
    except* _Over:
        pass


@asynccontextmanager
async def console_of_two(home: Path) -> AsyncIterator[tuple[InProcess, InProcess, Shown]]:
    """Two servers with the same clock, and a console of both."""
    async with (
        namesrv_in_process(home / "1") as one,
        namesrv_in_process(home / "2", clock=one.clock) as two,
        console(one.clock, one.where, two.where) as shown,
    ):
        yield one, two, shown


@asynccontextmanager
async def console_behind_proxy(home: Path) -> AsyncIterator[tuple[InProcess, InProcess, TcpProxy, Shown]]:
    """As console_of_two, with a proxy between the console and the second server."""
    async with (
        namesrv_in_process(home / "1") as one,
        namesrv_in_process(home / "2", clock=one.clock) as two,
        TcpProxy(two.address) as way,
        console(one.clock, one.where, way.address) as shown,
    ):
        yield one, two, way, shown
