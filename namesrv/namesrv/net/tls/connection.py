"""TLS of one accepted connection: the memory that it takes, the deadline of its handshake, and its failures."""

from collections import Counter
from typing import Final

from namesrv.net.protocol import ServerConnection
from namesrv.net.tls.transport import HandshakeListener
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_runtime.clock import Clock

# Memory of TLS for one connection, as measured: during the handshake, and after it.
_HANDSHAKE_BYTES: Final = 48 * 1024
# Received bytes that `_HANDSHAKE_BYTES` includes. Hellos and certificates are smaller.
_HELLO_BYTES: Final = 16 * 1024
_TLS_BYTES: Final = 20 * 1024


class ConnectionTls(HandshakeListener):
    """Accounts for the handshake and the waiting records of one connection, and refuses its peer after an error."""

    __slots__ = ("_clock", "_connection", "_handshakes")

    def __init__(self, connection: ServerConnection, handshakes: Counter[str], clock: Clock) -> None:
        self._connection = connection
        # completed handshakes of all connections, by protocol version
        self._handshakes = handshakes
        self._clock = clock

    def begin(self) -> bool:
        """Reserve memory for TLS and start the handshake deadline; False after a refusal for lack of memory."""
        if not self._connection.memory.reserve_tls(_HANDSHAKE_BYTES):
            self._refuse_handshake()
            return False
        self.expect()
        return True

    def expect(self) -> None:
        """Start the handshake deadline: a peer that has not completed the handshake by then is refused."""
        self._connection.deadlines.handshake_began(self._clock.monotonic())

    def is_not_used(self) -> None:
        """The peer sent plain text instead; frames follow."""
        self._connection.deadlines.handshake_over(self._clock.monotonic())

    # -- as the listener of the transport -----------------------------------------------------------------------------

    def handshake_bytes_wait(self, size: int) -> bool:
        """Reserve memory for received bytes that wait for the handshake; False after a refusal for lack of memory."""
        if not self._connection.memory.reserve_handshake_input(max(0, size - _HELLO_BYTES)):
            self._refuse_handshake()
            return False
        return True

    def handshake_step_began(self) -> None:
        """Hold the handshake deadline while the handshake waits for the server's threads."""
        self._connection.deadlines.hold(self._clock.monotonic())

    def handshake_step_ended(self) -> None:
        """Let the handshake deadline run again."""
        self._connection.deadlines.resume(self._clock.monotonic())

    def handshake_completed(self, version: str, certificate_expires_at: float) -> None:
        """Count the handshake, and release the memory that only the handshake needed; frames follow."""
        connection = self._connection
        self._handshakes[version] += 1
        connection.peer.tls_version = version
        connection.memory.set_input(0)
        connection.memory.shrink_tls(_TLS_BYTES)
        connection.deadlines.handshake_over(self._clock.monotonic())
        if certificate_expires_at < self._clock.wall():
            # A resumed TLS 1.2 session skips the verification of the certificate; Python cannot disable resumption.
            self.tls_failed(
                RemoteProtocolError("TLS handshake failed: the peer's certificate has expired", reason="tls")
            )

    def records_wait(self, size: int) -> None:
        """Charge memory for received records that wait to be decrypted; without memory, give up received input."""
        memory = self._connection.memory
        memory.set_records(size)
        if memory.lacks_room_for(size):
            self._connection.give_up_input()

    def tls_failed(self, error: RemoteProtocolError) -> None:
        """Refuse the peer after a TLS error."""
        self._connection.refuse(error)

    def _refuse_handshake(self) -> None:
        self._connection.refuse(RemoteProtocolError("no memory for a TLS handshake", reason="memory"))
