"""Signing in at a real OpenID Connect provider on loopback."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc.jwk import RSAKey

from tests.support.console_access import browser, csrf, small_console
from tests.support.fake_clock import FakeClock
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, oidc_provider

URL = "https://console.example.com"


def settings(provider: Provider) -> Mapping[str, Any]:
    """Those of a console that trusts it."""
    return {
        "public_url": URL,
        "oidc_issuer": provider.issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "viewers": ("@staff",),
        "operators": ("@sre",),
    }


def person(url: str) -> httpx2.AsyncClient:
    """Somebody whose browser believes that it speaks HTTPS, as it does with a proxy in between."""
    return browser(url, headers={"host": "console.example.com"})


async def go(client: httpx2.AsyncClient, *, to: str = "/") -> httpx2.Response:
    """To the provider and back, as a browser follows; the console's last answer."""
    there = await client.get("/login/oidc", params={"next": to})
    keep_cookies(client, there)
    async with httpx2.AsyncClient(trust_env=False) as web:
        back = await web.get(there.headers["location"])
    assert back.headers["location"].startswith(f"{URL}/login/oidc/callback?")
    return await come_back(client, back.headers["location"])


async def come_back(client: httpx2.AsyncClient, location: str) -> httpx2.Response:
    """With what the provider said."""
    parts = urlsplit(location)
    done = await client.get(f"{parts.path}?{parts.query}")
    keep_cookies(client, done)
    return done


def keep_cookies(client: httpx2.AsyncClient, answer: httpx2.Response) -> None:
    """They are for HTTPS only, and so a client that speaks HTTP with us would not send them."""
    if "set-cookie" in answer.headers:
        client.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]


async def test_provider_says_who_it_is() -> None:
    """The page that was asked for comes next; the groups say what somebody may do; the cookie is for HTTPS only."""
    async with oidc_provider(preferred_username="olga", groups=["staff", "sre"]) as provider:
        async with small_console(FakeClock(), **settings(provider)) as url, person(url) as olga:
            done = await go(olga, to="/topics?q=x")
            assert (done.status_code, done.headers["location"]) == (303, "/topics?q=x")
            assert done.headers["set-cookie"].startswith("__Host-namesrv-console=")
            assert done.headers["set-cookie"].endswith("; path=/; Max-Age=28800; httponly; samesite=lax; secure")
            assert done.headers["strict-transport-security"] == "max-age=31536000"
            who = await olga.get("/")
            keep_cookies(olga, who)
            assert {key: who.json()[key] for key in ("name", "role", "source")} == {
                "name": "olga",
                "role": "operator",
                "source": "oidc",
            }
            assert (await olga.post("/actions/x", data={"csrf": await csrf(olga)})).status_code == 200

        provider.claims = {"preferred_username": "vera", "groups": "staff"}
        async with small_console(FakeClock(), **settings(provider)) as url, person(url) as vera:
            await go(vera)
            assert (await vera.get("/")).json()["role"] == "viewer"

        provider.claims = {"preferred_username": "mallory", "groups": ["guests"]}
        async with small_console(FakeClock(), **settings(provider)) as url, person(url) as mallory:
            refused = await go(mallory)
            assert (refused.status_code, refused.json()["error"]) == (403, "no_role")
            assert (await mallory.get("/")).status_code == 401


@pytest.mark.parametrize(
    "lies",
    [
        {"iss": "https://other.example"},
        {"aud": "another client"},
        {"aud": ["another client", "a third"]},
        {"nonce": "of another sign-in"},
        {"exp": int(time.time()) - 3600},
        {"preferred_username": ""},
        {"preferred_username": "olga\x1b[2J"},
        {"preferred_username": ["olga"]},
        {"preferred_username": "o" * 129},
    ],
)
async def test_token_that_is_not_for_us_is_refused(lies: dict[str, Any]) -> None:
    """Nobody is in, and the page says that it did not work."""
    async with (
        oidc_provider(preferred_username="olga", groups=["sre"]) as provider,
        small_console(FakeClock(), **settings(provider)) as url,
        person(url) as client,
    ):
        provider.lies = lies
        refused = await go(client)
        assert (refused.status_code, refused.json()["error"]) == (502, "provider")
        assert (await client.get("/")).status_code == 401


async def test_answer_that_nobody_asked_for_is_refused() -> None:
    """One of another browser, one that was used, one without state, a forged signature, a provider that is away."""
    async with (
        oidc_provider(preferred_username="olga", groups=["sre"]) as provider,
        small_console(FakeClock(), **settings(provider)) as url,
        person(url) as olga,
        person(url) as other,
    ):
        there = await olga.get("/login/oidc")
        keep_cookies(olga, there)
        state = parse_qs(urlsplit(there.headers["location"]).query)["state"][0]
        async with httpx2.AsyncClient(trust_env=False) as web:
            back = (await web.get(there.headers["location"])).headers["location"]
        # login CSRF: olga's code, in the browser of somebody else
        assert (await come_back(other, back)).status_code == 502
        assert (await come_back(olga, back)).status_code == 303
        assert (await come_back(olga, back)).status_code == 502
        for query in ("", "code=x", f"code=x&state={state}", f"error=access_denied&state={state}"):
            assert (await come_back(other, f"/login/oidc/callback?{query}")).status_code == 502

        provider.other_key = RSAKey.generate_key(2048, {"kid": "1"})
        async with person(url) as forged:
            assert (await go(forged)).status_code == 502

    async with small_console(FakeClock(), **settings(provider)) as url, person(url) as client:
        assert (await client.get("/login/oidc")).status_code == 502
