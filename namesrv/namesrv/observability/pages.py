"""The pages of the HTTP port: /livez (is the server alive?), /readyz (is it ready to answer?), /metrics, discovery."""

import asyncio
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from namesrv.context import Namesrv
from namesrv.net.remoting_server import RemotingServer
from namesrv.observability.discovery import NAME_SERVERS_PAGE, TARGETS_PAGE, Discovery
from namesrv.observability.health import all_problems, crl_text, expiry_text
from namesrv.observability.hosts import is_own_host
from namesrv.observability.metrics import CONTENT_TYPE, exposition
from namesrv_remoting.bodies.extensions import ServerProblem
from namesrv_runtime.log import printable

PAGES: Final = ("/livez", "/readyz", "/metrics", NAME_SERVERS_PAGE, TARGETS_PAGE)
_NO_STORE = {"Cache-Control": "no-store"}
# A rendered page is served again for this time, because rendering takes as long as hundreds of pulls.
FRESH_SECONDS: Final = 0.25
# Housekeeping runs every second; if it has not run for this time, the server needs a restart.
STUCK_SECONDS: Final = 30.0
_SHOWN_CHARACTERS: Final = 64


class Check(NamedTuple):
    """One check and its result."""

    name: str
    is_ok: bool
    # the result in words
    result: str

    def __str__(self) -> str:
        return f"[{'+' if self.is_ok else '-'}] {self.name}: {self.result}"


def application(namesrv: Namesrv, server: RemotingServer, discovery: Discovery) -> ASGIApp:
    """The application with all pages."""
    # Metrics are rendered for one request at a time; the last page is kept until it is too old.
    scraping = asyncio.Lock()
    page, fresh_until = b"", -math.inf

    async def livez(request: Request) -> Response:
        return _checked(liveness(namesrv), (), request)

    async def readyz(request: Request) -> Response:
        is_verbose = "verbose" in request.query_params
        return _checked(readiness(namesrv), await all_problems(namesrv) if is_verbose else (), request)

    async def metrics(_: Request) -> Response:
        nonlocal page, fresh_until
        async with scraping:
            if namesrv.clock.monotonic() >= fresh_until:
                page = await exposition(namesrv, server)
                fresh_until = namesrv.clock.monotonic() + FRESH_SECONDS
        return Response(page, media_type=CONTENT_TYPE, headers=_NO_STORE)

    async def not_found(_: Request, __: Exception) -> Response:
        return PlainTextResponse(f"not found; try {', '.join(PAGES)}\n", 404)

    pages = {"/livez": livez, "/readyz": readyz, "/metrics": metrics}
    routes = [Route(path, page, methods=["GET"]) for path, page in pages.items()] + discovery.routes()
    app = Starlette(routes=routes, exception_handlers={404: not_found})
    app.router.redirect_slashes = False
    return _for_own_hosts(app, namesrv)


def _for_own_hosts(app: ASGIApp, namesrv: Namesrv) -> ASGIApp:
    """The application for requests that name this server; all other requests get 421."""

    async def for_own_hosts(scope: Scope, receive: Receive, send: Send) -> None:
        # Probes with HTTP/1.0 may send no host; browsers always send one.
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        if is_own_host(host, namesrv.settings.current):
            await app(scope, receive, send)
        else:
            text = f"unknown host {host[:_SHOWN_CHARACTERS]!r}; if it is this server, add it to http-hosts\n"
            await PlainTextResponse(text, 421)(scope, receive, send)

    return for_own_hosts


def _checked(checks: Sequence[Check], problems: Sequence[ServerProblem], request: Request) -> Response:
    """The response with all checks (verbose) or only the failed ones, and the problems, a line each."""
    is_ok = all(check.is_ok for check in checks)
    shown = [str(check) for check in checks if "verbose" in request.query_params or not check.is_ok]
    shown += [f"[!] {one.kind}: {one.why}" for one in problems]
    # The names of brokers, which any peer may choose, are among them.
    text = "\n".join([*map(printable, shown), "ok" if is_ok else "failed", ""])
    return PlainTextResponse(text, 200 if is_ok else 503, headers=_NO_STORE)


def liveness(namesrv: Namesrv) -> list[Check]:
    """Checks whose failure a restart would fix."""
    return [_housekeeping(namesrv)]


def readiness(namesrv: Namesrv) -> list[Check]:
    """Checks that must pass before the server gets route requests."""
    boot = namesrv.boot
    brokers = len(namesrv.manager.tables.broker_live_table)
    return [
        Check("listening", boot.is_listening, "yes" if boot.is_listening else "not yet"),
        Check("brokers", boot.is_ready(), boot.readiness_text()),
        # Never fails: other servers may have no more brokers.
        Check("registered", True, f"{brokers} broker{'' if brokers == 1 else 's'}"),  # noqa: FBT003
        Check("staying", not boot.is_draining, "draining" if boot.is_draining else "yes"),
        *_certificate(namesrv),
        _housekeeping(namesrv),
    ]


def _certificate(namesrv: Namesrv) -> list[Check]:
    """The check of the certificate, which never fails: an expired certificate does not affect open connections."""
    days, problem = namesrv.certificates.days_left(), namesrv.certificates.problem
    if days is None:
        return []
    validity = f"certificate {expiry_text(days)}"
    if (crl := namesrv.certificates.most_urgent_crl()) is not None:
        validity = f"{validity}; {crl_text(crl)}"
    return [Check("tls", True, validity if problem is None else f"{validity}; files not used: {problem}")]  # noqa: FBT003


def _housekeeping(namesrv: Namesrv) -> Check:
    last_tick = namesrv.counters.last_tick
    ago = namesrv.boot.uptime() if last_tick is None else namesrv.clock.monotonic() - last_tick
    return Check("housekeeping", ago <= STUCK_SECONDS, f"last ran {ago:.1f} s ago")
