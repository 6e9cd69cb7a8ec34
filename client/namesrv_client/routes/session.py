"""The choice of a NameServer for each call, and the failover to other servers.

One server, chosen at random, stays the chosen one until it fails, another server answers faster, or a server is chosen
anew, which happens about every ten minutes. Each call tries each server once. A server that responds with "not ready"
or "go away" counts as failed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Final

from namesrv_client.routes.cache import RouteResponse, SyncPoint
from namesrv_client.routes.route import RouteUnavailableError
from namesrv_client.routes.server import SERVER_FAILED, Receive, Server, Unanswered, may_concern_a_topic
from namesrv_client.routes.server_order import ServerOrder
from namesrv_client.routes.status import ServerStatus, WatchStatus
from namesrv_client.settings import ClientSettings
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.errors import (
    ConnectError,
    ConnectionClosedError,
    RemoteProtocolError,
    RemotingError,
    RequestTimeoutError,
    ResponseError,
    TlsRequiredError,
)
from namesrv_runtime.clock import Clock, timeout_on, wall_at
from namesrv_runtime.server_events import ServerEvents

logger: Final = logging.getLogger("namesrv_client.connection")

# interval of the log lines that report an outage
_OUTAGE_LINE_SECONDS: Final = 60.0

# a function that sends requests to a server, with a timeout in seconds for each request
Attempt = Callable[[Server, float], Awaitable[None]]


class _UndecidedError(RemotingError):
    """The server may not know all topics and brokers yet, or refused a topic; another server may have the route."""


class _UnansweredError(RouteUnavailableError):
    """No server answered; `reasons` are those of the servers that were tried."""

    def __init__(self, message: str, reasons: Mapping[Server, str]) -> None:
        super().__init__(message)
        self.reasons = reasons


class _RefusedError(_UnansweredError):
    """No server answered, and at least one works but refused the request."""


# the result of a route request by its error; the first row that fits counts
_RESULTS: Final[tuple[tuple[tuple[type[RemotingError], ...], str], ...]] = (
    ((TlsRequiredError,), "refused"),
    (SERVER_FAILED, "not_ready"),
    ((_UndecidedError,), "undecided"),
    ((ResponseError,), "refused"),
    ((RequestTimeoutError,), "timeout"),
    ((ConnectError,), "unreachable"),
    ((ConnectionClosedError,), "closed"),
    ((RemoteProtocolError,), "malformed"),
)


def _result(error: RemotingError) -> str:
    return next((word for classes, word in _RESULTS if isinstance(error, classes)), "failed")


class _SessionLog:
    """Logs one line for each change of the chosen server, and one line a minute while no server answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # the server that answered last as the chosen one
        self._chosen: str | None = None
        # time of the last line about the current outage; None without an outage
        self._outage_logged_at: float | None = None
        # topics that were not answered when they were last requested
        self._unanswered_topics: set[str] = set()

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

    def topics_unanswered(self, server: Server, topics: Collection[str], unanswered: Unanswered) -> None:
        """The server that ended the call did not answer some of the requested topics."""
        new = sorted(unanswered.keys() - self._unanswered_topics)
        self._unanswered_topics = self._unanswered_topics.difference(topics).union(unanswered)
        if new:
            error = unanswered[new[0]]
            reason = str(error) or type(error).__name__
            message = "%s gave no route for %d of %d topics, such as %s: %s"
            logger.warning(message, server.address, len(new), len(topics), new[0], reason)


