"""Is the server in this container well? Exit code 0 when its own HTTP endpoint says so, 1 with the reason otherwise.

The path is the argument, /livez without one; the address is NAMESRV_HTTP_LISTEN's, as the server's own, over TLS with
NAMESRV_HTTP_TLS=true. With NAMESRV_HTTP_TLS_CLIENT_AUTH=require it presents the server's own certificate, whose CA has
to be among those of NAMESRV_TLS_CA_FILE then. It reads the environment only, not the server's files and flags.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

# less than the check's own time-out, so that the reason is told
_TIMEOUT_SECONDS = 3.0
_ANY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  # listening on all addresses, it is asked on loopback


def reachable(listen: str) -> str:
    """Where a server that listens there answers this container."""
    host, _, port = listen.rpartition(":")
    return f"{_ANY.get(host, host)}:{port}"


def _of_ourselves() -> ssl.SSLContext:
    """Whoever answers on this container's loopback is the server, whatever host its certificate is of."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if os.environ.get("NAMESRV_HTTP_TLS_CLIENT_AUTH", "").lower() == "require":
        password = os.environ.get("NAMESRV_TLS_KEY_PASSWORD", "")
        key_file = os.environ.get("NAMESRV_TLS_KEY_FILE") or None
        # never None: OpenSSL would ask on the terminal
        context.load_cert_chain(os.environ.get("NAMESRV_TLS_CERT_FILE", ""), key_file, password=lambda: password)
    return context


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    path = next(iter(sys.argv[1:] if argv is None else argv), "/livez")
    scheme = "https" if os.environ.get("NAMESRV_HTTP_TLS", "").lower() == "true" else "http"
    url = f"{scheme}://{reachable(os.environ.get('NAMESRV_HTTP_LISTEN', '127.0.0.1:9877'))}{path}"
    try:
        # a proxy that is set for the way out is not the way to ourselves
        direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_of_ourselves())
        )
        with direct.open(url, timeout=_TIMEOUT_SECONDS):
            return 0
    except (OSError, ValueError) as error:
        said = error.read(1000).decode(errors="replace").strip() if isinstance(error, urllib.error.HTTPError) else ""
        sys.stdout.write(f"{url}: {error} {said}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
