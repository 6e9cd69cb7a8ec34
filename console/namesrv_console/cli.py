"""The command `namesrv-console`: its options, and the console's life."""

import argparse
import os
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from namesrv_console import PROGRAM
from namesrv_runtime import loops
from namesrv_runtime.address import parse_address
from namesrv_runtime.log import configure, printable
from namesrv_runtime.name_servers import parse_list

USAGE: Final = 2
BUG: Final = 70
# what the extra `console` brings
_EXTRA: Final = frozenset({"jinja2", "markupsafe", "starlette", "uvicorn"})
_DEFAULT_PORT: Final = 9876
_EPILOG: Final = """\
example:
  namesrv-console --server ns1:9876 --server ns2:9876 --logs /var/lib/namesrv/heartbeats

Requests are signed with NAMESRV_ACCESS_KEY and NAMESRV_SECRET_KEY (or NAMESRV_SECRET_KEY_FILE), as namesrvctl's are.
"""


class UsageError(Exception):
    """The options cannot be used; the message says which, and what to do."""


def parser() -> argparse.ArgumentParser:
    """All options."""
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Serve the web console: all NameServers on one page.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    says = "NameServer to ask (repeatable; default: NAMESRV_ADDR, else 127.0.0.1:9876)"
    made.add_argument("-s", "--server", dest="servers", metavar="HOST[:PORT]", action="append", default=[], help=says)
    says = "where to serve the pages (default: 127.0.0.1:9878; port 0 takes any free one)"
    made.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:9878", help=says)
    says = "heartbeat logs of the servers, for the pages about the past (repeatable)"
    made.add_argument("--logs", metavar="DIR", type=Path, action="append", default=[], help=says)
    tls = made.add_argument_group("TLS towards the NameServers")
    tls.add_argument("--tls", action="store_const", const=True, help="connect over TLS; or NAMESRV_TLS=true")
    for name, says in (
        ("ca", "CAs of the servers' certificates (PEM; default: the system's)"),
        ("cert", "own certificate (PEM)"),
        ("key", "its private key (PEM), if that is in a file of its own"),
    ):
        tls.add_argument(
            f"--tls-{name}-file", metavar="FILE", type=Path, help=f"{says}; or NAMESRV_TLS_{name.upper()}_FILE"
        )
    says = "take any certificate of these CAs; or NAMESRV_TLS_VERIFY_HOST=false"
    tls.add_argument("--no-tls-verify-host", dest="tls_verify_host", action="store_const", const=False, help=says)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until it is ended; the exit code."""
    options = parser().parse_args(argv)
    try:
        return _run(options)
    except UsageError as error:
        sys.stderr.write(f"{PROGRAM}: {printable(str(error))}\n")
        return USAGE
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            traceback.print_exc()
            return BUG
        sys.stderr.write(f"{PROGRAM}: {error.name} is not installed; pip install 'namesrv[console]' brings it\n")
        return USAGE
    except Exception:  # noqa: BLE001 - the outermost boundary; nothing is hidden
        traceback.print_exc()
        return BUG


def _run(options: argparse.Namespace) -> int:
    from namesrv_console.serving import serve  # noqa: PLC0415  # installed with the extra only
    from namesrv_console.settings import ConsoleSettings  # noqa: PLC0415
    from namesrv_remoting.aio.tls import TlsClientSettings  # noqa: PLC0415

    tls = {name: value for name, value in vars(options).items() if name.startswith("tls") and value is not None}
    try:
        settings = ConsoleSettings(
            servers=_addresses(options.servers),
            listen=_listen(options.listen),
            logs=tuple(options.logs),
            tls=TlsClientSettings(**tls),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    configure("warning", "auto")
    with _bound(*settings.listen) as listening:
        host, port = listening.getsockname()[:2]
        # the one line that a person needs; a program that starts the console waits for it
        sys.stdout.write(f"{PROGRAM}: http://{f'[{host}]' if ':' in host else host}:{port}/\n")
        sys.stdout.flush()
        loops.run(lambda: serve(settings, listening, report=_complain))
    return 0


def _complain(text: str) -> None:
    sys.stderr.write(f"{PROGRAM}: {printable(text)}\n")
    sys.stderr.flush()
    sys.stderr.flush()


def _addresses(servers: Sequence[str]) -> tuple[str, ...]:
    text = ";".join(servers) or os.environ.get("NAMESRV_ADDR") or "127.0.0.1"
    parts = [part.strip() for part in text.replace(",", ";").split(";")]
    # the usual port behind a name, an IPv4 address and a bracketed IPv6 one
    return parse_list(
        ";".join(f"{it}:{_DEFAULT_PORT}" if it and (it.endswith("]") or ":" not in it) else it for it in parts)
    )


def _listen(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if port == "0":
        return host.strip("[]"), 0
    return parse_address(text)


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}") from None
