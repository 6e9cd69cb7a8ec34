"""TLS session of one accepted connection, without its socket: decrypts received records, encrypts data to send."""

import ssl
from typing import Any, Final

from namesrv_remoting.aio.claimed_names import claimed_names, handshake_is_over
from namesrv_remoting.aio.tls import certificate_names
from namesrv_remoting.errors import RemoteProtocolError

# the most data that one TLS record holds
RECORD_BYTES: Final = 16 * 1024
# Bytes before the payload of a record: the type, two bytes of version, two bytes of length.
_RECORD_HEAD_BYTES: Final = 5
_TLS_MAJOR_VERSION: Final = 3
# The type of records with handshake messages; in TLS 1.3, records of encrypted messages have the type of data.
_HANDSHAKE_RECORD: Final = 22
# The most records of one step of a handshake, since a peer may put each byte into a record of its own; and the bytes
# after which a step gets no further record, since they stay in memory until the step is over.
_RECORDS_A_STEP: Final = 32
_BYTES_A_STEP: Final = 16 * 1024
# the largest TLS 1.2 record, with its head
_MAX_RECORD_BYTES: Final = _RECORD_HEAD_BYTES + RECORD_BYTES + 2048
# The most consecutive bytes of records without data (KeyUpdate, for example); more than that is an attack. OpenSSL
# updates keys by itself only after millions of records.
_MAX_BYTES_WITHOUT_DATA: Final = 64 * 1024

# OpenSSL's name of an error -> description for the log; other errors are logged under OpenSSL's name
_FAILURES: Final = {
    "WRONG_VERSION_NUMBER": "plain text received where TLS is expected",
    "UNSUPPORTED_PROTOCOL": "the peer offers neither TLS 1.2 nor TLS 1.3",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer shows no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust the CA of our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer does not accept our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer does not accept our certificate",
}


class TlsSession:
    """The server's side of TLS for one connection.

    Received records wait here until the TLS object gets them, some at once during the handshake and one by one later,
    since OpenSSL processes all that it gets in one call.
    """

    __slots__ = ("_incoming", "_outgoing", "_received", "_tls", "_without_data", "expires_at", "names")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # received records that are not yet passed to the TLS object
        self._received = bytearray()
        # bytes of records since the last record that contained data
        self._without_data = 0
        # names and expiry (wall clock) of the peer's certificate, if the peer sent one
        self.names: tuple[str, ...] = ()
        self.expires_at = float("inf")

    def __repr__(self) -> str:
        return f"<TlsSession [{self._tls.version() or 'handshake'} | {len(self._received)} bytes received]>"

    @property
    def context(self) -> ssl.SSLContext:
        """The context of certificates and settings."""
        return self._tls.context

    @property
    def received_bytes(self) -> int:
        """The number of received bytes that are not passed to the TLS object yet."""
        return len(self._received)

    @property
    def has_output(self) -> bool:
        """Whether `output` has records."""
        return self._outgoing.pending > 0

    def receive(self, data: bytes) -> None:
        """Keep received bytes until the TLS object gets them."""
        self._received += data

    def discard(self) -> None:
        """Discard the received bytes, since the connection has ended."""
        self._received.clear()

    def output(self) -> bytes:
        """The records that are to be sent."""
        return self._outgoing.read()

    # -- the handshake ------------------------------------------------------------------------------------------------

    def begin_step(self) -> bool:
        """Pass complete records to the TLS object, for the next step; True if the step takes 40 microseconds at most.

        A short step has only encrypted records, which end a handshake of TLS 1.3, and no certificate to verify.
        """
        is_short = self._tls.context.verify_mode == ssl.CERT_NONE
        for _ in range(_RECORDS_A_STEP):
            if self._incoming.pending >= _BYTES_A_STEP or not (size := self.next_record()):
                break
            is_short = is_short and self._received[0] != _HANDSHAKE_RECORD
            self._incoming.write(self._received[:size])
            del self._received[:size]
        return is_short

    def shake_hands(self) -> None:
        """Compute a step of the handshake; the only method that may run in a thread, and no other method meanwhile.

        Raises:
            SSLWantReadError: the peer has to send more.
            SSLError: the handshake has failed.
        """
        self._tls.do_handshake()

    def opened(self) -> str:
        """Note the peer's certificate after the last step, and return the version of TLS."""
        # Records that arrived after the handshake are moved back, so that each is counted like a later record.
        self._received[:0] = self._incoming.read()
        if certificate := self._tls.getpeercert():
            self.names = certificate_names(certificate)
            self.expires_at = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
        handshake_is_over(self._tls)
        return self._tls.version() or ""

    # -- records ------------------------------------------------------------------------------------------------------

    def next_record(self) -> int:
        """The size of the next record, 0 if it is incomplete.

        Bytes that are no TLS record count as one record, so that the TLS object reports the error.
        """
        received = self._received
        if len(received) < _RECORD_HEAD_BYTES:
            return 0
        size = _RECORD_HEAD_BYTES + int.from_bytes(received[3:5])
        if received[1] != _TLS_MAJOR_VERSION or size > _MAX_RECORD_BYTES:
            return len(received)
        return size if len(received) >= size else 0

    def decrypt(self, size: int) -> bytes:
        """The data of the next record, which has this size; empty for a record without data.

        Raises:
            EOFError: the record is the peer's close_notify.
            SSLError: the record is broken.
            RemoteProtocolError: the peer has sent too many records without data.
        """
        self._incoming.write(self._received[:size])
        del self._received[:size]
        self._without_data += size
        try:
            data = self._tls.read(RECORD_BYTES)
        except ssl.SSLWantReadError:
            data = None
        if data is None:
            if self._without_data > _MAX_BYTES_WITHOUT_DATA:
                raise RemoteProtocolError(f"TLS records of {self._without_data} bytes without data", reason="tls")
            return b""
        if not data:
            raise EOFError
        self._without_data = 0
        return data

    def encrypt(self, data: "bytes | bytearray | memoryview[Any]") -> bytes:
        """The records that carry the data. Raises SSLError."""
        if len(data) <= RECORD_BYTES:
            self._tls.write(data)
            return self._outgoing.read()
        view, records = memoryview(data), []
        for at in range(0, len(view), RECORD_BYTES):
            self._tls.write(view[at : at + RECORD_BYTES])
            records.append(self._outgoing.read())
        return b"".join(records)

    def close(self) -> None:
        """Write a close_notify to the output.

        Raises SSLError, nearly always SSLWantReadError: the peer's own close_notify has not arrived.
        """
        self._tls.unwrap()

    def description(self, error: ssl.SSLError) -> str:
        """A description of an error for the log."""
        if isinstance(error, ssl.SSLCertVerificationError):
            names = claimed_names(self._tls)
            claim = f" (names in it, not verified: {names})" if names else ""
            return f"the peer's certificate is refused: {error.verify_message}{claim}"
        reason = error.reason or str(error)
        return _FAILURES.get(reason) or reason.replace("_", " ").lower()
