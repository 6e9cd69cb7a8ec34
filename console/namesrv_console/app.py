"""The console as an ASGI application: its pages, their live parts, the search field, static files."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from namesrv_console.access.access import Access
from namesrv_console.access.guard import accepts_html, csrf_token, is_operator
from namesrv_console.access.identity import is_public
from namesrv_console.access.login import safe_path
from namesrv_console.actions import pages as actions
from namesrv_console.actions.pages import ActionPages
from namesrv_console.attending import AttendingPages
from namesrv_console.catalogue import LANGUAGES, catalogue, chosen_language
from namesrv_console.console import Console, Page, Visit
from namesrv_console.live import MAX_STREAMS, LivePages, LiveStream
from namesrv_console.pages import (
    audit,
    brokers,
    clients,
    diff,
    kv,
    overview,
    past,
    rates,
    search,
    settings,
    topic,
    topics,
    topology,
)
from namesrv_console.templating import Templates

# Pages in the order of the menu, whose groups are made of them.
PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    topology.PAGE,
    brokers.PAGE,
    brokers.DETAIL,
    topics.PAGE,
    topic.PAGE,
    rates.PAGE,
    diff.PAGE,
    diff.EXPORT,
    clients.PAGE,
    settings.PAGE,
    kv.PAGE,
    *past.PAGES,
    audit.PAGE,
    search.PAGE,
)

THEMES: Final = ("light", "dark")
_YEAR_SECONDS: Final = 365 * 24 * 3600
_FRESH: Final = {"cache-control": "no-store", "vary": "cookie, accept-language"}


def create_app(console: Console) -> Starlette:
    """The web application of a console; `Console.run` keeps its data up to date."""
    served = _Served(console)
    access = Access(console.settings.access, clock=console.clock, render=served.render, trail=console.trail)
    routes = access.routes()
    if console.settings.access.actions:
        routes += ActionPages(console, served.render, access.identity.address_of).routes()
    routes += AttendingPages(console, served.render, access.identity.address_of).routes()
    app = Starlette(
        routes=[
            *(Route(page.path, served.endpoint(page), methods=["GET"], name=page.name) for page in served.pages),
            Route("/live", served.live, methods=["GET"]),
            Route("/preferences", preferences, methods=["GET"]),
            Mount("/static", _StaticFiles(packages=[("namesrv_console", "static")])),
            *routes,
        ],
        middleware=access.middleware(),
        exception_handlers={HTTPStatus.NOT_FOUND: served.not_found},
    )
    app.state.live = served.live_pages
    return app


class _StaticFiles(StaticFiles):
    """Static files, which browsers may cache for a year: the URLs in pages contain a version."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """The response with a file."""
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = f"public, max-age={_YEAR_SECONDS}, immutable"
        return response


class _Served:
    """The pages of a console, whole and live."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.pages = (*PAGES, actions.PAGE) if console.settings.access.actions else PAGES
        self._templates = Templates(self.pages)
        self.live_pages = LivePages(console, self._templates)
        self._by_path = {page.path: page for page in self.pages if page.is_live}

    def endpoint(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        """The handler of requests for a page."""

        async def respond(request: Request) -> Response:
            query = self._query(page, request.query_params, request)
            if isinstance(query, Response):
                return self._framed(request, query)
            visit = self._visit(query, _language(request))
            content = await page.handler(visit)
            if isinstance(content, Response):
                return self._framed(request, content)
            if (part := request.query_params.get("part")) in page.parts:
                return HTMLResponse(self._templates.parts(page, visit, content)[part], headers=_FRESH)
            html = self._templates.page(page, visit, {**content, **self._about(request, visit)}, theme=_theme(request))
            return HTMLResponse(html, headers=_FRESH)

        return respond

    def render(self, request: Request, template: str, values: Mapping[str, Any], status: int) -> Response:
        """A page from a template that is not in the menu, for the user of the request."""
        visit = self._visit(request.query_params, _language(request))
        values = {**values, **self._about(request, visit)}
        # The live frame of the page of one action is that of the page with all actions.
        is_action = request.url.path.startswith(f"{actions.PAGE.path}/")
        frame = actions.PAGE if is_action else overview.PAGE
        values |= {"here": frame.path} if is_action or not request.url.path.startswith("/login") else {}
        html = self._templates.page(frame, visit, values, theme=_theme(request), template=template)
        return HTMLResponse(html, status, headers=_FRESH)

    async def not_found(self, request: Request, _error: Exception) -> Response:
        """The response for a path without a page."""
        # A public path may be that of a visitor who is not signed in, and the frame shows the servers.
        if is_public(request.url.path) or not accepts_html(request):
            return PlainTextResponse("no such page\n", HTTPStatus.NOT_FOUND)
        return self.render(request, "not_found", {"path": request.url.path}, HTTPStatus.NOT_FOUND)

    def _framed(self, request: Request, response: Response) -> Response:
        """The response; a browser gets the text of an error in the frame of the pages."""
        if response.status_code < HTTPStatus.BAD_REQUEST or not accepts_html(request):
            return response
        return self.render(request, "not_shown", {"why": bytes(response.body).decode().rstrip()}, response.status_code)

    async def live(self, request: Request) -> Response:
        """The event stream of one tab, or with `once` its first message.

        In the query, `of` is the page, and `since` the event id that the tab has seen.
        """
        path, _, text = request.query_params.get("of", "/").partition("?")
        page = self._by_path.get(path)
        if page is None:
            return PlainTextResponse("no such page\n", HTTPStatus.NOT_FOUND)
        if self.live_pages.streams >= MAX_STREAMS:
            return PlainTextResponse("too many open tabs\n", HTTPStatus.SERVICE_UNAVAILABLE)
        seen = request.headers.get("last-event-id") or request.query_params.get("since", "")
        query, language = self._query(page, dict(parse_qsl(text)), request), _language(request)
        if isinstance(query, Response):
            return query
        since = self.live_pages.revision_of(seen)
        if "once" in request.query_params:
            with self.live_pages.opened(page, query, language) as live:
                _, news = await self.live_pages.news(live, since)
            return JSONResponse(news, headers=_FRESH)
        return LiveStream(self.live_pages, page, query, language=language, since=since)

    def _about(self, request: Request, visit: Visit) -> dict[str, object]:
        """Values for the frame, also about the user.

        The CSRF token, which makes a session, is there only if the page has a form.
        """
        user, here = request.user, _here(request)
        has_form = user.is_authenticated or here.startswith("/login")
        may_act = self._console.settings.access.actions and is_operator(request)
        csrf = csrf_token(request) if has_form else ""
        event_id = self.live_pages.event_id(visit.cluster.revision)
        return {"user": user, "csrf": csrf, "here": here, "may_act": may_act, "event_id": event_id}

    def _query(self, page: Page, given: Mapping[str, str], request: Request) -> dict[str, str] | Response:
        """The part of a query that the page reads, and its cookies; or an error for a value that is too long."""
        servers = self._console.settings.servers
        names = [f"{name}{server}" for name in page.fields for server in (servers if name.endswith(":") else [""])]
        query = {name: given[name] for name in names if name in given}
        for name, value in query.items():
            if len(value) > page.max_characters:
                # A cut name would be that of another topic.
                text = f"{name}: longer than {page.max_characters:,} characters\n"
                return PlainTextResponse(text, HTTPStatus.BAD_REQUEST)
        return query | {name: request.cookies[name] for name in page.cookies if name in request.cookies}

    def _visit(self, query: Mapping[str, str], language: str) -> Visit:
        console = self._console
        return Visit(console, console.observed.cluster, dict(query), catalogue(language), console.clock.monotonic())


async def preferences(request: Request) -> Response:
    """Store the chosen language or colours in a cookie, and redirect to the previous page."""
    response = RedirectResponse(safe_path(request.query_params.get("back")), 303)
    for name, choices in (("language", LANGUAGES), ("theme", (*THEMES, "auto"))):
        if (wanted := request.query_params.get(name)) in choices:
            response.set_cookie(name, str(wanted), max_age=_YEAR_SECONDS, samesite="lax", httponly=True)
    return response


def _language(request: Request) -> str:
    return chosen_language(request.cookies.get("language"), request.headers.get("accept-language", ""))


def _theme(request: Request) -> str | None:
    theme = request.cookies.get("theme")
    return theme if theme in THEMES else None


def _here(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
