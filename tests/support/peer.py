"""A synchronous peer of a server over one socket, and a broker's requests over it."""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.command import ExtFields, RemotingCommand
from namesrv_remoting.frames import Frame, FrameReader
from namesrv_remoting.serializers import decode_frame, encode_command
from tests.support.fake_clock import GUARD_SECONDS


def until(condition: Callable[[], object]) -> None:
    """Poll a condition until it holds, for what a server does in its own time and reports nowhere."""
    deadline = time.monotonic() + GUARD_SECONDS
    while not condition():
        assert time.monotonic() < deadline, condition
        # leaves the core to the observed process
        time.sleep(0.002)


class Peer:
    """One connection, as a context manager; encodes JSON by default, or natively."""

    def __init__(
        self, address: tuple[str, int] | socket.socket, *, native: bool = False, receive_buffer_bytes: int = 0
    ) -> None:
        self._type = SerializeType.MSGPACK if native else SerializeType.JSON
        self._reader = FrameReader(max_header_bytes=1 << 20)
        self._frames: list[Frame] = []
        self._last_opaque = 0
        if isinstance(address, socket.socket):
            # an accepted connection: the test plays the server
            self._socket = address
            return
        self._socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        if receive_buffer_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.settimeout(GUARD_SECONDS)
        try:
            self._socket.connect(address)
        except OSError:
            self._socket.close()
            raise

    @property
    def native(self) -> bool:
        return self._type == SerializeType.MSGPACK

    @property
    def address(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def send(self, code: int, ext_fields: ExtFields | None = None, body: bytes = b"") -> int:
        """Send a request; return its opaque."""
        self._last_opaque += 1
        command = RemotingCommand(code, self._last_opaque, ext_fields=ext_fields, body=body, serialize_type=self._type)
        self.send_bytes(encode_command(command))
        return self._last_opaque

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, seconds: float = GUARD_SECONDS) -> RemotingCommand:
        """The next frame.

        Raises:
            TimeoutError: no frame arrived in time.
            EOFError: the other side closed the connection.
        """
        self._socket.settimeout(seconds)
        while not self._frames:
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError as error:
                raise EOFError("connection reset") from error
            if not data:
                raise EOFError("connection closed")
            self._frames += self._reader.receive_data(data)
            assert self._reader.error is None, self._reader.error
        return decode_frame(self._frames.pop(0))

    def ask(self, code: int, ext_fields: ExtFields | None = None, body: bytes = b"") -> RemotingCommand:
        """Send a request and return its response, which must be the next frame."""
        opaque = self.send(code, ext_fields, body)
        answer = self.receive()
        assert answer.opaque == opaque, answer
        assert answer.is_response, answer
        return answer

    def call(self, code: int, /, **members: Any) -> Any:
        """Send a native request with an extension code; return the members of its successful response."""
        answer = self.ask(code, None, NATIVE.encode(members))
        assert answer.code == 0, answer
        return msgspec.msgpack.decode(answer.body)

    def is_closed_within(self, seconds: float) -> bool:
        """True when the other side closes the connection in time without sending anything more."""
        if not select.select([self._socket], [], [], seconds)[0]:
            return False
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except ConnectionError:
            return True

    def wait_until_closed(self) -> None:
        with contextlib.suppress(EOFError):
            while True:
                self.receive()

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker, and its requests over a connection of the test's choice."""

    name: str = "broker-a"
    broker_id: int = 0
    addr: str = "10.0.0.1:10911"
    cluster: str = "cluster-a"
    # a first registration with exactly one topic would be refused
    topics: tuple[str, ...] = ("orders", "bills")

    def register(self, peer: Peer) -> RemotingCommand:
        opaque = self.send_registration(peer)
        answer = peer.receive()
        assert (answer.opaque, answer.code) == (opaque, 0), answer
        return answer

    def send_registration(self, peer: Peer) -> int:
        """Send a full 103 without waiting for the response; return its opaque."""
        body = RegisterBrokerBody(
            [TopicConfig(topic, 8, 8) for topic in self.topics], DataVersion(counter=1, timestamp=100)
        )
        ext_fields = {
            **self._identity(),
            "haServerAddr": f"{self.addr}0",
        }
        encoded = encode_native_body(body) if peer.native else encode_json_body(body)
        return peer.send(RequestCode.REGISTER_BROKER, ext_fields, encoded)

    def heartbeat(self, peer: Peer) -> int:
        """Send 904; return the response code: natively 22 when the broker is not registered."""
        return peer.ask(RequestCode.BROKER_HEARTBEAT, self._identity()).code

    def unregister(self, peer: Peer) -> int:
        return peer.ask(RequestCode.UNREGISTER_BROKER, self._identity()).code

    def _identity(self) -> dict[str, str]:
        return {
            "brokerName": self.name,
            "brokerAddr": self.addr,
            "clusterName": self.cluster,
            "brokerId": str(self.broker_id),
        }


# the fixture value that connects to a daemon
Connect = Callable[..., Peer]
