"""Settings of access that are refused, and the roles of names from a proxy or provider."""

import re
from pathlib import Path
from typing import Any

import pytest

from namesrv_console.access.settings import AccessSettings

USERS: Any = {"users": Path("users")}
URL: Any = {"public_url": "https://console.example.com"}
OIDC: Any = {"oidc_issuer": "https://id.example.com", "oidc_client_id": "console", "viewers": ("@staff",)}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"listen_host": "0.0.0.0"}, "listening on '0.0.0.0', beyond loopback, without users: set --users"),
        ({"listen_host": "10.0.0.1", **URL}, "listening on '10.0.0.1', beyond loopback, without users"),
        (
            {"listen_host": "10.0.0.1", **USERS},
            "beyond loopback, in plain text: set --http-tls-cert-file, or --public-url",
        ),
        ({"listen_host": "::", **USERS, "http_tls_cert_file": "c"}, "listening on '::': set --public-url"),
        ({"actions": True}, "--actions: changes are audited with the user's name, but users do not sign in"),
        ({"actions": True, **USERS}, "--actions: changes are audited: set --audit-log-dir"),
        ({"oidc_issuer": "https://id.example.com"}, "--oidc-issuer and --oidc-client-id need each other"),
        (OIDC, "--oidc-issuer needs --public-url"),
        ({"public_url": "console.example.com"}, "public_url: 'console.example.com': not a URL"),
        ({"public_url": "https://example.com/console"}, "'https://example.com/console' has a path"),
        ({"trusted_proxies": ("10.0.0.0/33",)}, "trusted_proxies.0"),
        ({**OIDC, **URL, "oidc_issuer": "http://id.example.com"}, "'http://id.example.com' is not encrypted"),
        ({**OIDC, **URL, "viewers": ("*",)}, "with --oidc-issuer, * is everybody who has an account at the provider"),
        ({"trusted_proxies": ("10.0.0.0/8",), **USERS}, "--users and --trusted-proxy exclude each other"),
        ({"forwarded_for_from": ("10.0.0.1/8",)}, "forwarded_for_from.0"),
        ({"session_hours": 0}, "session_hours"),
    ],
)
def test_refused(values: dict[str, Any], message: str) -> None:
    """Validation fails with a message that names the option to change; the command line replaces names of settings."""
    with pytest.raises(ValueError, match=re.escape(message)):
        AccessSettings(**values)


@pytest.mark.parametrize(
    ("values", "hosts", "is_https"),
    [
        ({}, {"localhost", "127.0.0.1", "[::1]"}, False),
        ({"listen_host": "::1", **USERS}, {"localhost", "127.0.0.1", "[::1]"}, False),
        ({"listen_host": "0.0.0.0", **USERS, **URL}, {"console.example.com"}, True),
        (
            {"listen_host": "10.0.0.1", "trusted_proxies": ("10.0.0.0/24",), **URL},
            {"10.0.0.1", "console.example.com"},
            True,
        ),
        ({"listen_host": "con", **USERS, "http_tls_cert_file": "c"}, {"con"}, True),
        ({"listen_host": "con", **USERS, "public_url": "http://[fd00::1]:80"}, {"con", "[fd00::1]"}, False),
        (
            {**OIDC, **URL, "actions": True, "audit_log_dir": "a"},
            {"localhost", "127.0.0.1", "[::1]", "console.example.com"},
            True,
        ),
    ],
)
def test_allowed(values: dict[str, Any], hosts: set[str], is_https: bool) -> None:
    """The allowed host names and the HTTPS-only cookies follow from the settings."""
    settings = AccessSettings(**values)
    assert ({*settings.allowed_hosts}, settings.is_https) == (hosts, is_https)


@pytest.mark.parametrize(
    ("url", "count"),
    [("http://console.example.com", 1), ("https://console.example.com", 0), ("http://127.0.0.1:9878", 0)],
)
def test_unencrypted_url_is_a_warning(url: str, count: int) -> None:
    """With an HTTP URL of another machine, passwords would be sent in plain text."""
    assert len(AccessSettings(**USERS, public_url=url).warnings) == count


@pytest.mark.parametrize(
    ("name", "groups", "role"),
    [
        ("olga", (), "operator"),
        ("vera", ("sre", "x"), "operator"),
        ("vera", ("staff",), "viewer"),
        ("victor", (), "viewer"),
        ("vera", ("olga",), None),
        # A name does not match a group's entry, nor a group a name's.
        ("@sre", (), None),
        ("*", (), None),
        ("sre", (), None),
        # A domain is the part after the last @, and a name that begins with *@ does not match.
        ("eve@example.com", (), "viewer"),
        ("eve@example.com@example.org", (), None),
        ("*@example.com", (), None),
        ("example.com", (), None),
        ("eve@sub.example.com", (), None),
    ],
)
def test_roles_of_names_and_groups(name: str, groups: tuple[str, ...], role: str | None) -> None:
    """An entry for operators wins over one for viewers; a name in neither list has no access."""
    settings = AccessSettings(viewers=("@staff", "victor", "*@example.com"), operators=("olga", "@sre"))
    assert settings.role_of(name, groups) == role


def test_secrets_come_from_the_environment_and_are_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets have no flag, since arguments are visible in the process list, and no repr shows them."""
    monkeypatch.setenv("NAMESRV_CONSOLE_OIDC_CLIENT_SECRET", "hush")
    settings = AccessSettings(**OIDC, **URL)
    assert settings.oidc_client_secret is not None
    assert settings.oidc_client_secret.get_secret_value() == "hush"
    assert "hush" not in repr(settings)
