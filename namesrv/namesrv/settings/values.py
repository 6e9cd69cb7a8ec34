"""Validation of settings that are text: addresses, names, paths."""

import ipaddress
import re
import socket
from collections.abc import Mapping
from pathlib import Path

# the heartbeat log's files carry the server's name, so it must be fit for one
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PORT = re.compile(r"[0-9]{1,5}")
_MAX_PORT = 65535
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Where state belongs by the XDG rule, for root as for everybody."""
    state_home = Path(environ.get("XDG_STATE_HOME", ""))
    if not state_home.is_absolute():  # the rule says to ignore a relative one
        try:
            home = Path(environ.get("HOME") or Path.home())
        except RuntimeError:  # a user without a home, as containers have
            return Path("/var/lib/namesrv")
        state_home = home / ".local" / "state"
    return state_home / "namesrv"


def default_nameserver_name() -> str:
    """The name of this host, without what a file name cannot carry."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip("-._")
    return name[:64] or "namesrv"


def checked_hosts(text: str) -> str:
    """Addresses or host names, separated by commas only.

    Raises:
        ValueError: saying what is wrong, to be read after the value.
    """
    hosts = [host.strip() for host in text.split(",")]
    if not all(_is_host(host) for host in hosts):
        raise ValueError("is not a valid address or host name (separate several with commas)")
    if len(hosts) != len(set(hosts)):
        raise ValueError("contains the same address twice")
    return ",".join(hosts)


def checked_endpoint(text: str) -> str:
    """A host and a port, or nothing.

    Raises:
        ValueError: saying what is wrong, to be read after the value.
    """
    parts = endpoint_parts(text)
    if parts is None:
        return text
    host, port = parts
    if not (_is_host(host) and 0 <= port <= _MAX_PORT and (":" in host) == text.startswith("[")):
        raise ValueError("is not a valid address and port, for example 127.0.0.1:9877 or [::1]:9877")
    return text


def endpoint_parts(text: str) -> tuple[str, int] | None:
    """Host and port of an endpoint, None when it is empty; a port of -1 when it has none."""
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, int(port) if _PORT.fullmatch(port) else -1


def checked_name(text: str) -> str:
    """A name that can be part of a file's.

    Raises:
        ValueError: saying what is wrong, to be read after the value.
    """
    if not _FILE_NAME.fullmatch(text):
        raise ValueError("is not a valid name (1 to 64 letters, digits, dots, dashes and underscores)")
    return text


def checked_path(path: Path) -> Path:
    """A path with its ~ resolved.

    Raises:
        ValueError: saying what is wrong, to be read after the value.
    """
    if "\0" in str(path):
        raise ValueError("is not a path")
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError("begins with the home directory of an unknown user") from None


def checked_path_text(text: str) -> str:
    """A path as text, if it is one; empty is none.

    Raises:
        ValueError: saying what is wrong, to be read after the value.
    """
    checked_path(Path(text))
    return text


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # digits and dots are meant as an address, and a wrong one
        return _HOST_NAME.fullmatch(text) is not None and not re.fullmatch(r"[\d.]+", text)
    return True
