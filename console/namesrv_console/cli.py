"""The command `namesrv-console`: its options, and running the console."""

import argparse
import os
import re
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from namesrv_client.ctl.audit_trail import directory_error
from namesrv_console import PROGRAM
from namesrv_runtime import loops
from namesrv_runtime.address import parse_address
from namesrv_runtime.log import configure, printable
from namesrv_runtime.name_servers import parse_servers
from namesrv_runtime.program import not_installed, version
from namesrv_runtime.state_dir import state_dir

if TYPE_CHECKING:
    from namesrv_console.access.settings import AccessSettings

USAGE: Final = 2
BUG: Final = 70
# Packages that the wheel `namesrv-console` requires.
_REQUIRED: Final = frozenset(
    {"argon2", "authlib", "httpx2", "itsdangerous", "jinja2", "joserfc", "markupsafe", "starlette", "uvicorn"}
)
# Options whose names differ from those of their settings.
_FLAGS: Final = {"trusted_proxies": "--trusted-proxy", "viewers": "--viewer", "operators": "--operator"}
# The setting, with the number of the value, at which a message of pydantic begins.
_FIELD: Final = re.compile(r"(?:^|(?<=; ))(?P<name>[a-z_]+)(?:\.\d+)*:")
_EPILOG: Final = """\
example:
  namesrv-console --server ns1:9876 --server ns2:9876 --logs /var/lib/namesrv/heartbeats

Beyond loopback, and with --actions, users have to sign in: --users, --trusted-proxy or --oidc-issuer.
namesrv-console passwd FILE NAME adds a user to a file for --users, or changes a password.

Requests are signed with NAMESRV_ACCESS_KEY and NAMESRV_SECRET_KEY (or NAMESRV_SECRET_KEY_FILE), as namesrvctl's are.
"""


class UsageError(Exception):
    """The options cannot be used; the message names the wrong option and the remedy."""


def parser() -> argparse.ArgumentParser:
    """The parser of all options."""
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Serve the web console: all NameServers on one page.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"{PROGRAM} {version()}")
    says = "NameServer to show (repeatable; default: NAMESRV_ADDR, else 127.0.0.1:9876)"
    made.add_argument("-s", "--server", dest="servers", metavar="HOST[:PORT]", action="append", default=[], help=says)
    says = "where to serve the pages (default: 127.0.0.1:9878; port 0 takes any free one)"
    made.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:9878", help=says)
    says = "heartbeat logs of the servers, for the pages about the past (repeatable)"
    made.add_argument("--logs", metavar="DIR", type=_directory, action="append", default=[], help=says)
    says = "audit trail of a server, or its data directory, for the audit page (repeatable)"
    made.add_argument("--audit", metavar="DIR", type=_directory, action="append", default=[], help=says)
    tls = made.add_argument_group("TLS towards the NameServers")
    tls.add_argument("--tls", action="store_const", const=True, help="connect over TLS; or NAMESRV_TLS=true")
    for name, says in (
        ("ca", "CAs of the servers' certificates (PEM; default: the system's)"),
        ("crl", "revocation lists of these CAs (PEM)"),
        ("cert", "own certificate (PEM)"),
        ("key", "its private key (PEM), if that is in a file of its own"),
    ):
        tls.add_argument(
            f"--tls-{name}-file", metavar="FILE", type=Path, help=f"{says}; or NAMESRV_TLS_{name.upper()}_FILE"
        )
    says = "take any certificate of these CAs; or NAMESRV_TLS_VERIFY_HOST=false"
    tls.add_argument("--no-tls-verify-host", dest="tls_verify_host", action="store_const", const=False, help=says)
    _add_access(made)
    return made


def _directory(text: str) -> Path:
    if not text:
        # An empty path would be the working directory.
        raise argparse.ArgumentTypeError("is empty")
    return Path(text)


def _add_access(made: argparse.ArgumentParser) -> None:
    """Add the options of access; each is a setting of the same name."""
    group = made.add_argument_group("who may see the console, and who may act in it")
    for name, metavar, says in (
        ("users", "FILE", "users with passwords; namesrv-console passwd writes it"),
        ("public-url", "URL", "URL that users open, if not the listen address: https://console.example.com"),
        ("http-tls-cert-file", "FILE", "serve HTTPS with this certificate (PEM)"),
        ("http-tls-key-file", "FILE", "its key; a passphrase comes from NAMESRV_CONSOLE_HTTP_TLS_KEY_PASSWORD only"),
        ("session-hours", "N", "hours until a session ends (default: 8)"),
        ("proxy-user-header", "NAME", "header with the user's name, of the proxy (default: X-Forwarded-User)"),
        (
            "proxy-groups-header",
            "NAME",
            "header with the user's groups, separated by commas (default: X-Forwarded-Groups)",
        ),
        ("oidc-issuer", "URL", "sign in at this OpenID Connect provider; needs --public-url"),
        ("oidc-client-id", "ID", "the console's id there; a secret comes from NAMESRV_CONSOLE_OIDC_CLIENT_SECRET only"),
        ("oidc-scope", "WORDS", "scopes to request from the provider (default: openid profile email)"),
        ("oidc-name-claim", "NAME", "the claim that names the user (default: preferred_username)"),
        ("oidc-groups-claim", "NAME", "the claim with the groups (default: groups)"),
        (
            "audit-log-dir",
            "DIR",
            "audit trail of sign-ins, changes and refusals (default: namesrv-console/audit in your state folder)",
        ),
    ):
        group.add_argument(f"--{name}", metavar=metavar, help=says)
    for option, setting, metavar, says in (
        (
            "trusted-proxy",
            "trusted_proxies",
            "CIDR",
            "network of a proxy that signs users in and names them in headers (repeatable; not with --users)",
        ),
        (
            "forwarded-for-from",
            "forwarded_for_from",
            "CIDR",
            "network of a proxy that names the client's address in X-Forwarded-For, and no user (repeatable)",
        ),
        (
            "viewer",
            "viewers",
            "WHO",
            "users of the proxy or provider who may read: NAME, @GROUP, *@DOMAIN; with a proxy also *, the default",
        ),
        (
            "operator",
            "operators",
            "WHO",
            "users who may also make changes, in the same form (repeatable; default: none)",
        ),
    ):
        group.add_argument(f"--{option}", dest=setting, metavar=metavar, action="append", help=says)
    says = "let operators change the servers: write permissions, topics, KV, live settings"
    group.add_argument("--actions", action="store_const", const=True, help=says)


