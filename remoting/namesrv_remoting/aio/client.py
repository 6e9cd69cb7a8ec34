"""Client of one server: requests out, answers in.

One connection per client, made when it is needed and made again after it was lost. Any number of requests may be on
their way at once; answers are matched by opaque, in whatever order they come.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self, TypedDict, Unpack

from namesrv_remoting.aio.client_connection import ClientConnection, OnRequest
from namesrv_remoting.aio.credentials import Credentials
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS, ServerProtocols
from namesrv_remoting.aio.socket_options import set_tcp_options
from namesrv_remoting.aio.tls import ClientTls, TlsError, why_lost, why_not_connected
from namesrv_remoting.codes import FLAG_ONEWAY, RequestCode, ResponseCode, SerializeType
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

# what a closing client leaves to a slow peer, to read what was sent last
_FLUSH_SECONDS: Final = 1.0


class Question(TypedDict, total=False):
    """What a request may have besides its code."""

    ext_fields: ExtFields | None
    body: bytes
    serialize_type: int
    version: int


@dataclass(eq=False, repr=False, kw_only=True)
class RemotingClient:
    """Asks the server at one address; an async context manager that closes at the end.

    * The first question connects; whoever asks meanwhile waits for the same attempt.
    * A lost connection fails all questions on it at once; the next question connects again.
    * After a failed connect, questions fail at once until the back-off is over (`fail_fast`, the default), or wait for
      it within their own time (`fail_fast=False`). Each question makes at most one attempt.
    * `on_request` gets the requests that the server sends (905, for one). Those that want an answer are refused with
      code 3 besides: a client listens, but handles no requests.
    * `on_connection_lost` is told why a connection is gone, unless `close()` closed it.

    Callbacks run on the loop and must neither block nor raise: an exception ends the connection.
    """

    address: str = field(kw_only=False)
    clock: Clock
    # None: plain text
    tls: ClientTls | None = None
    connect_timeout_seconds: float = 3.0
    max_frame_bytes: int = MAX_FRAME_BYTES
    # what a black-holed server may keep before its connection is given up
    tcp_user_timeout_seconds: float = 5.0
    backoff: Backoff = DEFAULT_BACKOFF
    fail_fast: bool = True
    on_request: OnRequest | None = None
    on_connection_lost: Callable[[ConnectionClosedError], None] | None = None
    protocols: ServerProtocols = PROCESS_PROTOCOLS
    random_unit: Callable[[], float] = random.random
    # what each request is signed with; None: they are not
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        self._host, self._port = parse_address(self.address)
        # the connection in use, or the attempt to make one, or neither
        self._connection: ClientConnection | None = None
        self._attempt: asyncio.Task[ClientConnection | ConnectFailure] | None = None
        # None after a connect that succeeded
        self._failure: ConnectFailure | None = None
        self._closed = False

    async def invoke(self, code: int, *, timeout_seconds: float, **question: Unpack[Question]) -> RemotingCommand:
        """The answer to a request, if it is a success.

        Raises:
            ResponseError: the server refused; the class is that of the answer's code.
            RequestTimeoutError: no answer in time, connecting included.
            ConnectError: no connection could be made, just now or a moment ago.
            ConnectionClosedError: the connection ended before the answer came; whether the request was carried out is
                not known. Its cause is a RemoteProtocolError if the server's bytes were not the protocol.
            LocalProtocolError: the request cannot be put on the wire.
        """
        answer = await self.invoke_raw(code, timeout_seconds=timeout_seconds, **question)
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer.code, answer.remark, answer.ext_fields)
        return answer

    async def invoke_raw(self, code: int, *, timeout_seconds: float, **question: Unpack[Question]) -> RemotingCommand:
        """The answer to a request, whatever its code. Raises RemotingError as `invoke`, but no ResponseError."""
        try:
            async with timeout_on(self.clock, timeout_seconds):
                return await (await self._connected()).call(RemotingCommand(code, **question))
        except TimeoutError:
            raise self._timed_out("no answer", code, timeout_seconds) from None

    async def oneway(self, code: int, *, timeout_seconds: float, **question: Unpack[Question]) -> None:
        """Send a request that is not answered; returns when it is on its way.

        Raises:
            RequestTimeoutError: no connection in time, or the server does not read.
            RemotingError: as `invoke`, but no ResponseError.
        """
        try:
            async with timeout_on(self.clock, timeout_seconds):
                await (await self._connected()).send(RemotingCommand(code, flag=FLAG_ONEWAY, **question))
        except TimeoutError:
            raise self._timed_out("not sent", code, timeout_seconds) from None

    def speaks_native(self) -> bool | None:
        """Whether the server speaks the native protocol, as far as this process knows; None when it has to be asked."""
        return self.protocols.is_native(self.address, self.clock.monotonic())

    async def server_info(self, timeout_seconds: float) -> bytes | None:
        """What the server says of itself natively, None from one that speaks RocketMQ's only. Raises RemotingError."""
        for _ in range(self.protocols.attempts(self.address)):
            try:
                answer = await self.invoke(
                    RequestCode.SERVER_INFO, timeout_seconds=timeout_seconds, serialize_type=SerializeType.MSGPACK
                )
            except RequestCodeNotSupportedError:
                break
            except NoPermissionError:
                # it has read the question
                self.protocols.learn(self.address, self.clock.monotonic(), is_native=True)
                raise
            except ConnectionClosedError:
                if self._closed:
                    raise
            else:
                self.protocols.learn(self.address, self.clock.monotonic(), is_native=True)
                return answer.body
        self.protocols.learn(self.address, self.clock.monotonic(), is_native=False)
        return None

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
                raise ConnectError(f"no connection to {self.address}: {failure.since(now)}")
            self._attempt = asyncio.create_task(self._connect())
        attempt = self._attempt
        # waited for, not awaited: whoever gives up must not take the attempt away from the others
        await asyncio.wait([attempt])
        if attempt.cancelled():
            raise self._is_closed()
        outcome = attempt.result()
        if isinstance(outcome, ConnectFailure):
            raise ConnectError(f"no connection to {self.address}: {outcome.reason}")
        return outcome

    async def _connect(self) -> ClientConnection | ConnectFailure:
        """One attempt. A failure is a value: there may be nobody left to raise it to."""
        try:
            if self._failure is not None:
                await self.clock.sleep(self._failure.retry_at - self.clock.monotonic())
            connection = await self._open_connection()
        # a name that is none fails as UnicodeError when it is encoded for the resolver
        except (OSError, UnicodeError, TlsError) as error:
            now = self.clock.monotonic()
            failures = 1 if self._failure is None else self._failure.failures + 1
            pause = self.backoff.pause_seconds(failures, self.random_unit())
            reason = why_lost(error) if self.tls is None else why_not_connected(error)
            reason = reason or f"timed out after {self.connect_timeout_seconds} s"
            self._failure = ConnectFailure(reason, now, failures, now + pause)
            return self._failure
        finally:
            self._attempt = None
        self._failure = None
        if connection.is_open:
            self._connection = connection
        return connection

    async def _open_connection(self) -> ClientConnection:
        connection = ClientConnection(
            self.address,
            max_frame_bytes=self.max_frame_bytes,
            on_request=self.on_request,
            on_lost=self._connection_lost,
            credentials=self.credentials,
        )
        loop = asyncio.get_running_loop()
        try:
            async with timeout_on(self.clock, self.connect_timeout_seconds):
                if self.tls is None:
                    transport, _ = await loop.create_connection(lambda: connection, self._host, self._port)
                else:
                    context = await asyncio.to_thread(self.tls.context)
                    transport, _ = await loop.create_connection(
                        lambda: connection, self._host, self._port, ssl=context, server_hostname=self._host
                    )
                set_tcp_options(transport.get_extra_info("socket"), user_timeout_seconds=self.tcp_user_timeout_seconds)
        except BaseException:
            # It may have been made in the very moment in which the time was up, or the client was closed. Not waited
            # for: uvloop closes such a transport itself, and never calls connection_lost.
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
        """Whether there is a connection now."""
        return self._connection is not None and self._connection.is_open

    @property
    def socket_descriptor(self) -> int | None:
        """The file descriptor of the connection; None when there is none."""
        descriptor: int | None = None
        if self._connection is not None and self._connection.is_open:
            descriptor = self._connection.transport.get_extra_info("socket").fileno()
        return descriptor

    @property
    def pending_count(self) -> int:
        """Requests on the wire that wait for their answer."""
        return 0 if self._connection is None else self._connection.pending_count

    async def close(self) -> None:
        """Fail what waits, close the connection and return when it is closed; a second call waits for the same."""
        self._closed = True
        if (attempt := self._attempt) is not None:
            attempt.cancel()
            await asyncio.wait([attempt])
        if (connection := self._connection) is None:
            return
        connection.close()
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
