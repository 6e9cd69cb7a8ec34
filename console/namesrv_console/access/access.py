"""Puts access control together: the middleware of a Starlette application, and the routes to add to it."""

import logging
import secrets
from typing import Final

from starlette.authentication import AuthenticationError
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from namesrv_console.access.guard import Guard, SecurityHeaders, accepts_html
from namesrv_console.access.identity import Identity, is_public
from namesrv_console.access.login import Login, Render, login_url
from namesrv_console.access.settings import AccessSettings
from namesrv_console.access.trail import Trail
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

_COOKIE: Final = "namesrv-console"


class Access:
    """The access rules of one console. Raises ValueError for a users file that cannot be used."""

    def __init__(self, settings: AccessSettings, *, clock: Clock, render: Render, trail: Trail | None = None) -> None:
        self.settings = settings
        self.trail = trail
        self.identity = Identity(settings, clock)
        self._login = Login(self.identity, trail=trail, clock=clock, render=render)

    def routes(self) -> list[Route]:
        """Routes of the pages to sign in and out."""
        return self._login.routes()

    def middleware(self) -> list[Middleware]:
        """Middleware of the application, the outermost first."""
        settings = self.settings
        return [
            Middleware(SecurityHeaders, is_https=settings.is_https),
            Middleware(TrustedHostMiddleware, allowed_hosts=settings.allowed_hosts, www_redirect=False),
            Middleware(
                SessionMiddleware,
                # The key is known to this process alone, so that a restart ends all sessions.
                secret_key=secrets.token_urlsafe(32),
                # Browsers accept a cookie with the prefix __Host- only over HTTPS and for this host and the path /, so
                # that another host of the domain cannot set the cookie.
                session_cookie=f"__Host-{_COOKIE}" if settings.is_https else _COOKIE,
                max_age=round(settings.session_hours * 3600),
                # Lax: a link from another site opens a page for a signed-in user; changes need the CSRF token as well.
                same_site="lax",
                https_only=settings.is_https,
            ),
            Middleware(AuthenticationMiddleware, backend=self.identity, on_error=self._ask),
            Middleware(Guard, may_go_on=self._may_go_on, record_refusal=self._record_refusal),
        ]

    def _may_go_on(self, conn: HTTPConnection) -> bool:
        return is_public(conn.url.path) or self.identity.user_of(conn) is not None

    def _record_refusal(self, conn: HTTPConnection, why: str) -> None:
        """Log and audit a refused change of a signed-in user; requests without a session are not logged."""
        if not conn.user.is_authenticated:
            return
        name, address, path = conn.user.name, self.identity.address_of(conn), conn.url.path
        event(logger, logging.WARNING, "change_refused", user=name, address=address, path=path, reason=why)
        if self.trail is not None:
            self.trail.refused(name, address, path, "forbidden", why)

    def _ask(self, conn: HTTPConnection, error: AuthenticationError) -> Response:
        """Redirect browsers to the login page, and send an error to programs."""
        if not self.settings.has_login:
            return PlainTextResponse("come through the proxy in front of this console, and sign in there\n", 403)
        if accepts_html(conn):
            return RedirectResponse(login_url(conn), 303)
        return PlainTextResponse(f"{error}\n", 401)
