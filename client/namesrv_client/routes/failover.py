"""The failover: each call is made to the chosen server, and to the next servers if that one fails or is silent.

A call tries each server once. A server that requires TLS, or responds with "not ready", "go away" or "busy", counts as
failed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from typing import Final

from namesrv_client.routes.route import RouteUnavailableError
from namesrv_client.routes.server import SERVER_FAILED, Server
from namesrv_client.routes.server_order import ServerOrder
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

# a function that sends requests to a server, with a timeout in seconds for each request
Attempt = Callable[[Server, float], Awaitable[None]]


class UndecidedError(RemotingError):
    """The server may not know all topics and brokers yet, or refused a topic; another server may have the route."""


class UnansweredError(RouteUnavailableError):
    """No server answered; `reasons` are those of the servers that were tried."""

    def __init__(self, message: str, reasons: Mapping[Server, str]) -> None:
        super().__init__(message)
        self.reasons = reasons


class RefusedError(UnansweredError):
    """No server answered, and at least one works but refused the request."""


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

    def unanswered(self, reasons: str) -> None:
        """No server answered."""
        now = self._clock.monotonic()
        if self._outage_logged_at is None or now - self._outage_logged_at >= _OUTAGE_LINE_SECONDS:
            self._outage_logged_at = now
            logger.warning("%s", reasons)


class Failover:
    """Makes calls to the servers in their order, until one responds; counts and logs failovers and outages."""

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
        self.unanswered = 0

    def __repr__(self) -> str:
        return f"<Failover [{self._servers!r} | {'ready' if self.is_ready else 'not ready'}]>"

    async def close(self) -> None:
        """Close all connections, and make no further calls."""
        self._is_closed = True
        await self._servers.close()

    async def call(self, attempt: Attempt) -> Server:
        """Try the chosen server, and the next one after a failure or a silence; return the first one that responds.

        All servers are tried within the first half of the call's time and may use the rest of it. If this process was
        stopped meanwhile, the remaining servers still get a short attempt.
        """
        settings, clock = self._settings, self._clock
        deadline = clock.monotonic() + settings.call_timeout_seconds
        attempt_seconds = min(
            settings.attempt_timeout_seconds, settings.call_timeout_seconds / (2 * max(1, len(self._servers)))
        )
        tried: set[Server] = set()
        reasons: dict[Server, str] = {}
        has_refused = False
        attempts: dict[asyncio.Task[RemotingError | None], Server] = {}

        try:
            while True:
                # The list of servers may have changed meanwhile: all of its servers may be new.
                waiting = [server for server in self._servers if server not in tried]
                if waiting:
                    server = waiting.pop(0)
                    tried.add(server)
                    until = max(deadline, clock.monotonic() + attempt_seconds)
                    attempts[asyncio.create_task(self._try(server, attempt, until))] = server
                elif not attempts:
                    break
                done = await self._done_or_silent(attempts, attempt_seconds if waiting else None)
                # In the order of the attempts: if several servers answer at once, the first of them stays chosen.
                for task in [task for task in attempts if task in done]:
                    server = attempts.pop(task)
                    if (error := task.result()) is None:
                        self._overtake([other for task, other in attempts.items() if not task.done()], server)
                        self._note_choice(server)
                        return server
                    has_refused = has_refused or _has_only_refused(error)
                    reasons[server] = self.failed(server, error)
        finally:
            for task in attempts:
                task.cancel()
            if attempts:
                await asyncio.wait(attempts)
        raise self._unanswered(reasons, has_refused=has_refused)

    async def _try(self, server: Server, attempt: Attempt, until: float) -> RemotingError | None:
        """Make one attempt; an error is returned, not raised, because the call may have ended."""
        try:
            await server.identify(until - self._clock.monotonic())
            await attempt(server, max(0.0, until - self._clock.monotonic()))
        except RemotingError as error:
            count_failure(server, error)
            return error
        self._was_answered(server)
        return None

    def _unanswered(self, reasons: Mapping[Server, str], *, has_refused: bool) -> RouteUnavailableError:
        self.unanswered += 1
        self.is_ready = self.is_ready and has_refused
        reason = self.unavailable(reasons)
        if has_refused:
            return RefusedError(reason, reasons)
        if not self._is_closed:
            self._log.unanswered(reason)
        return UnansweredError(reason, reasons)

    def log_outage(self, reason: str) -> None:
        """Log that no server answered, once a minute."""
        self._log.unanswered(reason)

    def answered(self, server: Server) -> None:
        """Note the response to a request outside of a call."""
        self._was_answered(server)
        self._note_choice(server)

    def _was_answered(self, server: Server) -> None:
        server.record.pulls["answered"] += 1
        if not self.is_ready:
            self.is_ready = True
            self._events.ready()

    def _note_choice(self, server: Server) -> None:
        """Count a failover and log a new chosen server, after a call that may have changed the order of the servers."""
        self._servers.answered(server)
        chosen = self._servers.chosen
        self._log.answered(server.address, None if chosen is None else chosen.address)

    async def _done_or_silent(
        self, attempts: Mapping[asyncio.Task[RemotingError | None], Server], silence_seconds: float | None
    ) -> set[asyncio.Task[RemotingError | None]]:
        """Wait for an attempt to end; return no attempt if the newest server sends nothing for `silence_seconds`."""
        began, newest = self._clock.monotonic(), list(attempts.values())[-1]
        left = silence_seconds
        while left is None or left > 0:
            with suppress(TimeoutError):
                async with nullcontext() if left is None else timeout_on(self._clock, left):
                    return (await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED))[0]
            if silence_seconds is not None:
                left = max(began, newest.record.answered_at) + silence_seconds - self._clock.monotonic()
        return set()

    def _overtake(self, silent: Collection[Server], winner: Server) -> None:
        """Move the silent servers to the end; if the chosen one is silent, choose the server that answered."""
        is_chosen_silent = self._servers.chosen in silent
        for server in silent:
            server.record.pulls["overtaken"] += 1
            server.record.note_failure(f"no answer before that of {winner.address}")
            if server in self._servers:
                self._servers.put_last(server)
        if is_chosen_silent and winner in self._servers:
            # A server between the two may have refused the request.
            self._servers.choose(winner)

    def failed(self, server: Server, error: RemotingError) -> str:
        """Move a failed server to the end of the list, unless it only refused this request; return the reason."""
        reason = server.record.note_failure(error)
        if not _has_only_refused(error) and server in self._servers:
            self._servers.put_last(server)
            if isinstance(error, RequestTimeoutError):
                # Only this connection may hang; the requests under way on it are not needed any more.
                self._servers.disconnect(server)
        return reason

    def no_server(self) -> str:
        """The reason that a call has no server to try."""
        error = self._list_error()
        return "no NameServer is known" if error is None else f"no NameServer is known: {error}"

    def unavailable(self, reasons: Mapping[Server, str]) -> str:
        """The reasons why no server could answer, in one sentence."""
        if not self._servers:
            return "the client is closed" if self._is_closed else self.no_server()
        lines = []
        for server in sorted(self._servers, key=lambda server: server.address):
            reason = reasons.get(server, "not tried")
            # Most reasons name the server, but its responses do not.
            lines.append(reason if server.address in reason else f"{server.address}: {reason}")
        return f"no NameServer could answer: {'; '.join(lines)}"


def _has_only_refused(error: RemotingError) -> bool:
    """True if the server works, but refused the request or does not know the topic yet."""
    return isinstance(error, UndecidedError | ResponseError) and not isinstance(error, SERVER_FAILED)
