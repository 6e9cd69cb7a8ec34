"""The access key and secret that sign the requests of a program, and the settings for them."""

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, SecretStr, field_validator, model_validator

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.signatures import sign_native, sign_rocketmq
from namesrv_runtime.settings import CheckedSettings, PathArgument

# setting -> environment variable; there are no arguments for them, because the process list shows arguments
_VARIABLES: Final[Mapping[str, str]] = {
    "access_key": "NAMESRV_ACCESS_KEY",
    "secret_key": "NAMESRV_SECRET_KEY",
    "secret_key_file": "NAMESRV_SECRET_KEY_FILE",
}
_SECRETS: Final = frozenset({"secret_key", "secret_key_file"})


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its secret, which sign requests with the signature of the request's protocol."""

    access_key: str
    secret: bytes = field(repr=False)
    # seconds since 1970
    wall: Callable[[], float] = field(repr=False)

    def sign(self, command: RemotingCommand) -> RemotingCommand:
        """The signed request; the opaque must be the final one."""
        if command.is_native:
            now_ms, nonce = int(self.wall() * 1000), secrets.token_hex(8)
            fields = sign_native(command, self.access_key, self.secret, now_ms=now_ms, nonce=nonce)
        else:
            fields = sign_rocketmq(command.ext_fields, command.body, self.access_key, self.secret)
        return replace(command, ext_fields=fields)


class SigningSettings(CheckedSettings):
    """The settings for signing; without an access key requests are not signed.

    Missing settings come from the environment: NAMESRV_ACCESS_KEY, and NAMESRV_SECRET_KEY or NAMESRV_SECRET_KEY_FILE.
    """

    access_key: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    secret_key: Annotated[SecretStr, Field(min_length=1)] | None = None
    # a file with the secret and nothing else; read once
    secret_key_file: PathArgument | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_environment(cls, values: dict[str, Any]) -> dict[str, Any]:
        unset = {name for name in _VARIABLES if values.get(name) is None}
        given = {name: value for name, value in values.items() if name not in unset}
        # If either form of the secret is given, the environment's secret is ignored.
        from_environment = unset if unset >= _SECRETS else unset - _SECRETS
        given |= {name: text for name in from_environment if (text := os.environ.get(_VARIABLES[name]))}
        if given.keys() >= _SECRETS:
            raise ValueError("secret_key and secret_key_file exclude each other")
        if "secret_key_file" in given:
            given["secret_key"] = _read_secret(Path(str(given["secret_key_file"])))
        if ("access_key" in given) != ("secret_key" in given):
            there, missing = ("access_key", "secret_key") if "access_key" in given else ("secret_key", "access_key")
            raise ValueError(f"{there} is set, but {missing} ({_VARIABLES[missing]}) is not")
        return given

    @field_validator("secret_key")
    @classmethod
    def _is_unicode(cls, secret: SecretStr) -> SecretStr:
        try:
            secret.get_secret_value().encode()
        except UnicodeEncodeError:
            # Python decodes a byte of the environment that is not UTF-8 to half of a surrogate pair.
            raise ValueError("not valid Unicode") from None
        return secret

    def credentials(self, wall: Callable[[], float]) -> Credentials | None:
        """The credentials of these settings; None if requests are not signed."""
        if self.access_key is None or self.secret_key is None:
            return None
        return Credentials(self.access_key, self.secret_key.get_secret_value().encode(), wall)


def _read_secret(path: Path) -> str:
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = "not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise ValueError(f"secret_key_file {path}: {why}") from None
    if not secret:
        raise ValueError(f"secret_key_file {path}: empty")
    return secret
