"""The names in a certificate that a server refused; the names are claimed by the peer and not verified.

Python's ssl module discards a certificate that fails verification. OpenSSL passes the messages of a handshake to a
callback, which `SSLContext` has had since Python 3.8, undocumented; without the callback, the names are unknown. The
callback is removed after the handshake, so that later records cost nothing.
"""

import ssl
from itertools import islice
from typing import Any, Final

from namesrv_remoting.x509 import names_in
from namesrv_runtime.log import printable

# numbers of TLS: the content type of handshake messages, and the type of the Certificate message
_HANDSHAKE, _CERTIFICATE = 22, 11
_MAX_LEAF_BYTES: Final = 16 * 1024
_MAX_NAMES: Final = 5
_MAX_CHARACTERS: Final = 128
# The attribute of the C type below SSLContext: the setter of SSLContext would convert each number into an enum.
_CALLBACK: Final = getattr(ssl.SSLContext.__mro__[1], "_msg_callback", None)
# The context of connections after their handshake, which has no callback. A context no longer verifies anything then,
# but an SSLObject returns the peer's certificate only if its context requests certificates.
_QUIET: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
_QUIET.verify_mode = ssl.CERT_OPTIONAL


class WatchedHandshake(ssl.SSLObject):
    """A TLS connection that keeps the peer's certificate until the handshake is complete."""

    leaf: bytes = b""


def watch_handshakes(context: ssl.SSLContext) -> None:
    """Make connections of a server's context keep the peer's certificate, if this Python has the callback."""
    if _CALLBACK is not None:
        context.sslobject_class = WatchedHandshake
        _CALLBACK.__set__(context, _note)


def handshake_is_over(tls: ssl.SSLObject) -> None:
    """Discard the kept certificate, and remove the callback."""
    if isinstance(tls, WatchedHandshake):
        tls.leaf = b""
        tls.context = _QUIET


def claimed_names(tls: ssl.SSLObject) -> str:
    """The first names in the peer's certificate, shortened and printable for a log; empty without a certificate."""
    leaf = tls.leaf if isinstance(tls, WatchedHandshake) else b""
    try:
        names = list(dict.fromkeys(islice(names_in(leaf), _MAX_NAMES))) if leaf else []
    except ValueError:
        return ""
    return ", ".join(printable(name[:_MAX_CHARACTERS]) for name in names)


def _note(  # noqa: PLR0913, PLR0917 - the arguments of OpenSSL's callback
    tls: Any, direction: str, version: int, content_type: int, message: int, data: bytes
) -> None:
    del version
    if direction == "read" and content_type == _HANDSHAKE and message == _CERTIFICATE:
        tls.leaf = leaf_in(data)


def leaf_in(message: bytes) -> bytes:
    """The first certificate in a Certificate message of TLS 1.2 or 1.3; empty if missing or too large."""
    # After type and length of the message, TLS 1.3 has a context, which is empty during handshakes. The length of the
    # list of certificates follows.
    at = 4 if int.from_bytes(message[4:7]) + 7 == len(message) else 5
    begin = at + 6
    size = int.from_bytes(message[at + 3 : begin])
    return message[begin : begin + size] if size <= _MAX_LEAF_BYTES else b""
