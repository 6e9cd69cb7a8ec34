"""Saved contexts: servers and connection options by name, in one file without secrets."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from namesrv_client.ctl import PROGRAM
from namesrv_runtime.durable_file import write_atomically
from namesrv_runtime.settings import CheckedSettings

# A context name is typed, completed by the shell, and shown in tables.
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


TLS_SETTINGS: Final = {"tls", "tls_ca_file", "tls_crl_file", "tls_cert_file", "tls_key_file", "tls_verify_host"}
# A context is used from any directory.
AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]


class ContextError(Exception):
    """The contexts cannot be read or written; the message has the reason."""


class Context(CheckedSettings):
    """Servers, and the options to connect to them. Secrets are named by their files, never saved."""

    servers: Annotated[tuple[str, ...], Field(min_length=1)]
    tls: bool = False
    tls_ca_file: AbsolutePath | None = None
    tls_crl_file: AbsolutePath | None = None
    tls_cert_file: AbsolutePath | None = None
    tls_key_file: AbsolutePath | None = None
    tls_verify_host: bool = True
    access_key: str | None = None
    secret_key_file: AbsolutePath | None = None

    def signing(self) -> dict[str, object]:
        """The settings for signing requests."""
        return self.model_dump(include={"access_key", "secret_key_file"}, exclude_none=True)

    def tls_settings(self) -> dict[str, object]:
        """The TLS settings; whether TLS is used is up to the context, not to the environment."""
        return self.model_dump(include=TLS_SETTINGS, exclude_none=True)

    def members(self) -> dict[str, Any]:
        """The values that differ from their default, as in the file."""
        return self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)


@dataclass(frozen=True, slots=True)
class Contexts:
    """All saved contexts, and the name of the current one."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Context:
        """The context with a name. Raises ContextError."""
        if name not in self.by_name:
            known = f" (one of {', '.join(sorted(self.by_name))})" if self.by_name else ""
            raise ContextError(f"unknown context {name!r}{known}")
        return self.by_name[name]


def contexts_file() -> Path:
    """Path of the contexts file, by the XDG rule."""
    home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".config") / PROGRAM / "contexts.json"


def read_contexts() -> Contexts:
    """The saved contexts; empty without a file. Raises ContextError."""
    path = contexts_file()
    try:
        document = json.loads(path.read_bytes())
        by_name = {name: Context(**values) for name, values in document["contexts"].items()}
        current = document.get("current")
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        raise ContextError(f"{path}: {str(error.strerror).lower()}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContextError(f"{path}: not a file of contexts: {error}") from error
    return Contexts(by_name, current if current in by_name else None)


def write_contexts(contexts: Contexts) -> None:
    """Replace the file, which only its owner can read. Raises ContextError."""
    path = contexts_file()
    members = {name: one.members() for name, one in sorted(contexts.by_name.items())}
    document = {"current": contexts.current, "contexts": members}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, json.dumps(document, indent=2).encode() + b"\n", mode=0o600)
    except OSError as error:
        raise ContextError(f"{path}: {str(error.strerror).lower()}") from error
