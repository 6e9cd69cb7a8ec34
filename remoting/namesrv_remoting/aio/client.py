"""The client of one server: sends requests and receives responses.

A client has one connection, which is opened when it is needed and opened again after a loss. Any number of requests may
be under way at once; responses are matched by opaque, in any order.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self, TypedDict, Unpack

from namesrv_remoting.aio.client_connection import ClientConnection, OnRequest
from namesrv_remoting.aio.credentials import Credentials
from namesrv_remoting.aio.happy_eyeballs import reachable_address
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS, ServerProtocols
from namesrv_remoting.aio.socket_options import set_tcp_options
from namesrv_remoting.aio.tls import ClientTls, TlsError, why_lost, why_not_connected
from namesrv_remoting.codes import FLAG_ONEWAY, LanguageCode, RequestCode, ResponseCode, SerializeType
from namesrv_remoting.command import ExtFields, RemotingCommand
from namesrv_remoting.errors import (
    ConnectError,
    ConnectionClosedError,
    NoPermissionError,
    RequestCodeNotSupportedError,
    RequestTimeoutError,
    response_error,
)
from namesrv_remoting.frames import MAX_FRAME_BYTES
from namesrv_runtime.address import parse_address
from namesrv_runtime.backoff import DEFAULT_BACKOFF, Backoff, ConnectFailure
from namesrv_runtime.clock import Clock, timeout_on
from namesrv_runtime.threads import in_thread, thread_starts

# the time that a closing client leaves to a slow peer to read the last data
_FLUSH_SECONDS: Final = 1.0
# A topic without a route: every NameServer answers the request for its route, with a short response.
_NO_TOPIC: Final = "namesrv-protocol-detection"


class RequestOptions(TypedDict, total=False):
    """The parts of a request besides its code."""

    ext_fields: ExtFields | None
    body: bytes
    serialize_type: int
    version: int


@dataclass(eq=False, repr=False, kw_only=True)
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

    address: str = field(kw_only=False)
    clock: Clock
    # None for plain text
    tls: ClientTls | None = None
    connect_timeout_seconds: float = 3.0
    max_frame_bytes: int = MAX_FRAME_BYTES
    # the time after which a connection with unacknowledged data is closed
    tcp_user_timeout_seconds: float = 5.0
    backoff: Backoff = DEFAULT_BACKOFF
    fail_fast: bool = True
    on_request: OnRequest | None = None
    on_connection_lost: Callable[[ConnectionClosedError], None] | None = None
    protocols: ServerProtocols = PROCESS_PROTOCOLS
    random_unit: Callable[[], float] = random.random
    # the credentials that sign each request; None for unsigned requests
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        self._host, self._port = parse_address(self.address)
        # the connection in use, or the attempt to open one, or neither
        self._connection: ClientConnection | None = None
        self._attempt: asyncio.Task[ClientConnection | ConnectFailure] | None = None
        # the last failed connect; None after a successful one
        self._failure: ConnectFailure | None = None
        self._closed = False

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
            async with timeout_on(self.clock, timeout_seconds):
                return await (await self._connected()).call(RemotingCommand(code, **options))
        except TimeoutError:
            raise self._timed_out("no answer", code, timeout_seconds) from None

    async def oneway(self, code: int, *, timeout_seconds: float, **options: Unpack[RequestOptions]) -> None:
        """Send a one-way request; return once it is written to the transport.

        Raises:
            RequestTimeoutError: no connection in time, or the server does not read.
            RemotingError: as `invoke`, but no ResponseError.
        """
        try:
            async with timeout_on(self.clock, timeout_seconds):
                await (await self._connected()).send(RemotingCommand(code, flag=FLAG_ONEWAY, **options))
        except TimeoutError:
            raise self._timed_out("not sent", code, timeout_seconds) from None

    def speaks_native(self) -> bool | None:
        """True if the server speaks the native protocol, False if not, None if this process does not know."""
        return self.protocols.is_native(self.address, self.clock.monotonic())

    async def server_info(self, timeout_seconds: float) -> bytes | None:
        """The body of a native SERVER_INFO response; None from a server without the native protocol.

        Raises:
            RemotingError: as `invoke`, with a timeout for each of three requests at most.
        """
        try:
            return await self._native_info(timeout_seconds)
        except ConnectionClosedError:
            if await self._is_apache_server(timeout_seconds):
                self.protocols.learn(self.address, self.clock.monotonic(), is_native=False)
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
            self.protocols.learn(self.address, self.clock.monotonic(), is_native=True)
            raise
        self.protocols.learn(self.address, self.clock.monotonic(), is_native=is_native)
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

    async def _connected(self) -> ClientConnection:
        """The connection in use, or a new one."""
        if self._closed:
            raise self._is_closed()
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._attempt is None:
            failure, now = self._failure, self.clock.monotonic()
            if self.fail_fast and failure is not None and now < failure.retry_at:
                raise ConnectError(f"no connection to {self.address}: {failure.since(now)}") from failure.cause
            self._attempt = asyncio.create_task(self._connect())
        attempt = self._attempt
        # asyncio.wait, because awaiting the task would cancel it for all callers when one caller is cancelled.
        await asyncio.wait([attempt])
        if attempt.cancelled():
            raise self._is_closed()
        outcome = attempt.result()
        if isinstance(outcome, ConnectFailure):
            raise ConnectError(f"no connection to {self.address}: {outcome.reason}") from outcome.cause
        return outcome

    async def _connect(self) -> ClientConnection | ConnectFailure:
        """Make one attempt; a failure is returned, not raised, because no caller may be left to catch it."""
        try:
            if self._failure is not None:
                await self.clock.sleep(self._failure.retry_at - self.clock.monotonic())
            connection = await self._open_connection()
        # An invalid host name raises UnicodeError when it is encoded for the resolver.
        except (OSError, UnicodeError, TlsError) as error:
            now = self.clock.monotonic()
            failures = 1 if self._failure is None else self._failure.failures + 1
            pause = self.backoff.pause_seconds(failures, self.random_unit())
            reason = why_lost(error) if self.tls is None else why_not_connected(error)
            reason = reason or f"timed out after {self.connect_timeout_seconds} s"
            self._failure = ConnectFailure(error, reason, now, failures, now + pause)
            return self._failure
        finally:
            self._attempt = None
        self._failure = None
        if connection.is_open:
            self._connection = connection
        return connection

    async def _open_connection(self) -> ClientConnection:
        async with timeout_on(self.clock, self.connect_timeout_seconds):
            context = None if self.tls is None else await in_thread(self.tls.context)
            address = await reachable_address(self._host, self._port, self.clock)
            connection = ClientConnection(
                self.address,
                max_frame_bytes=self.max_frame_bytes,
                on_request=self.on_request,
                on_lost=self._connection_lost,
                credentials=self.credentials,
            )
            server_hostname = None if context is None else self._host
            try:
                # asyncio's own loop looks up an address with an interface, fe80::1%eth0, in a thread.
                with thread_starts():
                    transport, _ = await asyncio.get_running_loop().create_connection(
                        lambda: connection, address, self._port, ssl=context, server_hostname=server_hostname
                    )
                set_tcp_options(transport.get_extra_info("socket"), user_timeout_seconds=self.tcp_user_timeout_seconds)
            except BaseException:
                # The connection may have been opened at the very moment of the timeout, or of closing the client. Its
                # end is not awaited, because uvloop closes such a transport itself, and never calls connection_lost.
                connection.abort()
                raise
            return connection

    def _connection_lost(self, connection: ClientConnection, error: ConnectionClosedError) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        if not connection.has_answered and not self._closed:
            self.protocols.forget(self.address)
        if self.on_connection_lost is not None and not self._closed:
            self.on_connection_lost(error)

    @property
    def connected(self) -> bool:
        """True while the connection is open."""
        return self._connection is not None and self._connection.is_open

    @property
    def socket_descriptor(self) -> int | None:
        """The file descriptor of the connection; None without a connection."""
        descriptor: int | None = None
        if self._connection is not None and self._connection.is_open:
            descriptor = self._connection.transport.get_extra_info("socket").fileno()
        return descriptor

    @property
    def pending_count(self) -> int:
        """The number of requests that wait for a response."""
        return 0 if self._connection is None else self._connection.pending_count

    async def close(self, why: str = "") -> None:
        """Fail waiting requests, with the reason, and close the connection, within a second.

        A second call may return earlier.
        """
        self._closed = True
        if (attempt := self._attempt) is not None:
            attempt.cancel()
            await asyncio.wait([attempt])
        if (connection := self._connection) is None:
            return
        connection.close(why)
        try:
            async with timeout_on(self.clock, _FLUSH_SECONDS):
                await connection.wait_lost()
        except TimeoutError:
            connection.abort()
            await connection.wait_lost()

    def _is_closed(self) -> ConnectionClosedError:
        return ConnectionClosedError(f"client of {self.address} is closed")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "connected" if self.connected else "not connected"
        return f"<RemotingClient [{self.address} | {state} | {self.pending_count} pending]>"
