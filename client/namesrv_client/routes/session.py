"""The chosen NameServer, and how a call goes on to the others.

One server, chosen at random, stays the chosen one until it fails or another one has to answer for it; each call tries
each server once. A server that answers "not ready" or "go away" has failed as well.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any, Final

from namesrv_client.routes.cache import Answer, SyncPoint
from namesrv_client.routes.route import RouteUnavailableError
from namesrv_client.routes.server import PART_REFUSED, SERVER_FAILED, Server, Take
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
)
from namesrv_runtime.clock import Clock, timeout_on
from namesrv_runtime.server_events import ServerEvents

logger: Final = logging.getLogger("namesrv_client.connection")

# how often a line says that no server answers
_OUTAGE_LINE_SECONDS: Final = 60.0

# asks a server, with so many seconds for each question
Ask = Callable[[Server, float], Awaitable[None]]


class _CannotTellError(RemotingError):
    """The server is too young to deny a topic, or does not want to be asked about it; another one may tell."""


# how a question about routes ended, by what it was answered with; the first that fits
_RESULTS: Final[tuple[tuple[tuple[type[RemotingError], ...], str], ...]] = (
    (SERVER_FAILED, "not_ready"),
    ((_CannotTellError,), "undecided"),
    ((ResponseError,), "refused"),
    ((RequestTimeoutError,), "timeout"),
    ((ConnectError,), "unreachable"),
    ((ConnectionClosedError,), "closed"),
    ((RemoteProtocolError,), "malformed"),
)


def _result(error: RemotingError) -> str:
    return next((word for classes, word in _RESULTS if isinstance(error, classes)), "failed")


class _SessionLog:
    """The lines about which server is asked: one for each change, and one a minute while none answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # the server that answered last as the chosen one
        self._chosen: str | None = None
        # when the last line about the present outage was written; None: a server answered since
        self._outage_logged_at: float | None = None

    def answered(self, chosen: str) -> None:
        """The chosen server answered."""
        if self._chosen not in {None, chosen}:
            logger.info("%s is asked first from now on, and not %s", chosen, self._chosen)
        self._chosen, self._outage_logged_at = chosen, None

    def unanswered(self, reasons: str) -> None:
        """No server answered."""
        now = self._clock.monotonic()
        if self._outage_logged_at is None or now - self._outage_logged_at >= _OUTAGE_LINE_SECONDS:
            self._outage_logged_at = now
            logger.warning("%s", reasons)


