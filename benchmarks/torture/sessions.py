"""Connections of brokers and clients to a server, and what they need to know of the server's protocol."""

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from tests.netns.network import Host, inside

# port of all servers, each of which has a host of its own
PORT: Final = 9876
# most bytes of one read
_AT_ONCE: Final = 1 << 16

# errors of a request without a response
LOST: Final = (OSError, EOFError, TimeoutError)
# broker name -> its read queues of the common topic
View = Mapping[str, int]
# a host, and one of its addresses
Place = tuple[Host, str]

R = TypeVar("R")


class Dialect(ABC, Generic[R]):
    """The protocol of a server; R is the type of a response."""

    # the first bytes on a connection, which have a response of their own; empty if clients begin with a request
    greeting: bytes = b""
    # request for the brokers of the common topic, as clients send it
    pull: bytes
    # the same request, for the table of this very server
    look: bytes

    @abstractmethod
    def response_in(self, data: bytes) -> R | None:
        """The response in received data; None while it is incomplete."""

    @abstractmethod
    def view_of(self, response: R) -> View | None:
        """The brokers in a response to `pull` or `look`; None if the response is an error."""


class Session(Generic[R]):
    """A connection to a server, which is opened when it is needed; one request is in flight at a time."""

    def __init__(self, dialect: Dialect[R], place: Place, target: str, patience: float) -> None:
        self.target = target
        self.greeting = dialect.greeting
        # the response to the last greeting
        self.welcome: R | None = None
        self._dialect = dialect
        self._place = place
        self._patience = patience
        self._lock = asyncio.Lock()
        self._socket: socket.socket | None = None

    async def request(self, frame: bytes) -> R:
        """Send a request and return its response; any failure closes the connection. Raises one of LOST."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._patience):
                    if self._socket is None:
                        self._socket = new_socket(self._place)
                        await asyncio.get_running_loop().sock_connect(self._socket, (self.target, PORT))
                        if self.greeting:
                            self.welcome = await self._response_to(self._socket, self.greeting)
                    return await self._response_to(self._socket, frame)
            except BaseException:
                self._drop()
                raise

    async def _response_to(self, connection: socket.socket, frame: bytes) -> R:
        loop, data = asyncio.get_running_loop(), bytearray()
        await loop.sock_sendall(connection, frame)
        while part := await loop.sock_recv(connection, _AT_ONCE):
            data += part
            if (response := self._dialect.response_in(bytes(data))) is not None:
                return response
        raise EOFError("connection closed")

    async def idle(self) -> None:
        """Wait until no request is in flight."""
        async with self._lock:
            pass

    def close(self) -> None:
        """Close the connection, which a request in flight notices; the next request opens another."""
        if self._socket is not None and self._lock.locked():
            # The event loop still watches the socket.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        else:
            self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def new_socket(place: Place) -> socket.socket:
    """A non-blocking TCP socket on a host, bound to one of its addresses."""
    host, source = place
    with inside(host):
        made = socket.socket()
    made.setblocking(False)  # noqa: FBT003 - positional only
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.bind((source, 0))
    return made
