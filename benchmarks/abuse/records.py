"""A TLS 1.3 client that makes its records before they are sent, over a plain socket.

Python's ssl module makes the handshake, but cannot send KeyUpdate messages. Its key log contains the secret from which
RFC 8446 derives the keys of later records, which `cryptography` encrypts.
"""

import hmac
import socket
import ssl
import tempfile
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# Plain text of a KeyUpdate record: handshake message 24 of one byte (0: no update in return), then the record type 22.
_KEY_UPDATE: Final = b"\x18\x00\x00\x01\x00\x16"
_TAG_BYTES: Final = 16
# Header of each TLS 1.3 record: type application data, version TLS 1.2, length.
_HEAD: Final = b"\x17\x03\x03" + (len(_KEY_UPDATE) + _TAG_BYTES).to_bytes(2)
KEY_UPDATE_BYTES: Final = len(_HEAD) + len(_KEY_UPDATE) + _TAG_BYTES
# The cipher suite that OpenSSL prefers, its hash, and the bytes of its keys.
_SUITE: Final = "TLS_AES_256_GCM_SHA384"
_HASH: Final = "sha384"
_KEY_BYTES: Final = 32
# label in the key log of the secret for the first records after the handshake
_LABEL: Final = "CLIENT_TRAFFIC_SECRET_0"
_READ_AT_ONCE: Final = 16 * 1024


class TlsRecords:
    """A TLS connection over a plain socket, which can also send prepared records."""

    def __init__(self, peer: socket.socket) -> None:
        """Shake hands over a connected socket.

        Raises:
            OSError: the handshake failed.
        """
        self._peer = peer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with tempfile.NamedTemporaryFile() as log:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # Any certificate will do.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.keylog_filename = log.name
            self._tls = context.wrap_bio(self._incoming, self._outgoing)
            self._shake_hands()
            lines = [line.split() for line in Path(log.name).read_text(encoding="ascii").splitlines()]
        # secret of the next KeyUpdate record
        self._secret = next(bytes.fromhex(line[2]) for line in lines if line[0] == _LABEL)

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._exchange()
            else:
                break
        self._peer.sendall(self._outgoing.read())

    def _exchange(self) -> None:
        if self._outgoing.pending:
            self._peer.sendall(self._outgoing.read())
        data = self._peer.recv(_READ_AT_ONCE)
        if not data:
            raise ConnectionResetError
        self._incoming.write(data)

    def sealed(self, data: bytes) -> bytes:
        """Records of the largest size with this application data."""
        self._tls.write(data)
        return self._outgoing.read()

    def request(self, data: bytes) -> bytes:
        """Send application data, and return the first data received."""
        self._peer.sendall(self.sealed(data))
        while True:
            try:
                return self._tls.read(_READ_AT_ONCE)
            except ssl.SSLWantReadError:
                self._exchange()

    def key_updates(self, count: int) -> bytes:
        """The next `count` KeyUpdate records, to be sent before any application data, and none after them."""
        cipher = self._tls.cipher()
        assert cipher is not None  # noqa: S101 - the handshake is over
        assert cipher[0] == _SUITE  # noqa: S101 - both ends are OpenSSL
        records = []
        for _ in range(count):
            # The record is the first one with its keys, so that the nonce is the IV.
            key, nonce = _derived(self._secret, b"key", _KEY_BYTES), _derived(self._secret, b"iv", 12)
            records.append(_HEAD + AESGCM(key).encrypt(nonce, _KEY_UPDATE, _HEAD))
            self._secret = _derived(self._secret, b"traffic upd", len(self._secret))
        return b"".join(records)


def _derived(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446, section 7.1, with an empty context; no size is longer than the hash."""
    full = b"tls13 " + label
    info = size.to_bytes(2) + bytes([len(full)]) + full + b"\x00"
    return hmac.digest(secret, info + b"\x01", _HASH)[:size]