class ServerSession:
    """The chosen server, and the way to the next. What is asked natively depends on what is known: the sync point."""

    def __init__(  # noqa: PLR0913 - what it is made of, by keyword
        self,
        settings: ClientSettings,
        clock: Clock,
        point: SyncPoint,
        *,
        protocols: ServerProtocols,
        shuffle: Callable[[list[str]], None],
        events: ServerEvents,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._point = point
        self._protocols = protocols
        self._shuffle = shuffle
        self._events = events
        self._log = _SessionLog(clock)
        # in the order in which they are tried; the first is the chosen one
        self._servers: list[Server] = []
        # the run that was asked to hold a question last
        self._watched: str | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        # a server answered the last question
        self.is_ready = False
        # times that another server became the chosen one; questions that none answered
        self.failovers = self.unanswered = 0
        # the question that a server is to hold now, if there is one: who, since when (wall clock), how many topics
        self._held: tuple[Server, float, int] | None = None

    @property
    def chosen(self) -> str | None:
        """The address that is asked first; None when no server is known."""
        return self._servers[0].address if self._servers else None

    @property
    def errors(self) -> dict[str, str]:
        """Why each server failed the last time, by address."""
        return {server.address: server.error for server in self._servers if server.error is not None}

    def statuses(self) -> tuple[ServerStatus, ...]:
        """Each server, for any thread."""
        return tuple(server.status(is_chosen=not number) for number, server in enumerate(tuple(self._servers)))

    def watches(self) -> tuple[WatchStatus, ...]:
        """The question that a server holds, if there is one, for any thread."""
        held = self._held
        if held is None or not held[0].is_connected:
            return ()
        server, since, topics = held
        return (WatchStatus(server.address, since, topics),)

    def use(self, addresses: tuple[str, ...]) -> None:
        """Take another list: the chosen server stays if it is in it, the others come in random order."""
        chosen, order = self.chosen, list(addresses)
        self._shuffle(order)
        if chosen in order:
            order.remove(chosen)
            order.insert(0, chosen)
        old = {server.address: server for server in self._servers}
        self._servers = [
            old.pop(address)
            if address in old
            else Server(address, self._settings, self._clock, self._protocols, self._events)
            for address in order
        ]
        for server in old.values():
            self._finish(server.close())
        self._events.servers_changed(addresses)

    def socket_descriptors(self) -> list[int]:
        """The file descriptors of all connections."""
        return [found for server in self._servers if (found := server.socket_descriptor) is not None]

    async def close(self) -> None:
        """Close all connections; nothing is asked any more."""
        self._is_closed = True
        self.use(())
        if self._closing:
            await asyncio.wait(self._closing)

    def _finish(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def routes(self, topics: Sequence[str], take: Take) -> Mapping[str, str]:
        """All about some topics, answer by answer; those that nobody could tell about, and why not.

        Of what one server may not know yet, or did not want to be asked about, the others are asked as well.
        """
        left = dict.fromkeys(topics)

        def received(answer: Answer) -> None:
            for topic, route in answer.routes.items():
                if route is not None or answer.can_deny:
                    left.pop(topic, None)
            take(answer)

        async def ask(server: Server, timeout_seconds: float) -> None:
            is_refused = await server.everything(list(left), received, timeout_seconds)
            if left and (is_refused or server.can_deny):
                raise _CannotTellError(server.error or "refused to say")
            if left:
                raise _CannotTellError(f"has just started and may not know topic {next(iter(left))} yet")

        try:
            await self._call(ask)
        except RouteUnavailableError as error:
            return dict.fromkeys(left, str(error))
        return {}

    async def changes(self, topics: Sequence[str], take: Take) -> None:
        """Whatever is new about the topics, answer by answer. Raises RouteUnavailableError when no server answered.

        From a native server in one question what changed since the sync point, and all about topics that were not
        known there. From a RocketMQ server one question per topic.
        """
        await self._call(lambda server, seconds: server.changes(topics, self._point, take, seconds))

    async def watch(self, topics: Sequence[str], wait_seconds: float, take: Take) -> bool:
        """As `changes`, but held by the chosen server until something changes or the wait is over; whether it did."""
        if not self._servers:
            raise RouteUnavailableError("no NameServer is known")
        server, timeout_seconds = self._servers[0], self._settings.attempt_timeout_seconds
        try:
            await server.identify(timeout_seconds)
            if server.is_native:
                known, others = self._point.known(server.run, topics)
                if not others:
                    self._watched, since = server.run, self._point.revision
                    self._held = (server, self._clock.wall(), len(known))
                    try:
                        answer = await server.pull(known, timeout_seconds, since=since, wait_seconds=wait_seconds)
                    finally:
                        self._held = None
                    self._was_answered(server)
                    self._log_answer(server)
                    take(answer)
                    return bool(answer.routes)
        except RemotingError as error:
            server.pulls[_result(error)] += 1
            self._failed(server, error)
            if not isinstance(error, PART_REFUSED) or isinstance(error, SERVER_FAILED):
                raise
        if server.is_native is False:
            raise RouteUnavailableError(f"{server.address} does not support watches")
        await self.changes(topics, take)
        # not so while a topic is refused: nothing would keep the caller from asking again at once
        return not self._point.known(self._point.run, topics)[1]

    async def ping(self) -> bool:
        """Whether the chosen server is another run than the watched one. Raises RemotingError when it is silent."""
        if not self._servers or not self._servers[0].is_native:
            # a RocketMQ server holds nothing that would have to be watched over
            return False
        server = self._servers[0]
        try:
            await server.ask_run(self._settings.attempt_timeout_seconds)
        except RemotingError as error:
            self._failed(server, error)
            raise
        return self._watched not in (None, server.run)

    async def _call(self, ask: Ask) -> None:
        """Ask the chosen server; while it is silent, or when it fails, the next one as well. The first answer ends it.

        All are asked within the first half of the call's time and have the rest of it. When this process was held up
        itself, those that it did not get to are still asked, for a moment.
        """
        settings, clock = self._settings, self._clock
        deadline = clock.monotonic() + settings.call_timeout_seconds
        waiting = list(self._servers)
        patience = min(settings.attempt_timeout_seconds, settings.call_timeout_seconds / (2 * max(1, len(waiting))))
        reasons: dict[Server, str] = {}
        has_refused = False
        asking: dict[asyncio.Task[RemotingError | None], Server] = {}

        async def attempt(server: Server) -> RemotingError | None:
            """Ask one server; an error is returned, since nobody may wait for it any more."""
            until = max(deadline, clock.monotonic() + patience)
            try:
                await server.identify(until - clock.monotonic())
                await ask(server, max(0.0, until - clock.monotonic()))
            except RemotingError as error:
                server.pulls[_result(error)] += 1
                return error
            self._was_answered(server)
            return None

        try:
            while True:
                # another one may have left the list a moment ago
                waiting = [server for server in waiting if server in self._servers]
                if waiting:
                    server = waiting.pop(0)
                    asking[asyncio.create_task(attempt(server))] = server
                elif not asking:
                    break
                for task in await self._done_or_silent(asking, patience if waiting else None):
                    server = asking.pop(task)
                    if (error := task.result()) is None:
                        self._overtaken(server, asking.values(), patience)
                        self._log_answer(server)
                        return
                    has_refused = has_refused or _has_only_refused(error)
                    reasons[server] = self._failed(server, error)
        finally:
            for task in asking:
                task.cancel()
            if asking:
                await asyncio.wait(asking)
        raise self._unanswered(reasons, has_refused=has_refused)

    def _unanswered(self, reasons: Mapping[Server, str], *, has_refused: bool) -> RouteUnavailableError:
        self.unanswered += 1
        self.is_ready = self.is_ready and has_refused
        reason = self._nobody(reasons)
        if not has_refused and not self._is_closed:
            self._log.unanswered(reason)
        return RouteUnavailableError(reason)

    def _was_answered(self, server: Server) -> None:
        server.pulls["answered"] += 1
        if not self.is_ready:
            self.is_ready = True
            self._events.ready()

    def _log_answer(self, server: Server) -> None:
        # another call may have chosen another one meanwhile
        if server.address == self.chosen:
            self._log.answered(server.address)

    async def _done_or_silent(
        self, asking: Mapping[asyncio.Task[RemotingError | None], Server], patience: float | None
    ) -> set[asyncio.Task[RemotingError | None]]:
        """The attempts that have ended; none when the newest server was silent for so long, if that matters."""
        began, newest = self._clock.monotonic(), list(asking.values())[-1]
        left = patience
        while left is None or left > 0:
            with suppress(TimeoutError):
                async with nullcontext() if left is None else timeout_on(self._clock, left):
                    return (await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED))[0]
            if patience is not None:
                left = max(began, newest.answered_at) + patience - self._clock.monotonic()
        return set()

    def _overtaken(self, winner: Server, silent: Collection[Server], patience: float) -> None:
        """Choose a server that answered before those that were asked earlier."""
        for server in silent:
            server.pulls["overtaken"] += 1
            server.note(f"no answer within {patience:g} s, and {winner.address} answered")
        if silent and winner in self._servers:
            self._move(winner, 0)

    def _failed(self, server: Server, error: RemotingError) -> str:
        """Not the chosen one any more, unless it has only refused this question. Why it failed, in words."""
        reason = server.note(error)
        if not _has_only_refused(error) and server in self._servers:
            self._move(server, len(self._servers))
            if isinstance(error, RequestTimeoutError):
                # it may hang on this connection only, and what it was asked is not wanted any more
                self._finish(server.disconnect())
        return reason

    def _move(self, server: Server, place: int) -> None:
        before = self.chosen
        self._servers.remove(server)
        self._servers.insert(place, server)
        if self.chosen != before:
            self.failovers += 1

    def _nobody(self, reasons: Mapping[Server, str]) -> str:
        if not self._servers:
            return "the client is closed" if self._is_closed else "no NameServer is known"
        said = sorted(f"{server.address}: {reasons.get(server, 'not asked')}" for server in self._servers)
        return f"no NameServer could answer: {'; '.join(said)}"


def _has_only_refused(error: RemotingError) -> bool:
    """Whether the server is well, and only did not want to answer, or could not yet."""
    return isinstance(error, _CannotTellError | ResponseError) and not isinstance(error, SERVER_FAILED)
