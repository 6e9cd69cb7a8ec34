"""A small OpenID Connect provider: authorization code with PKCE, signed identity tokens, single-use codes."""

import base64
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.support.console_access import served

CLIENT_ID: Final = "console"
CLIENT_SECRET: Final = "of the client"


@dataclass
class Provider:
    """The provider's keys and claims."""

    issuer: str = ""
    # claims of every user
    claims: dict[str, Any] = field(default_factory=dict)
    # claims that replace correct ones, to test that the console rejects them
    wrong_claims: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "1", "use": "sig"}))
    # signs instead of `key`, which is the published one
    other_key: RSAKey | None = None
    # code -> the authorization request that it belongs to
    _codes: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def app(self) -> Starlette:
        """The provider's application."""
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._metadata),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/keys", lambda _: JSONResponse({"keys": [self.key.as_dict(private=False)]})),
            ]
        )

    async def _metadata(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "response_types_supported": ["code"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    async def _authorize(self, request: Request) -> Response:
        """Every user is already signed in at the provider."""
        asked = request.query_params
        assert tuple(asked[name] for name in ("response_type", "client_id", "code_challenge_method")) == (
            "code",
            CLIENT_ID,
            "S256",
        )
        code = secrets.token_urlsafe(16)
        self._codes[code] = dict(asked)
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}", 302)

    async def _token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if (
            asked is None
            or request.headers.get("authorization") != f"Basic {basic}"
            or asked["redirect_uri"] != form["redirect_uri"]
            or asked["code_challenge"] != challenge.decode()
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        about = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 60, "sub": "1", "nonce": asked["nonce"]}
        token = jwt.encode(
            {"alg": "RS256", "kid": "1"}, {**about, **self.claims, **self.wrong_claims}, self.other_key or self.key
        )
        return JSONResponse({"access_token": "x", "token_type": "Bearer", "expires_in": 60, "id_token": token})


@asynccontextmanager
async def oidc_provider(**claims: Any) -> AsyncIterator[Provider]:
    """Listen on loopback until the block ends."""
    provider = Provider(claims=claims)
    async with served(provider.app()) as url:
        provider.issuer = url
        yield provider
