"""Checks of Host headers, against DNS rebinding: a web page may resolve a name of its own to this server's address."""

import socket
from collections.abc import Iterable

from namesrv.settings.model import Settings
from namesrv_remoting.addresses import address_of


def is_own_host(header: str, settings: Settings) -> bool:
    """True for addresses, for names without a dot, which belong to no web page, and for names of this server."""
    name = header.rpartition(":")[0] if header.rpartition("]")[2].rpartition(":")[1] else header
    name = name.removeprefix("[").removesuffix("]").removesuffix(".").lower()
    return "." not in name or address_of(name) is not None or _is_among(name, _own_names(settings))


def _own_names(settings: Settings) -> Iterable[str]:
    host, _ = settings.http_address or ("", 0)
    return host, socket.gethostname(), settings.nameserver_name, *settings.http_hosts.split(",")


def _is_among(name: str, patterns: Iterable[str]) -> bool:
    return any(
        name == pattern.lower() or (pattern.startswith("*") and name.endswith(pattern[1:].lower()))
        for pattern in patterns
    )
