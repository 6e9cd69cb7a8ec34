"""The client of one server: sends requests and receives responses.

A client has one connection, which is opened when it is needed and opened again after a loss. Any number of requests may
be under way at once; responses are matched by opaque, in any order.
"""

import random
from collections.abc import Callable
from typing import Final, Self, TypedDict, Unpack

from namesrv_remoting.aio.client_connection import ClientConnection, OnRequest
from namesrv_remoting.aio.connector import Connector
from namesrv_remoting.aio.credentials import Credentials
from namesrv_remoting.aio.kept_connection import ConnectPauses, KeptConnection
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS, ServerProtocols
from namesrv_remoting.aio.tls import ClientTls
from namesrv_remoting.codes import FLAG_ONEWAY, LanguageCode, RequestCode, ResponseCode, SerializeType
from namesrv_remoting.command import ExtFields, RemotingCommand
from namesrv_remoting.errors import (
    ConnectionClosedError,
    NoPermissionError,
    RequestCodeNotSupportedError,
    RequestTimeoutError,
    response_error,
)
from namesrv_remoting.frames import MAX_FRAME_BYTES
from namesrv_runtime.backoff import DEFAULT_BACKOFF, Backoff
from namesrv_runtime.clock import Clock, timeout_on

# A topic without a route: every NameServer answers the request for its route, with a short response.
_NO_TOPIC: Final = "namesrv-protocol-detection"


class RequestOptions(TypedDict, total=False):
    """The parts of a request besides its code."""

    ext_fields: ExtFields | None
    body: bytes
    serialize_type: int
    version: int