def passwd_parser() -> argparse.ArgumentParser:
    """The options of `namesrv-console passwd`."""
    made = argparse.ArgumentParser(
        prog=f"{PROGRAM} passwd",
        description="Add a user to a file, or change a password; it is asked for, or read from standard input.",
        allow_abbrev=False,
    )
    made.add_argument("file", metavar="FILE", type=Path)
    made.add_argument("name", metavar="NAME")
    made.add_argument("--role", choices=("viewer", "operator"), help="default: as before, viewer for a new user")
    made.add_argument("--delete", action="store_true", help="remove the user instead")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        if arguments[:1] == ["passwd"]:
            return _passwd(passwd_parser().parse_args(arguments[1:]))
        return _run(parser().parse_args(arguments))
    except UsageError as error:
        sys.stderr.write(f"{PROGRAM}: {printable(str(error))}\n")
        return USAGE
    except ModuleNotFoundError as error:
        if error.name not in _REQUIRED:
            traceback.print_exc()
            return BUG
        sys.stderr.write(f"{PROGRAM}: {not_installed(error.name, 'namesrv-console')}\n")
        return USAGE
    except Exception:  # noqa: BLE001 - the outermost boundary, which prints every error
        traceback.print_exc()
        return BUG


def _passwd(options: argparse.Namespace) -> int:
    from namesrv_console.access.passwd import passwd  # noqa: PLC0415  # its packages may not be installed

    try:
        done = passwd(options.file, options.name, role=options.role, delete=options.delete)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        # A failed write has no file name of its own.
        raise UsageError(f"{options.file}: {(error.strerror or str(error)).lower()}") from None
    sys.stdout.write(f"{PROGRAM}: {done} in {options.file}\n")
    return 0


def _access(options: argparse.Namespace, host: str) -> "AccessSettings":
    """The access settings from the options. Raises ValueError."""
    from namesrv_console.access.settings import AccessSettings  # noqa: PLC0415  # its packages may not be installed

    given = {name: value for name in AccessSettings.model_fields if (value := getattr(options, name, None)) is not None}
    if {"users", "trusted_proxies", "oidc_issuer"} & given.keys():
        given.setdefault("audit_log_dir", state_dir(os.environ, "namesrv-console") / "audit")
    try:
        settings = AccessSettings(**given, listen_host=host)
    except ValueError as error:
        raise ValueError(_FIELD.sub(lambda found: f"{_flag(found['name'])}:", str(error))) from error
    settings.check_files()
    return settings


def _flag(setting: str) -> str:
    """The option of a setting of access."""
    return _FLAGS.get(setting) or f"--{setting.replace('_', '-')}"


def _run(options: argparse.Namespace) -> int:
    from namesrv_console.serving import serve  # noqa: PLC0415  # its packages may not be installed
    from namesrv_console.settings import ConsoleSettings  # noqa: PLC0415
    from namesrv_remoting.aio.tls import TlsClientSettings  # noqa: PLC0415

    tls = {name: value for name, value in vars(options).items() if name.startswith("tls") and value is not None}
    try:
        host, port = _listen(options.listen)
        settings = ConsoleSettings(
            servers=_servers(options.servers),
            logs=tuple(options.logs),
            audit=tuple(options.audit),
            tls=TlsClientSettings(**tls),
            access=_access(options, host),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    configure("info" if settings.access.requires_sign_in else "warning", "auto")
    for warning in (*_missing(options), *settings.access.warnings):
        _complain(f"warning: {warning}")
    with _bound(host, port) as listening:
        host, port = listening.getsockname()[:2]

        def announce() -> None:
            # A user needs this one line; a program that starts the console waits for it.
            sys.stdout.write(f"{PROGRAM}: {settings.access.url(host, port)}\n")
            sys.stdout.flush()

        loops.run(lambda: serve(settings, listening, announce=announce, report=_complain))
    return 0


def _missing(options: argparse.Namespace) -> list[str]:
    """Warnings about directories that cannot be read; a server may make them later."""
    given = [("--logs", path) for path in options.logs] + [("--audit", path) for path in options.audit]
    return [f"{flag} {path}: {error}" for flag, path in given if (error := directory_error(path)) is not None]


def _complain(text: str) -> None:
    sys.stderr.write(f"{PROGRAM}: {printable(text)}\n")
    sys.stderr.flush()


def _servers(given: Sequence[str]) -> tuple[str, ...]:
    source = "--server" if given else "NAMESRV_ADDR"
    try:
        return parse_servers(given or [os.environ.get("NAMESRV_ADDR") or "127.0.0.1"])
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None


def _listen(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if port == "0":
        return host.strip("[]"), 0
    try:
        return parse_address(text)
    except ValueError as error:
        raise UsageError(f"--listen: {error}") from None


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        # Python adds the address to the message of a failed bind; an unknown name has a negative number.
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise UsageError(f"cannot listen on {host}:{port}: {why.lower()}") from None
