"""Signing in at a real OpenID Connect provider on loopback."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc.jwk import RSAKey

from tests.console.access.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, oidc_provider
from tests.support.console_access import browser, csrf, small_console
from tests.support.fake_clock import FakeClock

URL = "https://console.example.com"


def settings(provider: Provider) -> Mapping[str, Any]:
    """Settings of a console that uses this provider."""
    return {
        "public_url": URL,
        "oidc_issuer": provider.issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "viewers": ("@staff",),
        "operators": ("@sre",),
    }


def person(url: str) -> httpx2.AsyncClient:
    """A browser that uses HTTPS, which a proxy in front of the console would end."""
    return browser(url, headers={"host": "console.example.com"})


async def go(client: httpx2.AsyncClient, *, to: str = "/") -> httpx2.Response:
    """Follow the redirects to the provider and back; returns the console's last response."""
    there = await client.get("/login/oidc", params={"next": to})
    keep_cookies(client, there)
    async with httpx2.AsyncClient(trust_env=False) as web:
        back = await web.get(there.headers["location"])
    assert back.headers["location"].startswith(f"{URL}/login/oidc/callback?")
    return await come_back(client, back.headers["location"])


async def come_back(client: httpx2.AsyncClient, location: str) -> httpx2.Response:
    """Follow the provider's redirect back to the console."""
    parts = urlsplit(location)
    done = await client.get(f"{parts.path}?{parts.query}")
    keep_cookies(client, done)
    return done


def keep_cookies(client: httpx2.AsyncClient, answer: httpx2.Response) -> None:
    """Keep the cookies of a response: they are for HTTPS only, so the test's HTTP client would not send them."""
    if "set-cookie" in answer.headers:
        client.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]


async def test_provider_signs_users_in() -> None:
    """The requested page comes next; the groups decide about the role; the cookie is for HTTPS only."""
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
        {"aud": "another client", "azp": CLIENT_ID},
        {"nonce": "of another sign-in"},
        {"exp": int(time.time()) - 3600},
        {"preferred_username": "olga\x1b[2J"},
        {"preferred_username": ["olga"]},
    ],
)
async def test_token_for_another_client_is_refused(lies: dict[str, Any]) -> None:
    """The user is not signed in, and the page shows the failure."""
    async with (
        oidc_provider(preferred_username="olga", groups=["sre"]) as provider,
        small_console(FakeClock(), **settings(provider)) as url,
        person(url) as client,
    ):
        provider.wrong_claims = lies
        refused = await go(client)
        assert (refused.status_code, refused.json()["error"]) == (502, "provider")
        assert (await client.get("/")).status_code == 401


async def test_unrequested_provider_response_is_refused() -> None:
    """Refused: another browser's code, a used code, no state, a forged signature, an unreachable provider."""
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
        # Login CSRF: olga's code in the browser of another user.
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
