"""The one connection of a client: opened when it is needed, and opened again after a loss, with a back-off."""

import asyncio
from collections.abc import Callable
from typing import Final

from namesrv_remoting.aio.client_connection import ClientConnection, OnLost
from namesrv_remoting.aio.connector import CONNECT_ERRORS, Connector
from namesrv_remoting.errors import ConnectError, ConnectionClosedError
from namesrv_runtime.backoff import Backoff, ConnectFailure
from namesrv_runtime.clock import Clock, timeout_on

# the time that a closing client leaves to a slow peer to read the last data
_FLUSH_SECONDS: Final = 1.0


class ConnectPauses:
    """The failed connects in a row, and the pause until the next attempt."""

    def __init__(self, backoff: Backoff, clock: Clock, random_unit: Callable[[], float]) -> None:
        self._backoff = backoff
        self._clock = clock
        self._random_unit = random_unit
        # the last failed connect; None after a successful one
        self._failure: ConnectFailure | None = None

    def __repr__(self) -> str:
        return f"<ConnectPauses [{0 if self._failure is None else self._failure.failures} failures]>"

    def failure_in_pause(self) -> ConnectFailure | None:
        """The failed connect whose pause is not over; None if the next attempt may begin now."""
        failure = self._failure
        return failure if failure is not None and self._clock.monotonic() < failure.retry_at else None

    async def wait_until_over(self) -> None:
        """Wait until the pause is over."""
        if self._failure is not None:
            await self._clock.sleep(self._failure.retry_at - self._clock.monotonic())

    def note_success(self) -> None:
        """Note that a connect succeeded: after the next failure, the first pause is short again."""
        self._failure = None

    def note_failure(self, error: Exception, reason: str) -> ConnectFailure:
        """Note that a connect failed, and begin the pause."""
        now = self._clock.monotonic()
        failures = 1 if self._failure is None else self._failure.failures + 1
        pause_seconds = self._backoff.pause_seconds(failures, self._random_unit())
        self._failure = ConnectFailure(error, reason, now, failures, now + pause_seconds)
        return self._failure


class KeptConnection:
    """The connection in use, or the attempt to open one, or neither; all callers share both."""

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        address: str,
        connector: Connector,
        pauses: ConnectPauses,
        *,
        clock: Clock,
        fail_fast: bool,
        on_lost: OnLost,
    ) -> None:
        self._address = address
        self._connector = connector
        self._pauses = pauses
        self._clock = clock
        # True if callers get an error during a pause; False if they wait for the end of the pause
        self._fail_fast = fail_fast
        # called when the connection in use ends, unless `close` ended it
        self._on_lost = on_lost
        self._in_use: ClientConnection | None = None
        self._attempt: asyncio.Task[ClientConnection | ConnectFailure] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<KeptConnection [{self._address} | {self.state} | {self.pending_count} pending]>"

    @property
    def state(self) -> str:
        """The state in words."""
        return "closed" if self._is_closed else "connected" if self.is_open else "not connected"

    @property
    def is_open(self) -> bool:
        """True if a request can be sent without a connect."""
        return self._in_use is not None and self._in_use.is_open

    @property
    def pending_count(self) -> int:
        """The number of requests that wait for a response."""
        return 0 if self._in_use is None else self._in_use.pending_count

    @property
    def socket_descriptor(self) -> int | None:
        """The file descriptor of the open connection; None without one."""
        if self._in_use is None or not self._in_use.is_open:
            return None
        descriptor: int = self._in_use.transport.get_extra_info("socket").fileno()
        return descriptor

    async def get(self) -> ClientConnection:
        """The connection in use, or a new one. Raises ConnectError, or ConnectionClosedError after `close`."""
        if self._is_closed:
            raise self._closed()
        if self._in_use is not None and self._in_use.is_open:
            return self._in_use
        if self._attempt is None:
            self._check_pause()
            self._attempt = asyncio.create_task(self._connect())
        return await self._result(self._attempt)

    def _check_pause(self) -> None:
        """Raise a ConnectError during a pause, unless callers wait for its end."""
        failure = self._pauses.failure_in_pause()
        if self._fail_fast and failure is not None:
            reason = failure.since(self._clock.monotonic())
            raise ConnectError(f"no connection to {self._address}: {reason}") from failure.cause

    async def _result(self, attempt: asyncio.Task[ClientConnection | ConnectFailure]) -> ClientConnection:
        """Wait for the attempt that callers share; return its connection."""
        # asyncio.wait, because awaiting the task would cancel it for all callers when one caller is cancelled.
        await asyncio.wait([attempt])
        if attempt.cancelled():
            raise self._closed()
        outcome = attempt.result()
        if isinstance(outcome, ConnectFailure):
            raise ConnectError(f"no connection to {self._address}: {outcome.reason}") from outcome.cause
        return outcome

    async def _connect(self) -> ClientConnection | ConnectFailure:
        """Make one attempt; a failure is returned, not raised, because no caller may be left to catch it."""
        try:
            await self._pauses.wait_until_over()
            connection = await self._connector.open(self._lost)
        except CONNECT_ERRORS as error:
            return self._pauses.note_failure(error, self._connector.why_failed(error))
        finally:
            self._attempt = None
        self._pauses.note_success()
        if connection.is_open:
            self._in_use = connection
        return connection

    def _lost(self, connection: ClientConnection, error: ConnectionClosedError) -> None:
        if connection is not self._in_use:
            # The connection ended before a caller got it, and callers get the error.
            return
        self._in_use = None
        if not self._is_closed:
            self._on_lost(connection, error)

    async def close(self, why: str) -> None:
        """Fail waiting requests, with the reason, and close the connection, within a second.

        A second call may return earlier.
        """
        self._is_closed = True
        if (attempt := self._attempt) is not None:
            attempt.cancel()
            await asyncio.wait([attempt])
        if (connection := self._in_use) is None:
            return
        connection.close(why)
        try:
            async with timeout_on(self._clock, _FLUSH_SECONDS):
                await connection.wait_lost()
        except TimeoutError:
            connection.abort()
            await connection.wait_lost()

    def _closed(self) -> ConnectionClosedError:
        return ConnectionClosedError(f"client of {self._address} is closed")
