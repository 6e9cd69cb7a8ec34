"""Signing in and out: the pages and their handlers."""

import asyncio
import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from namesrv_console.access.guard import EXPIRED, NEXT, SAFE, form_of
from namesrv_console.access.identity import SESSION_KEY, Identity
from namesrv_console.access.limit import LoginLimit
from namesrv_console.access.oidc import CALLBACK, Oidc, SignInError
from namesrv_console.access.trail import Trail, cut
from namesrv_console.access.users import MAX_NAME, User
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import event
from namesrv_runtime.threads import in_thread

logger: Final = logging.getLogger(__name__)

HOME: Final = "/"
# Verifying a password takes 64 MiB and a whole core: other attempts wait, and beyond _MAX_WAITING are refused.
_VERIFIED_AT_ONCE: Final = 1
_MAX_WAITING: Final = 8
# A path of this console. Two slashes would begin a host, also those that browsers make of backslashes.
_PATH: Final = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")

# Renders a template for a request, with values, as a response with a status.
Render = Callable[[Request, str, Mapping[str, Any], int], Response]


def safe_path(target: object) -> str:
    """The target of a redirect if the target is a page of this console, else the home page."""
    return target if isinstance(target, str) and _PATH.fullmatch(target) else HOME


def safe_next(target: object) -> str:
    """The target of the redirect after signing in; the login and logout pages are not allowed."""
    path = safe_path(target)
    return HOME if path.startswith(("/login", "/logout")) else path


def login_url(conn: HTTPConnection) -> str:
    """URL of the login page, which leads back to the requested page, or to that of the sent form."""
    try:
        url = conn.url if conn.scope["method"] in SAFE else urlsplit(conn.headers.get("referer", ""))
    except ValueError:
        # Any program can send a referer that is not a URL.
        return "/login"
    target = url.path + (f"?{url.query}" if url.query else "")
    return f"/login?{urlencode({NEXT: target})}" if safe_next(target) != HOME else "/login"


class Login:
    """The ways to sign in that the settings name."""

    def __init__(self, identity: Identity, *, trail: Trail | None, clock: Clock, render: Render) -> None:
        self._identity = identity
        self._trail = trail
        self._clock = clock
        self._render = render
        self._limit = LoginLimit()
        self._oidc = None if identity.settings.oidc_issuer is None else Oidc(identity.settings)
        self._verifying = asyncio.Semaphore(_VERIFIED_AT_ONCE)
        self._waiting = 0

    def routes(self) -> list[Route]:
        """Routes of these pages."""
        routes = [Route("/login", self.page, methods=["GET"]), Route("/logout", self.sign_out, methods=["POST"])]
        if self._identity.users is not None:
            routes.append(Route("/login", self.sign_in, methods=["POST"]))
        if self._oidc is not None:
            routes.append(Route("/login/oidc", self.go_to_provider, methods=["GET"]))
            routes.append(Route(CALLBACK, self.come_back, methods=["GET"]))
        return routes

    async def page(self, request: Request) -> Response:
        """Show the login page, or redirect a user who has signed in already."""
        if request.user.is_authenticated or not self._identity.settings.has_login:
            return RedirectResponse(safe_next(request.query_params.get(NEXT)), 303)
        error = EXPIRED if EXPIRED in request.query_params else None
        return self._page(request, request.query_params.get(NEXT), 200, error=error)

    async def sign_in(self, request: Request) -> Response:
        """Verify the password of a login form."""
        form = form_of(request)
        # A name beyond MAX_NAME belongs to no user; the limit remembers names, so a name is cut first.
        name, target, now = form.get("name", "")[: MAX_NAME + 1], form.get(NEXT), self._clock.monotonic()
        address = self._identity.address_of(request)
        wait = self._limit.wait_seconds(address, name, now)
        if wait > 0 or self._waiting >= _MAX_WAITING:
            seconds = max(1, math.ceil(wait))
            self._record_refusal(name, address, "rate", f"too many attempts, next in {seconds} s")
            response = self._page(request, target, 429, error="wait", seconds=seconds, name=name)
            response.headers["Retry-After"] = str(seconds)
            return response
        self._limit.attempted(address, name, now)
        users = self._identity.users
        assert users is not None  # noqa: S101 - the route exists only with a users file
        self._waiting += 1
        try:
            async with self._verifying:
                entry = await in_thread(users.verify, name, form.get("password", ""))
        finally:
            self._waiting -= 1
        if entry is None:
            self._record_refusal(name, address, "password", "unknown user or wrong password")
            return self._page(request, target, 401, error="wrong", name=name)
        self._limit.succeeded(address, name)
        return self._welcome(request, User(name, entry.role, "password"), target, password_hash=entry.password_hash)

    async def go_to_provider(self, request: Request) -> Response:
        """Redirect the user to the provider."""
        request.session[NEXT] = safe_next(request.query_params.get(NEXT))
        try:
            return await self._provider.redirect(request)
        except SignInError as error:
            return self._not_by_provider(request, error)

    async def come_back(self, request: Request) -> Response:
        """Read the user's name and groups from the provider's redirect."""
        target = request.session.get(NEXT)
        try:
            claimed = await self._provider.claimed(request)
        except SignInError as error:
            return self._not_by_provider(request, error)
        role = self._identity.settings.role_of(claimed.name, claimed.groups)
        if role is None:
            self._record_refusal(
                claimed.name, self._identity.address_of(request), "role", "neither viewer nor operator"
            )
            return self._page(request, target, 403, error="no_role", name=claimed.name)
        return self._welcome(request, User(claimed.name, role, "oidc"), target)

    async def sign_out(self, request: Request) -> Response:
        """End the session, in every tab."""
        self._identity.sessions.end(str(request.session.get(SESSION_KEY, "")))
        request.session.clear()
        return RedirectResponse("/login" if self._identity.settings.has_login else HOME, 303)

    @property
    def _provider(self) -> Oidc:
        assert self._oidc is not None  # noqa: S101 - the route exists only with a provider
        return self._oidc

    def _welcome(self, request: Request, user: User, target: object, *, password_hash: str = "") -> Response:
        # The old session ends here, and its CSRF token with it, even if the token was for another user's forms.
        self._identity.sessions.end(str(request.session.get(SESSION_KEY, "")))
        request.session.clear()
        request.session[SESSION_KEY] = self._identity.sessions.begin(user, password_hash)
        address = self._identity.address_of(request)
        event(logger, logging.INFO, "signed_in", user=user.name, role=user.role, source=user.source, address=address)
        if self._trail is not None:
            self._trail.signed_in(user, address)
        return RedirectResponse(safe_next(target), 303)

    def _not_by_provider(self, request: Request, error: SignInError) -> Response:
        self._record_refusal("", self._identity.address_of(request), "oidc", str(error))
        return self._page(request, request.session.get(NEXT), 502, error="provider")

    def _record_refusal(self, name: str, address: str, reason: str, remark: str) -> None:
        event(logger, logging.WARNING, "sign_in_refused", user=name, address=address, reason=reason, remark=remark)
        if self._trail is not None and reason != "rate":
            self._trail.refused(name, address, "SIGN_IN", reason, remark)

    def _page(self, request: Request, target: object, status: int, **values: Any) -> Response:
        values |= {
            "next": safe_next(target),
            "next_query": urlencode({NEXT: safe_next(target)}),
            "has_password": self._identity.users is not None,
            "has_provider": self._oidc is not None,
            "name": cut(str(values.get("name", ""))),
            "error": values.get("error"),
            "seconds": values.get("seconds", 0),
        }
        return self._render(request, "login", values, status)
