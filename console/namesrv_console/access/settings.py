"""Settings of the console's address and sign-in; settings that would give strangers access are refused at the start."""

import os
import ssl
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from namesrv_console.access.https import https_context
from namesrv_console.access.users import Role, UsersFile
from namesrv_remoting.addresses import address_of, is_loopback
from namesrv_remoting.aio.tls import TlsError, TlsFiles
from namesrv_runtime.settings import CheckedSettings

_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
# Secrets come from environment variables, since arguments are visible in the process list.
_VARIABLES: Final[Mapping[str, str]] = {
    "oidc_client_secret": "NAMESRV_CONSOLE_OIDC_CLIENT_SECRET",
    "http_tls_key_password": "NAMESRV_CONSOLE_HTTP_TLS_KEY_PASSWORD",
}

Names = tuple[str, ...]
Networks = tuple[Annotated[IPv4Network | IPv6Network, BeforeValidator(ip_network)], ...]


class AccessSettings(CheckedSettings):
    """The settings of access: how users sign in, and the role that each user has."""

    # Host on which the console listens.
    listen_host: str = "127.0.0.1"
    # URL that users open, if it differs from the listen address, for example https://console.example.com.
    public_url: str | None = None
    http_tls_cert_file: Path | None = None
    http_tls_key_file: Path | None = None
    http_tls_key_password: SecretStr | None = None
    # Whether operators may change something.
    actions: bool = False
    # Directory of the console's audit trail: sign-ins, changes and refusals.
    audit_log_dir: Path | None = None

    # File of the users who sign in with a password.
    users: Path | None = None
    session_hours: Annotated[float, Field(gt=0, le=720)] = 8.0

    # Networks of proxies that sign users in: user and group headers count only from these networks.
    trusted_proxies: Networks = ()
    # Networks of proxies that only pass requests on: X-Forwarded-For counts from there, and no other header.
    forwarded_for_from: Networks = ()
    proxy_user_header: str = "X-Forwarded-User"
    proxy_groups_header: str = "X-Forwarded-Groups"

    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: SecretStr | None = None
    oidc_scope: str = "openid profile email"
    oidc_name_claim: str = "preferred_username"
    oidc_groups_claim: str = "groups"

    # Viewers and operators among the users that the proxy or the provider names: a name, *@domain, @group, or (proxy
    # only) * for every user.
    viewers: Names = ("*",)
    operators: Names = ()

    @model_validator(mode="before")
    @classmethod
    def _with_environment(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: text for name, variable in _VARIABLES.items() if (text := os.environ.get(variable))} | values

    @field_validator("public_url", "oidc_issuer")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        parts = None if url is None else urlsplit(url)
        if parts is not None and (parts.scheme not in {"http", "https"} or not parts.hostname or parts.query):
            raise ValueError("not a URL (for example https://console.example.com)")
        return url

    @model_validator(mode="after")
    def _check_provider(self) -> "AccessSettings":
        if (self.oidc_issuer is None) != (self.oidc_client_id is None):
            raise ValueError("--oidc-issuer and --oidc-client-id need each other")
        if self.oidc_issuer is not None and self.public_url is None:
            raise ValueError("--oidc-issuer needs --public-url: the provider sends people back to it")
        if self.oidc_issuer is not None and _is_plain_http(self.oidc_issuer):
            raise ValueError(f"--oidc-issuer: {self.oidc_issuer!r} is not encrypted: anybody on the way could sign in")
        if self.oidc_issuer is not None and "*" in {*self.viewers, *self.operators}:
            raise ValueError(
                "--viewer and --operator: with --oidc-issuer, * is everybody who has an account at the provider: "
                "set names, @groups or *@example.com"
            )
        return self

    @model_validator(mode="after")
    def _check_whole(self) -> "AccessSettings":
        if self.public_url is not None and urlsplit(self.public_url).path not in {"", "/"}:
            raise ValueError(f"--public-url: {self.public_url!r} has a path; the console is served at /")
        if self.users is not None and self.trusted_proxies:
            raise ValueError(
                "--users and --trusted-proxy exclude each other: a proxy that passes on X-Forwarded-User from outside "
                "would sign in anyone; for a proxy that signs in no users, set --forwarded-for-from"
            )
        if self.actions and not self.requires_sign_in:
            raise ValueError(f"--actions: changes are audited with the user's name, but users do not sign in: {_ASK}")
        if self.actions and self.audit_log_dir is None:
            raise ValueError("--actions: changes are audited: set --audit-log-dir")
        if not self.is_loopback and not self.requires_sign_in:
            raise ValueError(f"listening on {self.listen_host!r}, beyond loopback, without users: {_ASK}")
        if not self.is_loopback and self.http_tls_cert_file is None and self.public_url is None:
            raise ValueError(
                f"listening on {self.listen_host!r}, beyond loopback, in plain text: set --http-tls-cert-file, "
                "or --public-url if a proxy in front speaks TLS"
            )
        if not self.allowed_hosts:
            raise ValueError(f"listening on {self.listen_host!r}: set --public-url, the URL that people use")
        return self

    @property
    def warnings(self) -> list[str]:
        """Warnings about settings that are allowed, and rarely intended."""
        if self.requires_sign_in and self.public_url is not None and _is_plain_http(self.public_url):
            return [f"--public-url {self.public_url} is not encrypted: passwords and session cookies can be read"]
        return []

    @property
    def requires_sign_in(self) -> bool:
        """True if users must sign in."""
        return self.users is not None or bool(self.trusted_proxies) or self.oidc_issuer is not None

    @property
    def has_login(self) -> bool:
        """True if the console has a login page."""
        return self.users is not None or self.oidc_issuer is not None

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect to the console."""
        return _is_here(self.listen_host)

    @property
    def is_https(self) -> bool:
        """True if browsers use HTTPS for the console."""
        url = self.public_url
        return self.http_tls_cert_file is not None if url is None else urlsplit(url).scheme == "https"

    def url(self, host: str, port: int) -> str:
        """URL at which users find the console."""
        scheme = "http" if self.http_tls_cert_file is None else "https"
        return self.public_url or f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"

    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS context for HTTPS; None without a certificate. Raises ValueError."""
        if self.http_tls_cert_file is None:
            return None
        files = TlsFiles(self.http_tls_cert_file, self.http_tls_key_file, self.http_tls_key_password)
        try:
            return https_context(files)
        except TlsError as error:
            raise ValueError(str(error)) from error

    def check_files(self) -> None:
        """Check files now that are read again later. Raises ValueError."""
        self.tls_context()
        if self.users is not None:
            UsersFile(self.users)

    @property
    def allowed_hosts(self) -> list[str]:
        """Accepted names in a Host header; any other name comes from a page that uses DNS rebinding."""
        hosts = list(_LOOPBACK_NAMES) if self.is_loopback else []
        if self.public_url is not None:
            name = urlsplit(self.public_url).hostname or ""
            hosts.append(f"[{name}]" if ":" in name else name)
        host = self.listen_host
        address = address_of(host)
        if address is None or not address.is_unspecified:
            hosts.append(f"[{host}]" if ":" in host else host)
        return hosts

    def role_of(self, name: str, groups: Names) -> Role | None:
        """The role of a user that the proxy or the provider names; None: no access."""
        titles = {f"@{group}" for group in groups}
        # A name that begins with @ or * could match an entry for a group, a domain or every user.
        if not name.startswith(("@", "*")):
            titles |= {name, f"*@{name.rpartition('@')[2]}"} if "@" in name else {name}
        if titles.intersection(self.operators) or "*" in self.operators:
            return "operator"
        return "viewer" if titles.intersection(self.viewers) or "*" in self.viewers else None


_ASK: Final = "set --users (namesrv-console passwd makes the file), --trusted-proxy or --oidc-issuer"


def _is_plain_http(url: str) -> bool:
    """True if a URL is plain HTTP and its host is another machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not _is_here(parts.hostname or "")


def _is_here(host: str) -> bool:
    """True if only this machine can connect to a host."""
    return host == "localhost" or is_loopback(host)
