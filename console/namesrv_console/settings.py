"""The settings of a console."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from namesrv_console.access.settings import AccessSettings
from namesrv_remoting.aio.credentials import SigningSettings
from namesrv_remoting.aio.tls import TlsClientSettings
from namesrv_runtime.settings import CheckedSettings


class ConsoleSettings(CheckedSettings):
    """The NameServers of a console, their files, and the access to its pages."""

    # The NameServers, in the order in which pages show them.
    servers: Annotated[tuple[str, ...], Field(min_length=1)] = ("127.0.0.1:9876",)
    # Directories of heartbeat logs; without them the pages about the past are empty.
    logs: tuple[Path, ...] = ()
    # Audit trails of servers, or the data directories that contain them.
    audit: tuple[Path, ...] = ()
    # Signing and TLS of requests to the NameServers.
    signing: SigningSettings = Field(default_factory=SigningSettings)
    tls: TlsClientSettings = Field(default_factory=TlsClientSettings)

    # Access to the console.
    access: AccessSettings = Field(default_factory=AccessSettings)
