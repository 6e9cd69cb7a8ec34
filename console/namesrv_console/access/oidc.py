"""Signing in at an OpenID Connect provider, by authorization code with PKCE."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.starlette_client import OAuth
from joserfc.errors import JoseError
from starlette.requests import Request
from starlette.responses import Response

from namesrv_console.access.identity import is_name
from namesrv_console.access.settings import AccessSettings

CALLBACK: Final = "/login/oidc/callback"
_PROVIDER_SECONDS: Final = 10.0
# Limit of groups in the provider's claim; of a user with more groups the first ones count.
_MAX_GROUPS: Final = 1_000


class SignInError(Exception):
    """The provider did not name the user; the message is for the log."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The name and the groups of a user, as the provider reports them."""

    name: str
    groups: tuple[str, ...]


class Oidc:
    """The provider that the settings name."""

    def __init__(self, settings: AccessSettings) -> None:
        self._settings = settings
        issuer, secret = settings.oidc_issuer or "", settings.oidc_client_secret
        self._issuer = issuer
        self._redirect_uri = urljoin(settings.public_url or "", CALLBACK)
        self._provider = OAuth().register(
            "provider",
            server_metadata_url=f"{issuer.rstrip('/')}/.well-known/openid-configuration",
            client_id=settings.oidc_client_id,
            client_secret=None if secret is None else secret.get_secret_value(),
            client_kwargs={
                "scope": settings.oidc_scope,
                "code_challenge_method": "S256",
                "timeout": _PROVIDER_SECONDS,
                **({"token_endpoint_auth_method": "none"} if secret is None else {}),
            },
        )

    async def redirect(self, request: Request) -> Response:
        """Redirect a browser to the provider. Raises SignInError."""
        try:
            response: Response = await self._provider.authorize_redirect(request, self._redirect_uri)
        except (httpx2.HTTPError, ValueError, RuntimeError) as error:
            raise SignInError(f"{self._issuer}: {_words(error)}") from error
        return response

    async def claimed(self, request: Request) -> Claimed:
        """The user whom the provider's redirect names. Raises SignInError."""
        try:
            token: Mapping[str, Any] = await self._provider.authorize_access_token(
                request,
                claims_options={
                    "iss": {"essential": True, "value": self._issuer},
                    "aud": {"essential": True, "value": self._settings.oidc_client_id},
                },
            )
        except (OAuthError, JoseError, httpx2.HTTPError, ValueError, RuntimeError, KeyError) as error:
            raise SignInError(f"{self._issuer}: {_words(error)}") from error
        claims = token.get("userinfo") or {}
        name, groups = claims.get(self._settings.oidc_name_claim), claims.get(self._settings.oidc_groups_claim) or ()
        if not isinstance(name, str) or not is_name(name):
            raise SignInError(f"{self._issuer}: no usable claim {self._settings.oidc_name_claim!r}: {name!r}")
        listed = [groups] if isinstance(groups, str) else groups
        return Claimed(name, tuple(str(group) for group in listed[:_MAX_GROUPS]) if isinstance(listed, list) else ())


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