class ServerSession:
    """Sends route requests to the chosen server, and to the next servers when it fails."""

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        settings: ClientSettings,
        clock: Clock,
        point: SyncPoint,
        *,
        protocols: ServerProtocols,
        shuffle: Callable[[list[str]], None],
        events: ServerEvents,
        list_error: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._settings = settings
        # returns the reason that the list of servers could not be read
        self._list_error = list_error
        self._clock = clock
        self._point = point
        self._events = events
        self._log = _SessionLog(clock)
        self._servers = ServerOrder(settings, clock, protocols=protocols, shuffle=shuffle, events=events)
        # boot id to which the last watch was sent
        self._watched: str | None = None
        self._is_closed = False
        # True if a server answered the last call; refused calls and failed watches change nothing
        self.is_ready = False
        # number of requests that no server answered, or that were only refused
        self.unanswered = 0
        # the current watch: its server, its start (monotonic) and its number of topics
        self._held: tuple[Server, float, int] | None = None

    @property
    def chosen(self) -> str | None:
        """The address of the chosen server; None if no server is known."""
        chosen = self._servers.chosen
        return None if chosen is None else chosen.address

    @property
    def failovers(self) -> int:
        """Number of times that another server answered because the chosen one failed or was silent."""
        return self._servers.failovers

    @property
    def errors(self) -> dict[str, str]:
        """The last failure of each server, by address."""
        return {server.address: server.record.error for server in self._servers if server.record.error is not None}

    def statuses(self) -> tuple[ServerStatus, ...]:
        """The status of each server; any thread may call this."""
        return tuple(server.status(is_chosen=not number) for number, server in enumerate(self._servers))

    def watches(self) -> tuple[WatchStatus, ...]:
        """The watch that a server holds, if there is one; any thread may call this."""
        held = self._held
        if held is None or not held[0].record.is_connected:
            return ()
        server, began, topics = held
        return (WatchStatus(server.address, wall_at(self._clock, began), topics),)

    def use(self, addresses: tuple[str, ...]) -> None:
        """Use another list of servers."""
        self._servers.use(addresses)

    def socket_descriptors(self) -> list[int]:
        """The file descriptors of all connections."""
        return [descriptor for server in self._servers if (descriptor := server.socket_descriptor) is not None]

    async def close(self) -> None:
        """Close all connections, and send no further requests."""
        self._is_closed = True
        await self._servers.close()

    async def routes(
        self, topics: Sequence[str], receive: Receive, *, rejected: Container[str] = ()
    ) -> Mapping[str, str]:
        """Request the full routes of topics; return the topics that no server could answer, with the reasons.

        Topics that one server may not know yet, or has refused, are requested from the other servers as well, and so
        are topics that are in `rejected` after `receive`, because their route was not accepted.
        """
        left = dict.fromkeys(topics)
        # for each server that works, why it gave no route of a topic
        of_topics: dict[Server, dict[str, str]] = {}

        def received(response: RouteResponse) -> None:
            receive(response)
            for topic, route in response.routes.items():
                if (route is not None or response.knows_all_topics) and topic not in rejected:
                    left.pop(topic, None)

        async def attempt(server: Server, timeout_seconds: float) -> None:
            unanswered: dict[str, RemotingError] = {}
            try:
                await server.full_routes(list(left), received, timeout_seconds, unanswered, is_total=True)
            except RemotingError:
                # The error of one topic must not stand for all others.
                of_topics[server] = {topic: _why_undecided(topic, error) for topic, error in unanswered.items()}
                raise
            if left:
                of_topics[server] = {topic: _why_undecided(topic, unanswered.get(topic)) for topic in left}
                # The record of the server names the topic of the last error.
                raise _UndecidedError((unanswered and server.record.error) or of_topics[server][next(iter(left))])

        try:
            await self._call(attempt)
        except _UnansweredError as error:
            return {
                topic: self._unavailable(
                    {server: of_topics.get(server, {}).get(topic, why) for server, why in error.reasons.items()}
                )
                for topic in left
            }
        return {}

    async def changes(self, topics: Sequence[str], receive: Receive) -> None:
        """Request the changes of topics. Raises RouteUnavailableError if no server answered, or all refused all topics.

        A native server gets one request for the changes since the sync point, and one for topics that are not in the
        sync point. A RocketMQ server gets one request per topic.
        """
        unanswered: dict[Server, Unanswered] = {}

        async def attempt(server: Server, timeout_seconds: float) -> None:
            unanswered[server] = await server.changes(topics, self._point, receive, timeout_seconds)

        try:
            server = await self._call(attempt)
        except _RefusedError as error:
            # Logged here, because a poll has no caller who would see the error.
            self._log.unanswered(str(error))
            raise
        self._log.topics_unanswered(server, topics, unanswered[server])

    async def watch(
        self,
        topics: Sequence[str],
        wait_seconds: float,
        receive: Receive,
        *,
        on_refused: Callable[[Collection[str]], None],
    ) -> bool:
        """Let the chosen server hold a request until a topic changes, or for `wait_seconds`; True: watch again at once.

        If the sync point lacks a topic, or the server refuses the watch, `changes` requests the topics without a wait;
        then `on_refused` gets the refused topics, which the next watch has to omit. The result is False if there are
        such topics, or if the time passed without a change. Raises RemotingError.
        """
        server, timeout_seconds = self._servers.chosen, self._settings.attempt_timeout_seconds
        if server is None:
            raise RouteUnavailableError(self._no_server())
        try:
            await server.identify(timeout_seconds)
            if server.identity.is_native:
                known, others = self._point.known(server.identity.boot_id, topics)
                if not others:
                    self._watched, since = server.identity.boot_id, self._point.revision
                    self._held = (server, self._clock.monotonic(), len(known))
                    try:
                        response = await server.pull(known, timeout_seconds, since=since, wait_seconds=wait_seconds)
                    finally:
                        self._held = None
                    self._was_answered(server)
                    self._note_choice(server)
                    receive(response)
                    return bool(response.routes)
        except RemotingError as error:
            server.record.pulls[_result(error)] += 1
            self._failed(server, error)
            if not may_concern_a_topic(error):
                raise
        if server.identity.is_native is False:
            raise RouteUnavailableError(f"{server.address} does not support watches")
        with suppress(_RefusedError):
            await self.changes(topics, receive)
        _, refused = self._point.known(self._point.boot_id, topics)
        on_refused(refused)
        # False if a topic is refused, because the caller would otherwise send the next watch at once.
        return not refused

    async def choose_anew(self, topics: Sequence[str], receive: Receive) -> bool:
        """Choose a server at random, and use it once it has answered for the topics; True if the chosen server changed.

        Requests under way stay with the former server, whose connection stays open until `leave_others`.
        """
        server, timeout_seconds = self._servers.at_random(), self._settings.attempt_timeout_seconds
        if server is None or server is self._servers.chosen:
            return False
        try:
            await server.identify(timeout_seconds)
            await server.changes(topics, self._point, receive, timeout_seconds)
        except RemotingError as error:
            server.record.pulls[_result(error)] += 1
            server.record.note_failure(error)
            return False
        if server not in self._servers:
            return False
        self._servers.choose(server)
        self._was_answered(server)
        self._note_choice(server)
        return True

    async def leave_others(self) -> None:
        """Close the connections to servers that are not the chosen one and have no request under way."""
        for server in self._servers:
            if server is not self._servers.chosen and server.record.is_connected and server.is_idle:
                await server.disconnect("another server was chosen")

    async def ping(self, timeout_seconds: float) -> bool:
        """Request the boot id of the chosen server; True if the last watch was sent to another boot id.

        False without a request if the server is not known to be native. The timeout is that of an attempt, if that is
        longer than `timeout_seconds`. Raises RemotingError if the request fails; the server then counts as failed.
        """
        server = self._servers.chosen
        if server is None or not server.identity.is_native:
            # A RocketMQ server holds no watch.
            return False
        try:
            await server.request_boot_id(max(timeout_seconds, self._settings.attempt_timeout_seconds))
        except RemotingError as error:
            self._failed(server, error)
            raise
        return self._watched not in (None, server.identity.boot_id)

    async def _call(self, attempt: Attempt) -> Server:
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

        async def try_server(server: Server) -> RemotingError | None:
            """Make one attempt; an error is returned, not raised, because the call may have ended."""
            until = max(deadline, clock.monotonic() + attempt_seconds)
            try:
                await server.identify(until - clock.monotonic())
                await attempt(server, max(0.0, until - clock.monotonic()))
            except RemotingError as error:
                server.record.pulls[_result(error)] += 1
                return error
            self._was_answered(server)
            return None

        try:
            while True:
                # The list of servers may have changed meanwhile: all of its servers may be new.
                waiting = [server for server in self._servers if server not in tried]
                if waiting:
                    server = waiting.pop(0)
                    tried.add(server)
                    attempts[asyncio.create_task(try_server(server))] = server
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
                    reasons[server] = self._failed(server, error)
        finally:
            for task in attempts:
                task.cancel()
            if attempts:
                await asyncio.wait(attempts)
        raise self._unanswered(reasons, has_refused=has_refused)

    def _unanswered(self, reasons: Mapping[Server, str], *, has_refused: bool) -> RouteUnavailableError:
        self.unanswered += 1
        self.is_ready = self.is_ready and has_refused
        reason = self._unavailable(reasons)
        if has_refused:
            return _RefusedError(reason, reasons)
        if not self._is_closed:
            self._log.unanswered(reason)
        return _UnansweredError(reason, reasons)

    def _was_answered(self, server: Server) -> None:
        server.record.pulls["answered"] += 1
        if not self.is_ready:
            self.is_ready = True
            self._events.ready()

    def _note_choice(self, server: Server) -> None:
        """Count a failover and log a new chosen server, after a call that may have changed the order of the servers."""
        self._servers.answered(server)
        self._log.answered(server.address, self.chosen)

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

    def _failed(self, server: Server, error: RemotingError) -> str:
        """Move a failed server to the end of the list, unless it only refused this request; return the reason."""
        reason = server.record.note_failure(error)
        if not _has_only_refused(error) and server in self._servers:
            self._servers.put_last(server)
            if isinstance(error, RequestTimeoutError):
                # Only this connection may hang; the requests under way on it are not needed any more.
                self._servers.disconnect(server)
        return reason

    def _no_server(self) -> str:
        error = self._list_error()
        return "no NameServer is known" if error is None else f"no NameServer is known: {error}"

    def _unavailable(self, reasons: Mapping[Server, str]) -> str:
        if not self._servers:
            return "the client is closed" if self._is_closed else self._no_server()
        lines = []
        for server in sorted(self._servers, key=lambda server: server.address):
            reason = reasons.get(server, "not tried")
            # Most reasons name the server, but its responses do not.
            lines.append(reason if server.address in reason else f"{server.address}: {reason}")
        return f"no NameServer could answer: {'; '.join(lines)}"


def _why_undecided(topic: str, error: RemotingError | None) -> str:
    """The reason why a working server gave no route of a topic; without an error the server knows too little."""
    if error is None:
        return f"has just started or lost its brokers, and may not know all brokers of topic {topic} yet"
    return str(error) or "refused without a reason"


def _has_only_refused(error: RemotingError) -> bool:
    """True if the server works, but refused the request or does not know the topic yet."""
    return isinstance(error, _UndecidedError | ResponseError) and not isinstance(error, SERVER_FAILED)
