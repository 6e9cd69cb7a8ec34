"""The requests of a client for routes: which topics, from which server, and what the responses mean.

One server, chosen at random, stays the chosen one until it fails, another server answers while the chosen one is
silent, or a server is chosen anew, which happens about every ten minutes.
"""

import logging
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from namesrv_client.routes.batches import FullRequests, TimeLimit, TopicErrors, may_concern_a_topic, request_changes
from namesrv_client.routes.response import Receive, RouteResponse
from namesrv_client.routes.route import RouteUnavailableError
from namesrv_client.routes.servers.failover import (
    CallFailedError,
    CallRefusedError,
    Failover,
    UndecidedError,
    count_failure,
)
from namesrv_client.routes.servers.order import ServerOrder
from namesrv_client.routes.servers.server import Server
from namesrv_client.routes.status import ServerStatus, WatchStatus
from namesrv_client.routes.sync_point import SyncPoint
from namesrv_client.settings import ClientSettings
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.errors import RemotingError
from namesrv_runtime.clock import Clock, wall_at
from namesrv_runtime.server_events import ServerEvents

logger: Final = logging.getLogger("namesrv_client.connection")


class WatchEnd(NamedTuple):
    """The result of a watch that has ended."""

    # True if the next watch may follow at once; False if the wait passed without a change, or topics are left to polls
    next_may_follow: bool
    # topics that the next watch has to omit: the server refuses them, or sent a route that was not accepted
    left_to_poll: Sequence[str] = ()


class HeldWatch(NamedTuple):
    """A watch that a server holds now."""

    server: Server
    # monotonic seconds
    began: float
    topic_count: int


