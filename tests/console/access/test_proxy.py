"""User and group headers of a proxy count from its network only."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.console_access import browser, small_console
from tests.support.fake_clock import FakeClock

OLGA = {"x-forwarded-user": "olga", "x-forwarded-groups": "staff, sre"}
SETTINGS: Mapping[str, Any] = {"operators": ("@sre",), "viewers": ("@staff", "@sre")}


async def test_proxy_names_the_user() -> None:
    """User and groups come from the headers; a request with no name, two names or an unprintable name is refused."""
    async with small_console(FakeClock(), trusted_proxies=("127.0.0.0/8",), **SETTINGS) as url, browser(url) as proxy:
        who = (await proxy.get("/", headers=OLGA)).json()
        assert (who["name"], who["role"], who["source"]) == ("olga", "operator", "proxy")
        jose = (
            await proxy.get("/", headers={b"x-forwarded-user": "José 名".encode(), b"x-forwarded-groups": b"sre"})
        ).json()
        assert jose["name"] == "José 名"
        who = (await proxy.get("/", headers=OLGA)).json()
        sent = {"csrf": who["csrf"], "topic": "T"}
        assert (await proxy.post("/actions/x", data=sent, headers=OLGA)).status_code == 200
        # The token is olga's.
        vera = {"x-forwarded-user": "vera", "x-forwarded-groups": "sre"}
        assert (await proxy.post("/actions/x", data=sent, headers=vera)).status_code == 403

        for headers in (
            [],
            [("x-forwarded-user", "")],
            [("x-forwarded-user", "olga")],
            [("x-forwarded-user", "olga"), *OLGA.items()],
            [*OLGA.items(), ("x-forwarded-groups", "sre")],
            [("x-forwarded-user", "olga\tx"), ("x-forwarded-groups", "sre")],
            [("x-forwarded-user", "o" * 129), ("x-forwarded-groups", "sre")],
        ):
            refused = await proxy.get("/", headers=headers)
            assert (refused.status_code, refused.text[:22]) == (403, "come through the proxy")


@pytest.mark.parametrize("network", ["10.0.0.0/8", "127.0.0.2/32", "::/0"])
async def test_headers_from_another_network_are_ignored(network: str) -> None:
    """The same headers from an address outside the proxy's network sign no user in."""
    async with small_console(FakeClock(), trusted_proxies=(network,), **SETTINGS) as url, browser(url) as stranger:
        assert (await stranger.get("/", headers=OLGA)).status_code == 403
