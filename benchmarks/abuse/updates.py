"""TLS 1.3 KeyUpdate records, which Python's ssl module cannot send.

The handshake is the ssl module's; its key log holds the secret from which RFC 8446 derives the keys of all later
records, and `cryptography` seals them.
"""

import hmac
import socket
import ssl
import tempfile
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

# sealed: handshake message 24 of one byte, which asks for no update in return; behind it the record's real type
_KEY_UPDATE: Final = b"\x18\x00\x00\x01\x00\x16"
_TAG_BYTES: Final = 16
# as all records of TLS 1.3 begin: application data of TLS 1.2
_HEAD: Final = b"\x17\x03\x03" + (len(_KEY_UPDATE) + _TAG_BYTES).to_bytes(2)
RECORD_BYTES: Final = len(_HEAD) + len(_KEY_UPDATE) + _TAG_BYTES
# name of the cipher suite -> hash of its key schedule, bytes of its keys
_SUITES: Final = {
    "TLS_AES_128_GCM_SHA256": ("sha256", 16),
    "TLS_AES_256_GCM_SHA384": ("sha384", 32),
    "TLS_CHACHA20_POLY1305_SHA256": ("sha256", 32),
}
# of the key log: the secret of our first records after the handshake
_LABEL: Final = "CLIENT_TRAFFIC_SECRET_0"
_HANDSHAKE_BYTES: Final = 16 * 1024


class KeyUpdates:
    """The client's side of one TLS 1.3 connection, from its handshake on."""

    def __init__(self, peer: socket.socket) -> None:
        """Shake hands over a connected socket, which stays a plain one.

        Raises:
            OSError: the handshake failed.
        """
        with tempfile.NamedTemporaryFile() as log:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.keylog_filename = log.name
            suite = _shake_hands(peer, context)
            lines = [line.split() for line in Path(log.name).read_text(encoding="ascii").splitlines()]
        self._hash, self._key_bytes = _SUITES[suite]
        self._sealing = ChaCha20Poly1305 if "CHACHA20" in suite else AESGCM
        self._secret = next(bytes.fromhex(line[2]) for line in lines if line[0] == _LABEL)

    def records(self, count: int) -> bytes:
        """The next so many records, each of which replaces the keys for those behind it."""
        return b"".join(self._next() for _ in range(count))

    def _next(self) -> bytes:
        # the first record under its keys: the nonce is the iv itself
        key, nonce = self._derived(b"key", self._key_bytes), self._derived(b"iv", 12)
        self._secret = self._derived(b"traffic upd", len(self._secret))
        return _HEAD + self._sealing(key).encrypt(nonce, _KEY_UPDATE, _HEAD)

    def _derived(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label of RFC 8446, section 7.1, with an empty context; no size is longer than the hash."""
        full = b"tls13 " + label
        info = size.to_bytes(2) + bytes([len(full)]) + full + b"\x00"
        return hmac.digest(self._secret, info + b"\x01", self._hash)[:size]


def _shake_hands(peer: socket.socket, context: ssl.SSLContext) -> str:
    """The name of the cipher suite that both agree on."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            peer.sendall(outgoing.read())
            data = peer.recv(_HANDSHAKE_BYTES)
            if not data:
                raise ConnectionResetError from None
            incoming.write(data)
        else:
            break
    peer.sendall(outgoing.read())
    found = tls.cipher()
    if found is None:
        raise ConnectionResetError
    return found[0]
