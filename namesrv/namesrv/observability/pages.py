"""The pages /livez, /readyz and /metrics."""

import asyncio
import contextlib
import math
from collections import Counter
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from namesrv.context import Namesrv
from namesrv.observability.checks import Check, liveness, readiness, report
from namesrv.observability.exposition import CONTENT_TYPE, exposition
from namesrv_remoting.aio.server import RemotingServer

_NO_STORE = {"Cache-Control": "no-store"}
# Metrics that are not older are shown again: rendering takes as long as hundreds of pulls, however often one asks.
FRESH_SECONDS: Final = 0.25


def application(namesrv: Namesrv, server: RemotingServer) -> ASGIApp:
    """All pages; each answer is counted in `namesrv.counters.http`."""
    # one at a time, and what the last one found, until when
    scraping = asyncio.Lock()
    page, fresh_until = b"", -math.inf

    async def livez(request: Request) -> Response:
        return _checked(liveness(namesrv), request)

    async def readyz(request: Request) -> Response:
        return _checked(readiness(namesrv), request)

    async def metrics(_: Request) -> Response:
        nonlocal page, fresh_until
        async with scraping:
            if namesrv.clock.monotonic() >= fresh_until:
                page = await exposition(namesrv, server)
                fresh_until = namesrv.clock.monotonic() + FRESH_SECONDS
        return Response(page, media_type=CONTENT_TYPE, headers=_NO_STORE)

    pages = {"/livez": livez, "/readyz": readyz, "/metrics": metrics}

    async def not_found(_: Request, __: Exception) -> Response:
        return PlainTextResponse(f"not found; try {', '.join(pages)}\n", 404)

    routes = [Route(path, page, methods=["GET"]) for path, page in pages.items()]
    app = Starlette(routes=routes, exception_handlers={404: not_found})
    app.router.redirect_slashes = False
    return _Counting(app, frozenset(pages), namesrv.counters.http)


class _Counting:
    """Counts the answers of an application by path and status; unknown paths together."""

    def __init__(self, app: ASGIApp, paths: frozenset[str], counts: Counter[tuple[str, int]]) -> None:
        self._app = app
        self._paths = paths
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = scope["path"]
                self._counts[path if path in self._paths else "other", message["status"]] += 1
            await send(message)

        # only the end of the listener cancels, and uvicorn would log that as a bug
        with contextlib.suppress(asyncio.CancelledError):
            await self._app(scope, receive, counting)


def _checked(checks: list[Check], request: Request) -> Response:
    is_ok = all(check.is_ok for check in checks)
    text = report(checks, verbose="verbose" in request.query_params)
    return PlainTextResponse(text, 200 if is_ok else 503, headers=_NO_STORE)
