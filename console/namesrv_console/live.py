"""Live updates of open pages, as server-sent events: one stream for each visible tab.

A page is filled once for all its tabs. A tab receives what has changed since the revision that it has seen: nothing is
queued, a tab that was away receives all changes at once, and `Last-Event-ID` is enough to resume.
"""

import asyncio
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NoReturn

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from namesrv_console.catalogue import catalogue
from namesrv_console.console import Console, Page, Visit
from namesrv_console.templating import Templates, rows
from namesrv_runtime.clock import timeout_on

MAX_STREAMS: Final = 500
# Pause between two messages of one stream; a user could not follow more frequent ones.
PAUSE_SECONDS: Final = 0.15
# Longest interval between messages to a tab; each has the time, and shows that the console is alive.
PING_SECONDS: Final = 2.0
# The stream of a tab that reads nothing for this long is closed; its browser connects again.
SLOW_SECONDS: Final = 10.0

# Digits of the largest revision.
_MOST_DIGITS: Final = 18

# Key of a live page: name, query, language.
_Key = tuple[str, tuple[tuple[str, str], ...], str]


class LivePages:
    """The pages that are open now."""

    def __init__(self, console: Console, templates: Templates) -> None:
        self._console = console
        self._templates = templates
        self._open: dict[_Key, LivePage] = {}
        # Random name of this boot of the console, since revisions are numbers of one boot.
        self._run = secrets.token_hex(4)
        self._is_closing = asyncio.Event()
        self.streams = 0

    def __repr__(self) -> str:
        return f"<LivePages [{self.streams} streams of {len(self._open)} pages]>"

    def event_id(self, revision: int) -> str:
        """The event id of a revision."""
        return f"{self._run}-{revision}"

    def revision_of(self, event_id: str) -> int:
        """The revision of an event id; -1 if the id is from another boot of the console."""
        run, _, number = event_id.partition("-")
        is_number = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
        return int(number) if run == self._run and is_number else -1

    async def news(self, live: "LivePage", since: int) -> tuple[int, dict[str, object]]:
        """The new revision, and the message for a tab that has seen the revision `since`."""
        clock, patch = self._console.clock, await live.patch(since)
        now, wall = round(clock.monotonic(), 3), round(clock.wall(), 3)
        return live.revision, {"id": self.event_id(live.revision), "now": now, "wall": wall, "parts": patch}

    def close(self) -> None:
        """End all streams."""
        self._is_closing.set()

    async def closing(self) -> None:
        """Return once `close` was called."""
        await self._is_closing.wait()

    @contextmanager
    def opened(self, page: Page, query: Mapping[str, str], language: str) -> Iterator["LivePage"]:
        """The live page for one more tab."""
        key = (page.name, tuple(sorted(query.items())), language)
        live = self._open.setdefault(key, LivePage(self._console, self._templates, page, query, language))
        live.tabs += 1
        self.streams += 1
        try:
            yield live
        finally:
            self.streams -= 1
            live.tabs -= 1
            if not live.tabs:
                del self._open[key]


@dataclass(slots=True)
class _Part:
    """A part of a page, with the revisions of its last changes."""

    html: str
    # The HTML without rows.
    frame: str
    # Revision of the last change of the frame, or of the set or order of the rows.
    changed: int
    # Id of a row -> its HTML, and the revision of its last change.
    rows: dict[str, tuple[str, int]]


@dataclass(slots=True)
class LivePage:
    """One page in one language, kept up to date for its tabs."""

    console: Console
    templates: Templates = field(repr=False)
    page: Page
    query: Mapping[str, str]
    language: str
    tabs: int = 0
    # Revision of the cluster that the parts show.
    revision: int = -1
    _parts: dict[str, _Part] = field(default_factory=dict, repr=False)
    _filling: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def patch(self, since: int) -> list[tuple[str, str]]:
        """Ids and HTML of the elements that changed after the revision `since`."""
        async with self._filling:
            if self.revision != self.console.observed.cluster.revision:
                await self._fill()
        found = []
        for name, part in self._parts.items():
            if part.changed > since:
                found.append((name, part.html))
            else:
                found += [(row, html) for row, (html, changed) in part.rows.items() if changed > since]
        return found

    async def _fill(self) -> None:
        cluster = self.console.observed.cluster
        visit = Visit(self.console, cluster, self.query, catalogue(self.language), now=None)
        content = await self.page.handler(visit)
        if isinstance(content, Response):
            content = {}
        for name, html in self.templates.parts(self.page, visit, content).items():
            frame, found = rows(html)
            old = self._parts.get(name)
            if old is None or old.frame != frame or [*old.rows] != [*found]:
                self._parts[name] = _Part(
                    html, frame, cluster.revision, {row: (text, cluster.revision) for row, text in found.items()}
                )
                continue
            old.html = html
            old.rows = {
                row: (text, cluster.revision if old.rows[row][0] != text else old.rows[row][1])
                for row, text in found.items()
            }
        self.revision = cluster.revision


class _EndedError(Exception):
    """The tab was closed, or the console shuts down."""


class _SlowError(Exception):
    """The tab does not read its stream."""


class LiveStream(Response):
    """The event stream of one tab."""

    media_type = "text/event-stream"

    def __init__(self, pages: LivePages, page: Page, query: Mapping[str, str], *, language: str, since: int) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._pages = pages
        self._page = page
        self._query = query
        self._language = language
        self._since = since

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI passes the scope
        """Send changes until the tab is closed."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_wait_disconnected(receive))
                tasks.create_task(self._wait_closing())
                with self._pages.opened(self._page, self._query, self._language) as live:
                    await self._send_all(live, send)
        except* _EndedError:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except* _SlowError:
            # The end of the response could not be sent either; the web server closes an unfinished response.
            pass

    async def _wait_closing(self) -> NoReturn:
        await self._pages.closing()
        raise _EndedError

    async def _send_all(self, live: LivePage, send: Send) -> NoReturn:
        observed, clock, since = live.console.observed, live.console.clock, self._since
        while True:
            since, news = await self._pages.news(live, since)
            text = f"id: {news['id']}\ndata: {json.dumps(news, separators=(',', ':'))}\n\n"
            try:
                async with timeout_on(clock, SLOW_SECONDS):
                    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            except TimeoutError:
                raise _SlowError from None
            await clock.sleep(PAUSE_SECONDS)
            try:
                async with timeout_on(clock, PING_SECONDS):
                    await observed.changed_since(since)
            except TimeoutError:
                # Nothing has changed; the next message has the time only.
                continue


async def _wait_disconnected(receive: Receive) -> NoReturn:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise _EndedError
