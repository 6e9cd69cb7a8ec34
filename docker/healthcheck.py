"""Checks the health of the server in this container: exit code 0 if its HTTP endpoint is healthy, else 1.

The argument is the path, by default /livez; the address comes from NAMESRV_HTTP_LISTEN, with TLS if
NAMESRV_HTTP_TLS is on. With NAMESRV_HTTP_TLS_CLIENT_AUTH=require the check presents the server's own certificate, whose
CA must then be in NAMESRV_TLS_CA_FILE. If NAMESRV_HTTP_LISTEN is empty, the server has no HTTP endpoint, and is healthy
while its port for brokers and clients accepts connections. The check reads the environment only, not the server's files
and flags.
"""

import http.client
import os
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

# Shorter than the container's timeout for the check, so that the reason is printed.
_TIMEOUT_SECONDS = 3.0
# A server on all addresses also listens on loopback.
_ANY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "::1"}  # noqa: S104
# The server's words for a setting that is on.
_ON = {"1", "true", "t", "yes", "y", "on"}


def reachable(listen: str) -> str:
    """The address of the server within this container, from its listen address."""
    host, _, port = listen.rpartition(":")
    return f"{_ANY.get(host, host)}:{port}"


def _of_ourselves() -> ssl.SSLContext:
    """A TLS context that verifies no certificate, since only the server listens on this container's loopback."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if os.environ.get("NAMESRV_HTTP_TLS_CLIENT_AUTH", "").lower() == "require":
        password = os.environ.get("NAMESRV_TLS_KEY_PASSWORD", "")
        key_file = os.environ.get("NAMESRV_TLS_KEY_FILE") or None
        # Never None, or OpenSSL would prompt for a password on the terminal.
        context.load_cert_chain(os.environ.get("NAMESRV_TLS_CERT_FILE", ""), key_file, password=lambda: password)
    return context


def main(argv: Sequence[str] | None = None) -> int:
    """Run the check; returns the exit code."""
    path = next(iter(sys.argv[1:] if argv is None else argv), "/livez")
    listen = os.environ.get("NAMESRV_HTTP_LISTEN", "127.0.0.1:9877")
    return _check_http(listen, path) if listen else _check_port()


def _check_port() -> int:
    first = os.environ.get("NAMESRV_LISTEN_HOST", "0.0.0.0").partition(",")[0].strip()  # noqa: S104
    host, port = _ANY.get(first, first), os.environ.get("NAMESRV_LISTEN_PORT", "9876")
    try:
        with socket.create_connection((host, int(port)), _TIMEOUT_SECONDS):
            return 0
    except (OSError, ValueError) as error:
        sys.stdout.write(f"{host} port {port}: {error}\n")
        return 1


def _check_http(listen: str, path: str) -> int:
    scheme = "https" if os.environ.get("NAMESRV_HTTP_TLS", "").lower() in _ON else "http"
    url = f"{scheme}://{reachable(listen)}{path}"
    try:
        # A configured proxy must not be used for loopback.
        direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_of_ourselves())
        )
        with direct.open(url, timeout=_TIMEOUT_SECONDS):
            return 0
    except (OSError, ValueError, http.client.HTTPException) as error:
        body = error.read(1000).decode(errors="replace").strip() if isinstance(error, urllib.error.HTTPError) else ""
        sys.stdout.write(f"{url}: {error} {body}".rstrip() + "\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
