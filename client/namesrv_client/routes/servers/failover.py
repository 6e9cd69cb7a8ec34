"""The failover: each call is made to the chosen server, and to the next servers if that one fails or is silent.

A call tries each server once. A server that requires TLS, or responds with "not ready", "go away" or "busy", counts as
failed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from namesrv_client.routes.route import RouteUnavailableError
from namesrv_client.routes.servers.order import ServerOrder
from namesrv_client.routes.servers.server import SERVER_FAILED, Server
from namesrv_client.settings import ClientSettings
from namesrv_remoting.errors import (
    ConnectError,
    ConnectionClosedError,
    RemoteProtocolError,
    RemotingError,
    RequestTimeoutError,
    ResponseError,
    TlsRequiredError,
)
from namesrv_runtime.clock import Clock, timeout_on
from namesrv_runtime.server_events import ServerEvents

logger: Final = logging.getLogger("namesrv_client.connection")

# interval of the log lines that report an outage
_OUTAGE_LINE_SECONDS: Final = 60.0

# a function that sends the requests of a call to one server, with a timeout in seconds for each request
Attempt = Callable[[Server, float], Awaitable[None]]


class UndecidedError(RemotingError):
    """The server may not know all topics and brokers yet, or refused a topic; another server may have the route."""


class CallFailedError(RouteUnavailableError):
    """No attempt of a call succeeded; `reasons` are those of the servers that were tried."""

    def __init__(self, message: str, reasons: Mapping[Server, str]) -> None:
        super().__init__(message)
        self.reasons = reasons


class CallRefusedError(CallFailedError):
    """No attempt of a call succeeded, and at least one server works but refused the request."""


# the result of a route request by its error; the first row that fits counts
_RESULTS: Final[tuple[tuple[tuple[type[RemotingError], ...], str], ...]] = (
    ((TlsRequiredError,), "refused"),
    (SERVER_FAILED, "not_ready"),
    ((UndecidedError,), "undecided"),
    ((ResponseError,), "refused"),
    ((RequestTimeoutError,), "timeout"),
    ((ConnectError,), "unreachable"),
    ((ConnectionClosedError,), "closed"),
    ((RemoteProtocolError,), "malformed"),
)


def count_failure(server: Server, error: RemotingError) -> None:
    """Count a failed route request by its result."""
    server.record.pulls[next((word for classes, word in _RESULTS if isinstance(error, classes)), "failed")] += 1


class _FailoverLog:
    """Logs one line for each change of the chosen server, and one line a minute while no server answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # the server that answered last as the chosen one
        self._chosen: str | None = None
        # time of the last line about the current outage; None without an outage
        self._outage_logged_at: float | None = None

    def answered(self, server: str, chosen: str | None) -> None:
        """A server answered, the chosen one or another one; a new chosen server is logged with its first response."""
        self._outage_logged_at = None
        if server == chosen:
            if self._chosen not in {None, chosen}:
                logger.info("chosen server: %s, before %s", chosen, self._chosen)
            self._chosen = chosen

    def outage(self, reason: str) -> None:
        """No server gave routes; logged once a minute."""
        now = self._clock.monotonic()
        if self._outage_logged_at is None or now - self._outage_logged_at >= _OUTAGE_LINE_SECONDS:
            self._outage_logged_at = now
            logger.warning("%s", reason)


