"""The names in a certificate that a server refused: they are claimed, not verified.

Python's ssl module forgets a certificate that fails verification. OpenSSL hands the messages of a handshake to a
callback, which `SSLContext` has since Python 3.8, undocumented; without the callback there are no names. It is taken
away when the handshake is over, so that records later cost nothing.
"""

import ssl
from itertools import islice
from typing import Any, Final

from namesrv_remoting.x509 import names_in
from namesrv_runtime.log import printable

# of TLS: the content type of handshake messages, and the message that holds certificates
_HANDSHAKE, _CERTIFICATE = 22, 11
_MAX_LEAF_BYTES: Final = 16 * 1024
_MAX_NAMES: Final = 5
_MAX_CHARACTERS: Final = 128
# of the C type below SSLContext: its own setter would turn each number into an enum
_CALLBACK: Final = getattr(ssl.SSLContext.__mro__[1], "_msg_callback", None)
# The context of connections whose handshake is over: without a callback. It decides nothing any more, but a connection
# shows the certificate of its peer only under a context that asks for one.
_QUIET: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
_QUIET.verify_mode = ssl.CERT_OPTIONAL


class WatchedHandshake(ssl.SSLObject):
    """A TLS connection whose peer's certificate is remembered until the handshake is over."""

    leaf: bytes = b""


def watch_handshakes(context: ssl.SSLContext) -> None:
    """Let the connections of a server's context remember certificates, as far as Python can."""
    if _CALLBACK is not None:
        context.sslobject_class = WatchedHandshake
        _CALLBACK.__set__(context, _note)


def handshake_is_over(tls: ssl.SSLObject) -> None:
    """Forget the certificate, and take the callback away."""
    if isinstance(tls, WatchedHandshake):
        tls.leaf = b""
        tls.context = _QUIET


def claimed_names(tls: ssl.SSLObject) -> str:
    """The first names in the certificate that a peer has shown, cut and fit for a log; empty if there is none."""
    leaf = tls.leaf if isinstance(tls, WatchedHandshake) else b""
    try:
        names = list(dict.fromkeys(islice(names_in(leaf), _MAX_NAMES))) if leaf else []
    except ValueError:
        return ""
    return ", ".join(printable(name[:_MAX_CHARACTERS]) for name in names)


def _note(  # noqa: PLR0913, PLR0917 - as OpenSSL calls it
    tls: Any, direction: str, version: int, content_type: int, message: int, data: bytes
) -> None:
    del version
    if direction == "read" and content_type == _HANDSHAKE and message == _CERTIFICATE:
        tls.leaf = leaf_in(data)


def leaf_in(message: bytes) -> bytes:
    """The first certificate in a Certificate message of TLS 1.2 or 1.3; empty if there is none, or too large a one."""
    # behind type and length: in TLS 1.3 a context, empty during handshakes; then the length of the list
    at = 4 if int.from_bytes(message[4:7]) + 7 == len(message) else 5
    begin = at + 6
    size = int.from_bytes(message[at + 3 : begin])
    return message[begin : begin + size] if size <= _MAX_LEAF_BYTES else b""
