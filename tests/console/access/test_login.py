"""Signing in with a password, and what a session may do, over real sockets."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from tests.support.console_access import (
    HTML,
    PASSWORD,
    browser,
    csrf,
    sign_in,
    small_console,
    write_users,
)
from tests.support.fake_clock import GUARD_SECONDS, FakeClock


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """The file of the users."""
    return write_users(tmp_path / "users")


async def test_pages_require_a_sign_in(users: Path) -> None:
    """Browsers are redirected to the login page, programs get an error; the files of the login page are public."""
    async with small_console(FakeClock(), users=users) as url, browser(url) as client:
        asked = await client.get("/topics?q=a b&x=1", headers=HTML)
        assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=%2Ftopics%3Fq%3Da%2520b%26x%3D1")
        assert [(await client.get(path)).status_code for path in ("/topics", "/live", "/static/x")] == [401, 401, 200]
        assert (await client.post("/actions/x")).status_code == 401

        assert (await sign_in(client, "olga", password="wrong")).status_code == 401
        assert (await sign_in(client, "unknown")).status_code == 401
        done = await sign_in(client, "olga", to="/topics?q=a%20b")
        assert (done.status_code, done.headers["location"]) == (303, "/topics?q=a%20b")
        flags = done.headers["set-cookie"].partition(";")[2]
        assert f";{flags}" == "; path=/; Max-Age=28800; httponly; samesite=lax"
        who = (await client.get("/topics")).json()
        assert (who["name"], who["role"], who["source"]) == ("olga", "operator", "password")


async def test_form_of_an_ended_session_leads_to_the_login_page(users: Path) -> None:
    """The page of the form comes back after the sign-in; so does a login page that was open for too long."""
    clock = FakeClock()
    async with small_console(clock, users=users) as url, browser(url) as client:
        await sign_in(client, "olga")
        stale = {"csrf": await csrf(client), "name": "olga", "password": f"{PASSWORD} of olga"}
        await clock.advance(8 * 3600)

        page = f"{url}/acknowledge?kind=k&subject=a%2Fb"
        sent = await client.post("/actions/x", data=stale, headers={**HTML, "referer": page})
        assert (sent.status_code, sent.headers["location"]) == (
            303,
            "/login?next=%2Facknowledge%3Fkind%3Dk%26subject%3Da%252Fb",
        )
        for referer in ("https://evil//evil", "https://["):
            sent = await client.post("/actions/x", data=stale, headers={**HTML, "referer": referer})
            assert (sent.status_code, sent.headers["location"]) == (303, "/login")
        sent = await client.post("/login", data={**stale, "csrf": "old", "next": "/topics?q=a"}, headers=HTML)
        assert (sent.status_code, sent.headers["location"]) == (303, "/login?expired=1&next=%2Ftopics%3Fq%3Da")
        again = (await client.get(sent.headers["location"])).json()
        assert (again["error"], again["next"]) == ("expired", "/topics?q=a")


async def test_change_needs_the_token_of_its_own_session(users: Path) -> None:
    """A form without the session's CSRF token is refused: another site's page cannot read the token."""
    async with small_console(FakeClock(), users=users) as url, browser(url) as olga, browser(url) as other:
        before = (await olga.get("/login")).json()["csrf"]
        await sign_in(olga, "olga")
        await sign_in(other, "olga")
        good = await csrf(olga)
        for bad in ({}, {"csrf": ""}, {"csrf": "x"}, {"csrf": "é"}, {"csrf": before}, {"csrf": await csrf(other)}):
            assert (await olga.post("/actions/x", data=bad)).status_code == 403
        assert (await olga.post("/actions/x", json={"csrf": good})).status_code == 403
        for site in ("cross-site", "same-site"):
            sent = await olga.post("/actions/x", data={"csrf": good}, headers={"sec-fetch-site": site})
            assert sent.status_code == 403
        assert (await olga.post("/logout")).status_code == 403

        assert (await olga.post("/actions/x", data={"csrf": good})).status_code == 200
        assert (await olga.post("/actions/x", data={"csrf": good, "value": "x" * 70_000})).status_code == 413
        assert (await olga.post("/actions/x", data={f"f{n}": "" for n in range(40)})).status_code == 413


async def test_sign_in_makes_a_new_session(users: Path) -> None:
    """A cookie that an attacker planted in a browser does not become the session of the user who signs in there."""
    async with small_console(FakeClock(), users=users) as url, browser(url) as attacker, browser(url) as victim:
        await sign_in(attacker, "vera")
        planted = attacker.cookies["namesrv-console"]
        victim.cookies.set("namesrv-console", planted, domain="127.0.0.1", path="/")
        token = await csrf(victim)

        page = {"csrf": token, "next": "/", "name": "olga", "password": "correct horse battery of olga"}
        assert (await victim.post("/login", data=page)).status_code == 303
        assert (await victim.get("/")).json()["name"] == "olga"
        assert planted != victim.cookies["namesrv-console"]
        # The planted session is not olga's, and has ended.
        assert (await attacker.get("/")).status_code == 401
        assert (await victim.post("/actions/x", data={"csrf": token})).status_code == 403


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "/\t/evil.example",
        "/ /x\r\nSet-Cookie: a=b",
        "javascript:alert(1)",
        "topics",
        "",
        "/logout",
        "/login?next=/login",
    ],
)
async def test_sign_in_never_redirects_to_another_site(users: Path, target: str) -> None:
    """The redirect after a sign-in leads to a page of this console, even if `next` names another site."""
    async with small_console(FakeClock(), users=users) as url, browser(url) as client:
        token = (await client.get("/login", params={"next": target})).json()["csrf"]
        form = {"csrf": token, "next": target, "name": "vera", "password": "correct horse battery of vera"}
        assert (await client.post("/login", data=form)).headers["location"] == "/"
        assert (await client.get("/login", params={"next": target})).headers["location"] == "/"


async def test_sign_in_attempts_are_limited(users: Path) -> None:
    """An address has five attempts at once, then one in half a minute; the right password has to wait, too."""
    clock = FakeClock()
    async with small_console(clock, users=users) as url, browser(url) as client:
        codes = [(await sign_in(client, "olga", password=f"guess {n}")).status_code for n in range(6)]
        assert codes == [401] * 5 + [429]
        refused = await sign_in(client, "olga")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")

        await clock.advance(30.0)
        assert (await sign_in(client, "olga")).status_code == 303
        assert (await client.get("/")).json()["name"] == "olga"


async def test_session_ends_when_its_user_changes(users: Path) -> None:
    """A sign-out, a new password, a removed or demoted user, and the end of the session count at once."""
    clock = FakeClock()
    async with small_console(clock, users=users) as url, browser(url) as client:
        await sign_in(client, "olga")
        copied = dict(client.cookies)
        assert (await client.post("/logout", data={"csrf": await csrf(client)})).headers["location"] == "/login"
        async with browser(url, cookies=copied) as thief:
            assert (await thief.get("/")).status_code == 401

        await sign_in(client, "olga")
        # The salt is new, so the hash differs.
        write_users(users)
        assert (await client.get("/")).status_code == 401

        await sign_in(client, "olga")
        users.write_text(users.read_text().replace("olga:operator", "olga:viewer"))
        assert (await client.get("/")).json()["role"] == "viewer"
        users.write_text("broken")
        assert (await client.get("/")).status_code == 200
        write_users(users, {"vera": "viewer"})
        assert (await client.get("/")).status_code == 401

        await sign_in(client, "vera")
        await clock.advance(8 * 3600.0 - 1)
        assert (await client.get("/")).status_code == 200
        await clock.advance(1)
        assert (await client.get("/")).status_code == 401


async def test_stream_ends_with_its_session(users: Path) -> None:
    """The stream of an open tab ends when its user signs out."""
    clock = FakeClock()
    async with small_console(clock, users=users) as url, browser(url) as client:
        await sign_in(client, "vera")
        async with client.stream("GET", "/live") as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "tick"
            await clock.advance(1.0)
            assert await anext(lines) == "tick"
            write_users(users, {"olga": "operator"})
            await clock.advance(1.0)
            assert [line async for line in lines] == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1"])
async def test_wrong_host_is_refused(host: str) -> None:
    """A Host header with another name is refused on every path: a page may resolve its own name to loopback."""
    async with small_console(FakeClock()) as url, browser(url) as client:
        assert (await client.get("/", headers={"host": host})).status_code == 400
        for mine in ("localhost:8000", "[::1]:8000", "127.0.0.1"):
            assert (await client.get("/", headers={"host": mine})).status_code == 200


async def test_every_response_has_the_security_headers(users: Path) -> None:
    """Refusals have them, too: no inline code, no content of other origins, no frame, no cache."""
    async with small_console(FakeClock(), users=users) as url, browser(url) as client:
        answers = [
            await client.get("/login"),
            await client.get("/"),
            await client.post("/login"),
            await client.get("/", headers={"host": "evil"}),
        ]
        assert [answer.status_code for answer in answers] == [200, 401, 403, 400]
        for answer in answers:
            policy = answer.headers["content-security-policy"].split("; ")
            assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= {*policy}
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert (
                answer.headers["x-content-type-options"],
                answer.headers["cache-control"],
            ) == ("nosniff", "no-store")
            assert "strict-transport-security" not in answer.headers


async def test_open_console_only_shows() -> None:
    """On loopback without users all users of the machine may read, and none may make changes."""
    async with small_console(FakeClock()) as url, browser(url) as client:
        who = (await client.get("/")).json()
        assert (who["name"], who["role"], who["source"]) == ("", "viewer", "open")
        assert (await client.post("/actions/x", data={"csrf": who["csrf"]})).status_code == 403
        assert ((answer := await client.get("/login")).status_code, answer.headers["location"]) == (303, "/")


async def test_wrong_passwords_behind_a_proxy_lock_out_their_sender_only(users: Path) -> None:
    """The client is the last address of the last X-Forwarded-For line, which a client cannot replace.

    A user header from such a proxy is ignored.
    """
    proxied = {"forwarded_for_from": ("127.0.0.0/8",), "users": users}
    async with small_console(FakeClock(), **proxied) as url, browser(url) as proxy:

        async def status(*forwarded: str, password: str) -> int:
            proxy.cookies.clear()
            token = (await proxy.get("/login")).json()["csrf"]
            form = {"csrf": token, "name": "olga", "password": password}
            headers = [("x-forwarded-for", line) for line in forwarded]
            return (await proxy.post("/login", data=form, headers=headers)).status_code

        for number in range(5):
            line = f"203.0.113.{number}, 198.51.100.7"
            assert await status(f"203.0.113.{number}", line, password="wrong") == 401
        assert await status("192.0.2.1", "192.0.2.1, 198.51.100.7", password="wrong") == 429
        assert await status("198.51.100.7, 198.51.100.8", password=f"{PASSWORD} of olga") == 303
        proxy.cookies.clear()
        assert (await proxy.get("/", headers={**HTML, "x-forwarded-user": "olga"})).status_code == 303


async def test_attempts_beyond_eight_that_wait_are_refused(users: Path) -> None:
    """Verifying a password takes a whole core; attempts from many addresses cannot queue up without a bound."""
    gate = threading.Event()
    async with small_console(FakeClock(), users=users) as url, AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                browser(url, transport=httpx2.AsyncHTTPTransport(local_address=f"127.0.0.{number}"))
            )
            for number in range(2, 11)
        ]
        pages = [(await client.get("/login")).json() for client in clients]
        executor = ThreadPoolExecutor(1)
        executor.submit(gate.wait, GUARD_SECONDS)
        asyncio.get_running_loop().set_default_executor(executor)
        sending = [
            asyncio.create_task(client.post("/login", data={"csrf": page["csrf"], "name": "olga", "password": "wrong"}))
            for client, page in zip(clients, pages, strict=True)
        ]
        answered, waiting = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        gate.set()
        refused = answered.pop().result()
        assert (refused.status_code, refused.headers["retry-after"], len(waiting)) == (429, "1", 8)
        assert [(await each).status_code for each in waiting] == [401] * 8