class ServerSession:
    """Sends route requests to the chosen server, and to the next servers when it fails.

    * `fetch` requests the full routes of topics that the cache lacks.
    * `refresh` requests all changes of the topics in use, and gets them at once: the request of a poll.
    * `watch` requests the same from the chosen server alone, which responds with the next change.
    """

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
        self._clock = clock
        self._point = point
        self._servers = ServerOrder(settings, clock, protocols=protocols, shuffle=shuffle, events=events)
        self._failover = Failover(settings, clock, self._servers, events=events, list_error=list_error)
        # topics that were not answered when `refresh` last requested them
        self._unanswered_topics: set[str] = set()
        # the watch under way, if there is one
        self._held: HeldWatch | None = None
        # boot id to which the last watch was sent
        self._watched_boot_id: str | None = None

    def __repr__(self) -> str:
        return f"<ServerSession [{self._failover!r} | {self._point!r}]>"

    @property
    def chosen(self) -> str | None:
        """The address of the chosen server; None if no server is known."""
        chosen = self._servers.chosen
        return None if chosen is None else chosen.address

    @property
    def is_ready(self) -> bool:
        """True if a server answered the last call; refused calls and failed watches change nothing."""
        return self._failover.is_ready

    @property
    def failed_calls(self) -> int:
        """Number of calls that no server answered, or that were only refused."""
        return self._failover.failed_calls

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
        if held is None or not held.server.record.is_connected:
            return ()
        return (WatchStatus(held.server.address, wall_at(self._clock, held.began), held.topic_count),)

    def use(self, addresses: tuple[str, ...]) -> None:
        """Use another list of servers."""
        self._servers.use(addresses)

    def socket_descriptors(self) -> list[int]:
        """The file descriptors of all connections."""
        return [descriptor for server in self._servers if (descriptor := server.socket_descriptor) is not None]

    async def close(self) -> None:
        """Close all connections, and send no further requests."""
        await self._failover.close()

    async def fetch(
        self, topics: Sequence[str], receive: Receive, *, to_request_again: Container[str] = ()
    ) -> Mapping[str, str]:
        """Request the full routes of topics; return the topics that no server could answer, with the reasons.

        Topics that one server may not know yet, or has refused, are requested from the other servers as well, and so
        are topics that are in `to_request_again` after `receive`, because their route was not accepted.
        """
        fetch = _Fetch(topics, receive, to_request_again)
        try:
            await self._failover.call(fetch.attempt)
        except CallFailedError as error:
            return {topic: self._failover.why_unavailable(fetch.reasons(topic, error)) for topic in fetch.left}
        return {}

    async def refresh(self, topics: Sequence[str], receive: Receive) -> None:
        """Request the changes of topics. Raises RouteUnavailableError if no server answered, or all refused all topics.

        A native server gets a request for the changes since the sync point, and requests for the full routes of topics
        that are not in the sync point. A RocketMQ server gets one request per topic.
        """
        unanswered: dict[Server, TopicErrors] = {}

        async def attempt(server: Server, timeout_seconds: float) -> None:
            unanswered[server] = await request_changes(server, topics, self._point, receive, timeout_seconds)

        try:
            server = await self._failover.call(attempt)
        except CallRefusedError as error:
            # Logged here, because a poll has no caller who would see the error.
            self._failover.log_outage(str(error))
            raise
        self._note_unanswered(server, topics, unanswered[server])

    def _note_unanswered(self, server: Server, topics: Collection[str], unanswered: TopicErrors) -> None:
        """Log topics that a server did not answer, in contrast to the last request for them."""
        new = sorted(unanswered.keys() - self._unanswered_topics)
        self._unanswered_topics = self._unanswered_topics.difference(topics).union(unanswered)
        if new:
            error = unanswered[new[0]]
            reason = str(error) or type(error).__name__
            message = "%s gave no route for %d of %d topics, such as %s: %s"
            logger.warning(message, server.address, len(new), len(topics), new[0], reason)

    async def watch(self, topics: Sequence[str], wait_seconds: float, receive: Receive) -> WatchEnd:
        """Let the chosen server hold a request until a topic changes, or for `wait_seconds`. Raises RemotingError.

        If the sync point lacks a topic, as after a failover, or the server refuses the watch, this is a `refresh`: the
        topics are requested without a wait, so that the next watch can name them.
        """
        server = self._servers.chosen
        if server is None:
            raise RouteUnavailableError(self._failover.why_no_server())
        response = await self._watch_response(server, topics, wait_seconds)
        if response is not None:
            receive(response)
            return WatchEnd(next_may_follow=bool(response.routes))
        if server.identity.is_native is False:
            raise RouteUnavailableError(f"{server.address} does not support watches")
        with suppress(CallRefusedError):
            await self.refresh(topics, receive)
        _, left_to_poll = self._point.divide(self._point.boot_id, topics)
        return WatchEnd(next_may_follow=not left_to_poll, left_to_poll=left_to_poll)

    async def _watch_response(self, server: Server, topics: Sequence[str], wait_seconds: float) -> RouteResponse | None:
        """The response to a watch; None if the server cannot hold one now for these topics. Raises RemotingError."""
        try:
            await server.identify(self._settings.attempt_timeout_seconds)
            known, others = self._point.divide(server.identity.boot_id, topics)
            if others or not server.identity.is_native:
                return None
            response = await self._held_response(server, known, wait_seconds)
        except RemotingError as error:
            count_failure(server, error)
            self._failover.note_failure(server, error)
            if may_concern_a_topic(error):
                return None
            raise
        self._failover.note_response(server)
        return response

    async def _held_response(self, server: Server, topics: Sequence[str], wait_seconds: float) -> RouteResponse:
        """Send a watch, and wait for its response. Raises RemotingError."""
        self._watched_boot_id = server.identity.boot_id
        self._held = HeldWatch(server, self._clock.monotonic(), len(topics))
        try:
            return await server.pull(
                topics,
                self._settings.attempt_timeout_seconds,
                since_revision=self._point.revision,
                wait_seconds=wait_seconds,
            )
        finally:
            self._held = None

    async def choose_anew(self, topics: Sequence[str], receive: Receive) -> bool:
        """Choose a server at random, and use it once it has answered for the topics; True if the chosen server changed.

        Requests under way stay with the former server, whose connection stays open until `leave_others`.
        """
        server, timeout_seconds = self._servers.at_random(), self._settings.attempt_timeout_seconds
        if server is None or server is self._servers.chosen:
            return False
        try:
            await server.identify(timeout_seconds)
            await request_changes(server, topics, self._point, receive, timeout_seconds)
        except RemotingError as error:
            count_failure(server, error)
            server.record.note_failure(error)
            return False
        if server not in self._servers:
            return False
        self._servers.choose(server)
        self._failover.note_response(server)
        return True

    async def leave_others(self) -> None:
        """Close the connections to servers that are not the chosen one and have no request under way."""
        for server in self._servers:
            if server is not self._servers.chosen and server.record.is_connected and server.is_idle:
                await server.disconnect("another server was chosen")

    async def is_watch_stale(self, timeout_seconds: float) -> bool:
        """Request the chosen server's boot id; True if the last watch was sent to an earlier boot.

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
            self._failover.note_failure(server, error)
            raise
        return self._watched_boot_id not in (None, server.identity.boot_id)


class _Fetch:
    """The topics of one `fetch` that no server has answered so far, and the reasons of the servers."""

    def __init__(self, topics: Sequence[str], receive: Receive, to_request_again: Container[str]) -> None:
        # topics without a response that was accepted, in their order
        self.left = dict.fromkeys(topics)
        self._receive = receive
        self._to_request_again = to_request_again
        # for each server that works, the reasons why it gave no route, by topic
        self._reasons: dict[Server, dict[str, str]] = {}

    def __repr__(self) -> str:
        return f"<_Fetch [{len(self.left)} topics left]>"

    async def attempt(self, server: Server, timeout_seconds: float) -> None:
        """Request the topics that are left. Raises RemotingError, an UndecidedError if topics are left then."""
        requests = FullRequests(server, self._received, TimeLimit(server, timeout_seconds, is_total=True))
        unanswered = requests.unanswered
        try:
            await requests.send(list(self.left))
        except RemotingError:
            # The error of one topic must not stand for all others.
            self._reasons[server] = {topic: _why_undecided(topic, error) for topic, error in unanswered.items()}
            raise
        if not self.left:
            return
        reasons = {topic: _why_undecided(topic, unanswered.get(topic)) for topic in self.left}
        self._reasons[server] = reasons
        if unanswered and server.record.error is not None:
            # The record of the server names the topic of the last error.
            raise UndecidedError(server.record.error)
        raise UndecidedError(next(iter(reasons.values())))

    def _received(self, response: RouteResponse) -> None:
        self._receive(response)
        for topic, route in response.routes.items():
            is_decided = route is not None or response.knows_all_topics
            if is_decided and topic not in self._to_request_again:
                self.left.pop(topic, None)

    def reasons(self, topic: str, error: CallFailedError) -> dict[Server, str]:
        """The reason of each server for a topic: that for this topic, or else that for the whole attempt."""
        return {server: self._reasons.get(server, {}).get(topic, reason) for server, reason in error.reasons.items()}


def _why_undecided(topic: str, error: RemotingError | None) -> str:
    """The reason why a working server gave no route of a topic; without an error the server knows too little."""
    if error is None:
        return f"has just started or lost its brokers, and may not know all brokers of topic {topic} yet"
    return str(error) or "refused without a reason"