class _Attempts:
    """The attempts of one call: one for each server, begun one after the other, so that several may be under way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tried: set[Server] = set()
        # the attempts under way, in the order of their begin; a task returns the error of a failed attempt
        self._under_way: dict[asyncio.Task[RemotingError | None], Server] = {}

    def __repr__(self) -> str:
        return f"<_Attempts [{len(self._tried)} servers tried | {len(self._under_way)} under way]>"

    @property
    def servers(self) -> list[Server]:
        """The servers whose attempts are under way."""
        return list(self._under_way.values())

    def untried(self, servers: Iterable[Server]) -> list[Server]:
        """Those of the servers that were not tried."""
        return [server for server in servers if server not in self._tried]

    def begin(self, server: Server, attempt: Coroutine[Any, Any, RemotingError | None]) -> None:
        """Begin the attempt of a server."""
        self._tried.add(server)
        self._under_way[asyncio.create_task(attempt)] = server

    async def ended(self) -> list[tuple[Server, RemotingError | None]]:
        """Wait until an attempt ends; return all ended attempts with their errors, in the order of their begin."""
        done, _ = await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        return [(self._under_way.pop(task), task.result()) for task in list(self._under_way) if task in done]

    async def ended_before_silence(self, silence_seconds: float) -> list[tuple[Server, RemotingError | None]]:
        """As `ended`, but return an empty list once the newest server has sent nothing for `silence_seconds`."""
        began, newest = self._clock.monotonic(), self.servers[-1]
        left = silence_seconds
        while left > 0:
            with suppress(TimeoutError):
                async with timeout_on(self._clock, left):
                    return await self.ended()
            # The server is not silent if it has answered a part of the requests, or those of another call.
            left = max(began, newest.record.answered_at) + silence_seconds - self._clock.monotonic()
        return []

    async def cancel(self) -> None:
        """End all attempts under way."""
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)


class Failover:
    """Makes calls to the servers in their order, until an attempt succeeds; counts and logs failovers and outages."""

    def __init__(
        self,
        settings: ClientSettings,
        clock: Clock,
        servers: ServerOrder,
        *,
        events: ServerEvents,
        list_error: Callable[[], str | None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._servers = servers
        self._events = events
        # returns the reason that the list of servers could not be read
        self._list_error = list_error
        self._log = _FailoverLog(clock)
        self._is_closed = False
        # True if a server answered the last call; refused calls and failed watches change nothing
        self.is_ready = False
        # number of calls that no server answered, or that were only refused
        self.failed_calls = 0

    def __repr__(self) -> str:
        return f"<Failover [{self._servers!r} | {'ready' if self.is_ready else 'not ready'}]>"

    async def close(self) -> None:
        """Close all connections, and make no further calls."""
        self._is_closed = True
        await self._servers.close()

    async def call(self, attempt: Attempt) -> Server:
        """Try the chosen server, and the next one after a failure or a silence; return the one whose attempt succeeds.

        All servers are tried within the first half of the call's time and may use the rest of it. If this process was
        stopped meanwhile, the remaining servers still get a short attempt.
        """
        deadline = self._clock.monotonic() + self._settings.call_timeout_seconds
        attempt_seconds = self._attempt_seconds()
        attempts = _Attempts(self._clock)
        reasons: dict[Server, str] = {}
        has_refused = False
        try:
            # The list of servers may change meanwhile: all of its servers may be new.
            while (untried := attempts.untried(self._servers)) or attempts.servers:
                if untried:
                    until = max(deadline, self._clock.monotonic() + attempt_seconds)
                    attempts.begin(untried[0], self._try(untried[0], attempt, until))
                if len(untried) > 1:
                    ended = await attempts.ended_before_silence(attempt_seconds)
                else:
                    # After a silence, no further server could be tried.
                    ended = await attempts.ended()
                # In the order of the attempts: if several servers answer at once, the first of them stays chosen.
                for server, error in ended:
                    if error is None:
                        self._overtake(attempts.servers, server)
                        self._note_choice(server)
                        return server
                    has_refused = has_refused or _is_refusal(error)
                    reasons[server] = self.note_failure(server, error)
        finally:
            await attempts.cancel()
        raise self._failed_call(reasons, has_refused=has_refused)

    def _attempt_seconds(self) -> float:
        """The time without a response after which the next server is tried."""
        share = self._settings.call_timeout_seconds / (2 * max(1, len(self._servers)))
        return min(self._settings.attempt_timeout_seconds, share)

    async def _try(self, server: Server, attempt: Attempt, until: float) -> RemotingError | None:
        """Make one attempt; an error is returned, not raised, because the call may have ended."""
        try:
            await server.identify(until - self._clock.monotonic())
            await attempt(server, max(0.0, until - self._clock.monotonic()))
        except RemotingError as error:
            count_failure(server, error)
            return error
        self._count_response(server)
        return None

    def _failed_call(self, reasons: Mapping[Server, str], *, has_refused: bool) -> CallFailedError:
        """Count and log a call without a successful attempt; return its error."""
        self.failed_calls += 1
        reason = self.why_unavailable(reasons)
        if has_refused:
            return CallRefusedError(reason, reasons)
        self.is_ready = False
        if not self._is_closed:
            self._log.outage(reason)
        return CallFailedError(reason, reasons)

    def log_outage(self, reason: str) -> None:
        """Log that no server gave routes, once a minute."""
        self._log.outage(reason)

    def note_response(self, server: Server) -> None:
        """Note the response to a route request outside of a call."""
        self._count_response(server)
        self._note_choice(server)

    def _count_response(self, server: Server) -> None:
        """Count a response; the first one after the start or an outage is an event."""
        server.record.pulls["answered"] += 1
        if not self.is_ready:
            self.is_ready = True
            self._events.ready()

    def _note_choice(self, server: Server) -> None:
        """Count a failover and log a new chosen server, after a call that may have changed the order of the servers."""
        self._servers.answered(server)
        chosen = self._servers.chosen
        self._log.answered(server.address, None if chosen is None else chosen.address)

    def _overtake(self, silent: Collection[Server], winner: Server) -> None:
        """Move the silent servers to the end; if the chosen one is silent, choose the server that answered."""
        is_chosen_silent = self._servers.chosen in silent
        for server in silent:
            server.record.pulls["overtaken"] += 1
            server.record.note_failure(f"no response before that of {winner.address}")
            if server in self._servers:
                self._servers.put_last(server)
        if is_chosen_silent and winner in self._servers:
            # A server between the two may have refused the request.
            self._servers.choose(winner)

    def note_failure(self, server: Server, error: RemotingError) -> str:
        """Move a failed server to the end of the list, unless it only refused this request; return the reason."""
        reason = server.record.note_failure(error)
        if not _is_refusal(error) and server in self._servers:
            self._servers.put_last(server)
            if isinstance(error, RequestTimeoutError):
                # Only this connection may hang; the requests under way on it are not needed any more.
                self._servers.disconnect(server)
        return reason

    def why_no_server(self) -> str:
        """The reason that a call has no server to try."""
        error = self._list_error()
        return "no NameServer is known" if error is None else f"no NameServer is known: {error}"

    def why_unavailable(self, reasons: Mapping[Server, str]) -> str:
        """The reasons why no server could answer, in one sentence."""
        if not self._servers:
            return "the client is closed" if self._is_closed else self.why_no_server()
        lines = []
        for server in sorted(self._servers, key=lambda server: server.address):
            reason = reasons.get(server, "not tried")
            # Most reasons name the server, but its responses do not.
            lines.append(reason if server.address in reason else f"{server.address}: {reason}")
        return f"no NameServer could answer: {'; '.join(lines)}"


def _is_refusal(error: RemotingError) -> bool:
    """True if the server works, but refused the request or does not know the topic yet."""
    return isinstance(error, UndecidedError | ResponseError) and not isinstance(error, SERVER_FAILED)