class RemotingClient:
    """Sends requests to the server at one address; an async context manager that closes at the end.

    * The first request connects; concurrent requests wait for the same attempt.
    * A lost connection fails all requests on it at once; the next request connects again.
    * After a failed connect, requests fail at once until the back-off is over (`fail_fast`, the default), or wait for
      it within their own timeout (`fail_fast=False`). Each request makes at most one attempt.
    * `on_request` is called with requests from the server (905, for example). A request that expects a response is also
      refused with code 3, because a client handles no requests.
    * `on_connection_lost` is called with the reason of a lost connection, unless `close()` closed it.

    Callbacks run on the loop and must neither block nor raise: an exception ends the connection.
    """

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        address: str,
        *,
        clock: Clock,
        # None for plain text
        tls: ClientTls | None = None,
        connect_timeout_seconds: float = 3.0,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        # the time after which a connection with unacknowledged data is closed
        tcp_user_timeout_seconds: float = 5.0,
        backoff: Backoff = DEFAULT_BACKOFF,
        fail_fast: bool = True,
        on_request: OnRequest | None = None,
        on_connection_lost: Callable[[ConnectionClosedError], None] | None = None,
        protocols: ServerProtocols = PROCESS_PROTOCOLS,
        random_unit: Callable[[], float] = random.random,
        # the credentials that sign each request; None for unsigned requests
        credentials: Credentials | None = None,
    ) -> None:
        self.address = address
        self._clock = clock
        self._protocols = protocols
        self._on_connection_lost = on_connection_lost
        connector = Connector(
            address,
            clock=clock,
            tls=tls,
            connect_timeout_seconds=connect_timeout_seconds,
            tcp_user_timeout_seconds=tcp_user_timeout_seconds,
            max_frame_bytes=max_frame_bytes,
            on_request=on_request,
            credentials=credentials,
        )
        pauses = ConnectPauses(backoff, clock, random_unit)
        self._connection = KeptConnection(
            address, connector, pauses, clock=clock, fail_fast=fail_fast, on_lost=self._connection_lost
        )

    async def invoke(self, code: int, *, timeout_seconds: float, **options: Unpack[RequestOptions]) -> RemotingCommand:
        """Send a request, and return its successful response.

        Raises:
            ResponseError: the server refused; the class is that of the response's code.
            RequestTimeoutError: no response in time, connecting included.
            ConnectError: no connection could be made, now or a moment ago; the cause is the error of the last attempt.
            ConnectionClosedError: the connection ended before the response arrived; the request may have been carried
                out. The cause is a RemoteProtocolError if the server violated the protocol.
            LocalProtocolError: the request cannot be encoded.
        """
        response = await self.invoke_raw(code, timeout_seconds=timeout_seconds, **options)
        if response.code != ResponseCode.SUCCESS:
            raise response_error(response.code, response.remark, response.ext_fields)
        return response

    async def invoke_raw(
        self, code: int, *, timeout_seconds: float, **options: Unpack[RequestOptions]
    ) -> RemotingCommand:
        """Send a request, and return its response with any code. Raises RemotingError as `invoke`, no ResponseError."""
        try:
            async with timeout_on(self._clock, timeout_seconds):
                return await (await self._connection.get()).call(RemotingCommand(code, **options))
        except TimeoutError:
            raise self._timed_out("no answer", code, timeout_seconds) from None

    async def oneway(self, code: int, *, timeout_seconds: float, **options: Unpack[RequestOptions]) -> None:
        """Send a one-way request; return once it is written to the transport.

        Raises:
            RequestTimeoutError: no connection in time, or the server does not read.
            RemotingError: as `invoke`, but no ResponseError.
        """
        try:
            async with timeout_on(self._clock, timeout_seconds):
                await (await self._connection.get()).send_oneway(RemotingCommand(code, flag=FLAG_ONEWAY, **options))
        except TimeoutError:
            raise self._timed_out("not sent", code, timeout_seconds) from None

    def speaks_native(self) -> bool | None:
        """True if the server speaks the native protocol, False if not, None if this process does not know."""
        return self._protocols.is_native(self.address, self._clock.monotonic())

    async def server_info(self, timeout_seconds: float) -> bytes | None:
        """The body of a native SERVER_INFO response; None from a server without the native protocol.

        Raises:
            RemotingError: as `invoke`, with a timeout for each of three requests at most.
        """
        try:
            return await self._native_info(timeout_seconds)
        except ConnectionClosedError:
            if await self._is_apache_server(timeout_seconds):
                self._protocols.learn(self.address, self._clock.monotonic(), is_native=False)
                return None
        return await self._native_info(timeout_seconds)

    async def _native_info(self, timeout_seconds: float) -> bytes | None:
        """The response to one SERVER_INFO request; the protocol stays unknown if there is none."""
        body, is_native = None, True
        try:
            response = await self.invoke(
                RequestCode.SERVER_INFO, timeout_seconds=timeout_seconds, serialize_type=SerializeType.MSGPACK
            )
            body = response.body
        except RequestCodeNotSupportedError:
            is_native = False
        except NoPermissionError:
            # The server has understood the native request.
            self._protocols.learn(self.address, self._clock.monotonic(), is_native=True)
            raise
        self._protocols.learn(self.address, self._clock.monotonic(), is_native=is_native)
        return body

    async def _is_apache_server(self, timeout_seconds: float) -> bool:
        """True if the server responds in RocketMQ's protocol, and is not one of ours.

        Apache's server closes the connection on an unknown serialize type. A native server that stops, or that has
        reached its limit of connections, closes it, too; only a response shows which server it is.
        """
        try:
            response = await self.invoke_raw(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, timeout_seconds=timeout_seconds, ext_fields={"topic": _NO_TOPIC}
            )
        except ConnectionClosedError:
            return False
        return response.language != LanguageCode.PYTHON

    def _timed_out(self, what: str, code: int, seconds: float) -> RequestTimeoutError:
        return RequestTimeoutError(f"request {int(code)} to {self.address}: {what} within {seconds:.3g} s")

    def _connection_lost(self, connection: ClientConnection, error: ConnectionClosedError) -> None:
        if not connection.has_answered:
            self._protocols.forget(self.address)
        if self._on_connection_lost is not None:
            self._on_connection_lost(error)

    @property
    def connected(self) -> bool:
        """True while the connection is open."""
        return self._connection.is_open

    @property
    def socket_descriptor(self) -> int | None:
        """The file descriptor of the connection; None without a connection."""
        return self._connection.socket_descriptor

    @property
    def pending_count(self) -> int:
        """The number of requests that wait for a response."""
        return self._connection.pending_count

    async def close(self, why: str = "") -> None:
        """Fail waiting requests, with the reason, and close the connection, within a second.

        A second call may return earlier.
        """
        await self._connection.close(why)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<RemotingClient [{self.address} | {self._connection.state} | {self.pending_count} pending]>"
