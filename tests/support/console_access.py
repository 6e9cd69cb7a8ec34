"""A small application behind the console's access control on a real socket, with users whose hashes are cheap."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import httpx2
from argon2 import PasswordHasher
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from namesrv.observability.http import HttpListener
from namesrv_console.access.access import Access
from namesrv_console.access.guard import csrf_token
from namesrv_console.access.settings import AccessSettings
from tests.support.fake_clock import FakeClock

HTML: Final = {"accept": "text/html"}
PASSWORD: Final = "correct horse battery"
# two viewers and one operator
USERS: Final = {"vera": "viewer", "olga": "operator"}
# a hash contains its cost parameters; these make it fast
_CHEAP: Final = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def write_users(path: Path, users: Mapping[str, str] | None = None) -> Path:
    """Write a users file; each password is PASSWORD plus the user's name."""
    listed = USERS if users is None else users
    lines = [f"{name}:{role}:{_CHEAP.hash(f'{PASSWORD} of {name}')}\n" for name, role in listed.items()]
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_text("".join(lines))
    return new.replace(path)


def small_app(settings: AccessSettings, clock: FakeClock) -> Starlette:
    """An application with pages that show the user, a change and a stream."""

    async def who(request: Request) -> Response:
        user = request.user
        return JSONResponse({"name": user.name, "role": user.role, "source": user.source, "csrf": csrf_token(request)})

    async def change(request: Request) -> Response:
        return PlainTextResponse("changed")

    async def stream(request: Request) -> Response:
        async def ticks() -> AsyncIterator[str]:
            while True:
                yield "tick\n"
                await clock.sleep(1.0)

        return StreamingResponse(ticks(), media_type="text/event-stream")

    def render(request: Request, template: str, values: Mapping[str, Any], status: int) -> Response:
        return JSONResponse({"template": template, "csrf": csrf_token(request), **values}, status)

    access = Access(settings, clock=clock, render=render)
    pages = [
        Route("/", who),
        Route("/topics", who),
        Route("/live", stream),
        Route("/actions/x", change, methods=["POST"]),
        Route("/static/x", lambda _: PlainTextResponse("static")),
        *access.routes(),
    ]
    return Starlette(routes=pages, middleware=access.middleware())


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an application; yield its URL."""
    listener = HttpListener(app, Counter())
    [(host, port)] = await listener.listen("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        await listener.close()


def browser(url: str, **options: Any) -> httpx2.AsyncClient:
    """An HTTP client with its own cookies."""
    return httpx2.AsyncClient(base_url=url, trust_env=False, **options)


@asynccontextmanager
async def small_console(clock: FakeClock, **settings: Any) -> AsyncIterator[str]:
    """Serve the small application; yield its URL."""
    async with served(small_app(AccessSettings(**settings), clock)) as url:
        yield url


async def sign_in(
    client: httpx2.AsyncClient, name: str, *, password: str | None = None, to: str = "/"
) -> httpx2.Response:
    """Submit the sign-in form."""
    page = (await client.get("/login", params={"next": to})).json()
    typed = f"{PASSWORD} of {name}" if password is None else password
    return await client.post(
        "/login", data={"csrf": page["csrf"], "next": page["next"], "name": name, "password": typed}
    )


class _Inputs(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        if tag == "input" and (name := about.get("name")):
            self.found[name] = about.get("value") or ""


def fields(html: str) -> dict[str, str]:
    """The inputs of a page, as a browser would send them."""
    parser = _Inputs()
    parser.feed(html)
    return parser.found


async def csrf(client: httpx2.AsyncClient) -> str:
    """The CSRF token of this browser's forms."""
    return str((await client.get("/")).json()["csrf"])
