"""ASGI middleware around every page: security headers, and the checks that a changing request must pass."""

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from starlette.authentication import has_required_scope
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from namesrv_console.style import STYLE_SOURCE

CSRF_FIELD: Final = "csrf"
SAFE: Final = frozenset({"GET", "HEAD"})
# Names in the query of the login page: the page to show after signing in, and a mark after a form of an ended session.
NEXT: Final = "next"
EXPIRED: Final = "expired"
_LOGIN: Final = "/login"
_NOT_OF_SESSION: Final = 403, "this form is not of your session: load the page again"
_OPERATORS_ONLY: Final = 403, "only operators may change something"
# Paths to which viewers and users without a session may send a form, too.
_FOR_ALL: Final = frozenset({_LOGIN, "/logout"})
# A form of the console is small, and arrives at once.
_MAX_FORM_BYTES: Final = 64 * 1024
_MAX_FIELDS: Final = 32
_FORM_SECONDS: Final = 10.0

# Browsers refuse inline scripts, styles but the console's own, content of other origins, frames, plug-ins and another
# base URL.
_CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; script-src 'self'; style-src {STYLE_SOURCE}; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_HSTS: Final = "max-age=31536000"


class SecurityHeaders:
    """Puts the security headers on every response; responses that are not public are kept in no cache."""

    def __init__(self, app: ASGIApp, *, is_https: bool) -> None:
        self._app = app
        self._headers = _HEADERS | ({"Strict-Transport-Security": _HSTS} if is_https else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the headers to its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Guard:
    """Refuses cross-site changes and changes by viewers; ends a response whose session is over.

    The guard reads the form of each request that it accepts: `form_of` returns the fields.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        may_go_on: Callable[[HTTPConnection], bool],
        record_refusal: Callable[[HTTPConnection, str], None],
    ) -> None:
        self._app = app
        self._record_refusal = record_refusal
        # Whether the user of a request is still signed in, and may read more of the response.
        self._may_go_on = may_go_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        if request.method not in SAFE:
            try:
                async with asyncio.timeout(_FORM_SECONDS):
                    refusal = await self._refusal(request)
            except (TimeoutError, ClientDisconnect):
                refusal = 408, "the form did not arrive"
            if refusal is not None:
                self._record_refusal(request, refusal[1])
                response = _refused(refusal)
                if refusal == _NOT_OF_SESSION and request.url.path == _LOGIN and accepts_html(request):
                    # The login page was open for longer than a session lasts, or the console has restarted.
                    query = urlencode({EXPIRED: 1, NEXT: form_of(request).get(NEXT, "")})
                    response = RedirectResponse(f"{_LOGIN}?{query}", 303)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, self._while_allowed(request, send))

    async def _refusal(self, request: Request) -> tuple[int, str] | None:
        """Status and reason of the refusal of a request; None if the request is accepted."""
        if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return 403, "sent by another site"
        form = await _read_form(request)
        if form is None:
            return 413, f"not a valid form of at most {_MAX_FORM_BYTES} bytes and {_MAX_FIELDS} fields"
        request.state.form = form
        sent = form.get(CSRF_FIELD, "")
        token = request.session.get(CSRF_FIELD, "")
        if (
            not token
            or not hmac.compare_digest(sent.encode(), token.encode())
            or _owner(request) != _owner_kept(request)
        ):
            return _NOT_OF_SESSION
        if request.url.path not in _FOR_ALL and not is_operator(request):
            return _OPERATORS_ONLY
        return None

    def _while_allowed(self, request: Request, send: Send) -> Send:
        """A `send` that ends the response after its user has signed out: a stream lasts as long as its tab is open."""
        has_ended = False

        async def send_while_allowed(message: Message) -> None:
            nonlocal has_ended
            if has_ended:
                return
            if message["type"] == "http.response.body" and message.get("more_body") and not self._may_go_on(request):
                has_ended = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            await send(message)

        return send_while_allowed


def _refused(refusal: tuple[int, str]) -> Response:
    status, why = refusal
    return PlainTextResponse(f"{why}\n", status)


def is_operator(conn: HTTPConnection) -> bool:
    """True if the user of a request may change something."""
    return has_required_scope(conn, ["operator"])


def for_operators(show: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """A page that only operators may open."""

    async def shown(request: Request) -> Response:
        return await show(request) if is_operator(request) else _refused(_OPERATORS_ONLY)

    return shown


def accepts_html(conn: HTTPConnection) -> bool:
    """True for a request of a browser for a page, which may be redirected to the login page."""
    return "text/html" in conn.headers.get("accept", "")


def csrf_token(request: HTTPConnection) -> str:
    """The CSRF token for the forms of this session; another user of the session gets another token."""
    if CSRF_FIELD not in request.session or _owner(request) != _owner_kept(request):
        request.session.update({CSRF_FIELD: secrets.token_urlsafe(32), "csrf_of": _owner(request)})
    return str(request.session[CSRF_FIELD])


def form_of(request: Request) -> dict[str, str]:
    """The fields of the form that the guard has read; a handler is called only if the guard has accepted the form."""
    form: dict[str, str] = request.state.form
    return form


def about_of(request: Request) -> dict[str, str]:
    """The fields that name the subject of the form, such as a topic; the form has them as one encoded field.

    Pages show control characters of a name as escapes, and browsers change them, and line breaks, in plain fields.
    """
    return dict(parse_qsl(form_of(request).get("about", ""), keep_blank_values=True))


def _owner(request: HTTPConnection) -> str:
    return str(request.user.identity) if request.user.is_authenticated else ""


def _owner_kept(request: HTTPConnection) -> str:
    return str(request.session.get("csrf_of", ""))


async def _read_form(request: Request) -> dict[str, str] | None:
    """The fields of a form: empty for another content type, None if the form is too long or malformed."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_FORM_BYTES:
            return None
    kind = Headers(scope=request.scope).get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return {}
    try:
        pairs: list[Any] = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"
        )
    except ValueError:
        return None
    return dict(pairs)
