"""One NameServer as the client sees it: connection, protocol, completeness of responses, and route requests.

A native server gets as few requests as frames allow, a server that speaks RocketMQ's protocol gets one request per
topic. An error of one topic never affects the other topics.
"""

import asyncio
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import msgspec

from namesrv_client.routes.cache import RouteResponse, SyncPoint
from namesrv_client.routes.identity import Protocol, ServerIdentity
from namesrv_client.routes.server_record import ServerRecord
from namesrv_client.routes.status import ServerStatus
from namesrv_client.settings import ClientSettings
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.extensions import MAX_PULLED_TOPICS, PullRoutesRequest, ServerInfo, read_routes
from namesrv_remoting.bodies.route import TopicRouteData, read_route
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.errors import (
    ConnectionClosedError,
    GoAwayError,
    NoPermissionError,
    NotReadyError,
    RemoteProtocolError,
    RemotingError,
    RequestTimeoutError,
    ResponseError,
    SystemBusyError,
    SystemError_,
    TlsRequiredError,
    TopicNotExistError,
)
from namesrv_remoting.frames import MAX_HEADER_BYTES
from namesrv_runtime.backoff import Backoff
from namesrv_runtime.clock import Clock
from namesrv_runtime.server_events import ServerEvents

# called with each response as it arrives
Receive = Callable[[RouteResponse], None]
# topics that a working server did not answer, with its refusal, its silence or its malformed response
Unanswered = Mapping[str, RemotingError]

# error responses that concern the server and not the request
SERVER_FAILED: Final = (NotReadyError, GoAwayError, SystemBusyError, TlsRequiredError)
# Topics of one full request: with eight broker groups the response takes 0.8 MB, which the loop decodes at once.
BATCH: Final = 500
# The names of topics in one request, whose frame has at most `PullRoutesRequest.max_bytes`, header included.
_MAX_NAMES_BYTES: Final = PullRoutesRequest.max_bytes - MAX_HEADER_BYTES
# After this number of refused batches, and two more for each batch of the first division, the whole request counts as
# refused.
_REFUSALS: Final = 20
# concurrent GET_ROUTEINFO_BY_TOPIC requests
_BY_TOPIC: Final = 16
# A short back-off: requests go to other servers meanwhile, and a dead server is not dialled for every request.
_BACKOFF: Final = Backoff(0.1, 1.0)


def may_concern_a_topic(error: RemotingError) -> bool:
    """True for a refusal that one of the requested topics may have caused, so that other topics may be answered.

    The response does not fit into a frame, a topic is invalid, or this account may not read a topic.
    """
    return isinstance(error, SystemError_ | NoPermissionError) and not isinstance(error, SERVER_FAILED)


def pull_batches(topics: Sequence[str]) -> list[Sequence[str]]:
    """Topics divided into parts that fit into one PULL_ROUTES request each."""
    batches, begin, size = [], 0, 0
    for at, topic in enumerate(topics):
        # msgpack has up to five bytes before the text of a string.
        topic_bytes = len(topic.encode()) + 5
        if at - begin == MAX_PULLED_TOPICS or size + topic_bytes > _MAX_NAMES_BYTES:
            batches.append(topics[begin:at])
            begin, size = at, 0
        size += topic_bytes
    return [*batches, topics[begin:]]


class _TimeLimit:
    """The timeout of each request for routes, or with `is_total` the timeout of all requests of a call together."""

    def __init__(self, server: str, seconds: float, clock: Clock, *, is_total: bool) -> None:
        self._server = server
        self._seconds = seconds
        self._clock = clock
        self.is_total = is_total
        self.began = clock.monotonic()

    def left(self) -> float:
        """The timeout of the next request. Raises RequestTimeoutError if the time is over."""
        left = self._seconds - (self._clock.monotonic() - self.began if self.is_total else 0.0)
        if left <= 0:
            raise self.timeout_error()
        return left

    def timeout_error(self) -> RequestTimeoutError:
        """The error of each topic that a working server has not answered at the end of the time."""
        return RequestTimeoutError(f"{self._server} did not answer for all topics within {self._seconds:.3g} s")


class Server:
    """The connection to one NameServer, which begins with a request for the server's boot id."""

    def __init__(
        self, address: str, settings: ClientSettings, clock: Clock, protocols: ServerProtocols, events: ServerEvents
    ) -> None:
        self.address = address
        self._settings = settings
        self._clock = clock
        self._protocols = protocols
        self._client = self._new_client()
        # the last SERVER_INFO request, under way or ended
        self._info_request: asyncio.Task[RemotingError | None] | None = None
        self.identity = ServerIdentity(address, settings, clock)
        self.record = ServerRecord(address, clock, events)

    def __repr__(self) -> str:
        return f"<Server [{self.address} | {self.identity.protocol or 'not identified'} | {self.identity.boot_id}]>"

    def status(self, *, is_chosen: bool) -> ServerStatus:
        """The state of the server; any thread may call this."""
        identity, record = self.identity, self.record
        return ServerStatus(
            address=self.address,
            state=record.state,
            since=record.since,
            is_chosen=is_chosen,
            protocol=identity.protocol,
            boot_id=identity.native_boot_id,
            last_response=record.last_response,
            last_error=record.error,
            pulls=dict(record.pulls),
            reconnects=record.reconnects,
        )

    async def identify(self, timeout_seconds: float) -> None:
        """Find out the protocol and boot id, once on each connection. Raises RemotingError.

        For a server that is known to be native, this does not wait: SERVER_INFO is sent along with the first request.
        """
        identity = self.identity
        if not self._client.connected:
            identity.note_not_connected()
        if identity.is_native is not None:
            return
        protocol = self._settings.protocol
        known = self._client.speaks_native() if protocol == "auto" else protocol == "native"
        if known is False:
            identity.note_rocketmq()
            return
        if identity.state is Protocol.UNKNOWN:
            self._info_request = asyncio.create_task(self._identify(timeout_seconds))
        identity.note_requested(is_known_native=bool(known))
        if known:
            # The task runs now, so that its request is sent first.
            await asyncio.sleep(0)
        elif (failure := await self._identified()) is not None:
            raise failure

    async def _identified(self) -> RemotingError | None:
        """Wait for the end of the last SERVER_INFO request; return the error if it failed."""
        request = self._info_request
        if request is None:
            return None
        # asyncio.wait, because awaiting the task would cancel it for all callers when one caller is cancelled.
        await asyncio.wait([request])
        return (
            ConnectionClosedError(f"{self.address} is not used any more") if request.cancelled() else request.result()
        )

    async def _identify(self, timeout_seconds: float) -> RemotingError | None:
        """Send SERVER_INFO; an error is returned, not raised, because no caller may be left to catch it."""
        try:
            if self._settings.protocol == "native":
                await self.request_boot_id(timeout_seconds)
            elif (body := await self._client.server_info(timeout_seconds)) is None:
                self.identity.note_rocketmq()
            else:
                self._note_native(NATIVE.read_response(ServerInfo, body))
        except RemotingError as error:
            return error
        finally:
            self.identity.note_request_ended()
        return None

    async def request_boot_id(self, timeout_seconds: float) -> None:
        """Request the server's boot id natively. Raises RemotingError."""
        response = await self._client.invoke(
            RequestCode.SERVER_INFO, timeout_seconds=timeout_seconds, serialize_type=SerializeType.MSGPACK
        )
        self._note_native(NATIVE.read_response(ServerInfo, response.body))

    def _note_native(self, info: ServerInfo) -> None:
        self.identity.note_native(info.boot_id, info.uptime_seconds)
        self._note_response()

    def _note_response(self) -> None:
        if self.identity.is_native is False and not self.record.is_connected:
            # Attempts to connect may have failed since the protocol was noted, until the server was started.
            self.identity.restart_warm_up()
        no_watches = self._settings.watch and self.identity.is_native is False
        remark = ", which does not support watches" if no_watches else ""
        self.record.note_response(is_open=self._client.connected, remark=remark)

    def _note_end(self, why: str) -> None:
        self.identity.note_end()
        self.record.note_end(why)

    def _new_client(self) -> RemotingClient:
        return RemotingClient(
            self.address,
            clock=self._clock,
            tls=self._settings.client_tls,
            connect_timeout_seconds=self._settings.connect_timeout_seconds,
            backoff=_BACKOFF,
            on_connection_lost=self._lost,
            protocols=self._protocols,
            credentials=self._settings.credentials(self._clock.wall),
        )

    def _lost(self, error: ConnectionClosedError) -> None:
        self._note_end(str(error))

    @property
    def socket_descriptor(self) -> int | None:
        """The file descriptor of the connection; None without a connection."""
        return self._client.socket_descriptor

    @property
    def is_idle(self) -> bool:
        """True if no request is under way."""
        return not self._client.pending_count

    async def disconnect(self, why: str | None = None) -> None:
        """Fail the requests under way and close the connection; the next request opens another one."""
        old, self._client = self._client, self._new_client()
        why = why or self.record.error or "given up"
        self._note_end(why)
        await old.close(why)

    async def close(self) -> None:
        """Disconnect for good."""
        if (request := self._info_request) is not None:
            request.cancel()
            await asyncio.wait([request])
        self._note_end("no longer used")
        await self._client.close()

    async def pull(
        self, topics: Sequence[str], timeout_seconds: float, *, since: int | None = None, wait_seconds: float = 0.0
    ) -> RouteResponse:
        """Send a native PULL_ROUTES for the topics' routes, or for their changes since a revision of this boot id.

        With a wait, the server holds the request until a topic changes. Raises RemotingError.
        """
        identity, connection = self.identity, self.identity.connection
        boot_id = None if since is None else identity.boot_id
        zone = self._settings.zone_name or msgspec.UNSET
        request = PullRoutesRequest(list(topics), boot_id, since or 0, int(wait_seconds * 1000), zone=zone)
        info_request = self._info_request if identity.state is Protocol.PRESUMED else None
        try:
            response = await self._client.invoke(
                RequestCode.PULL_ROUTES,
                body=NATIVE.encode(request),
                timeout_seconds=timeout_seconds + wait_seconds,
                serialize_type=SerializeType.MSGPACK,
            )
        except ConnectionClosedError:
            # A server that requires TLS answers only the first request, SERVER_INFO, and closes the connection.
            if info_request is not None and (refusal := _refusal(info_request)) is not None:
                raise refusal from None
            raise
        pulled = read_routes(response.body)
        if pulled.boot_id != identity.boot_id:
            # A SERVER_INFO request may be under way, whose response contains the uptime.
            await self._identified()
        self._note_response()
        # If the boot id is new, the server has restarted behind a connection that stayed open, through a proxy.
        identity.note_boot_id(pulled.boot_id, 0.0)
        is_complete = pulled.ready and identity.is_complete
        connection, was_complete = identity.note_routes(connection, pulled.boot_id, is_complete=is_complete)
        return RouteResponse(
            boot_id=pulled.boot_id,
            connection=connection,
            is_complete=is_complete,
            was_complete=was_complete,
            knows_all_topics=pulled.ready and identity.knows_all_topics,
            topics=topics,
            routes=pulled.routes,
            revision=pulled.revision,
            is_conditional=since is not None and not pulled.full,
        )

    async def route_by_topic(self, topic: str, timeout_seconds: float) -> RouteResponse:
        """Send a GET_ROUTEINFO_BY_TOPIC, as RocketMQ's clients do. Raises RemotingError."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        if self._settings.zone_name:
            fields |= {"__ZONE_NAME": self._settings.zone_name, "__ZONE_MODE": "true"}
        route: TopicRouteData | None = None
        identity, connection = self.identity, self.identity.connection
        try:
            response = await self._client.invoke(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields, timeout_seconds=timeout_seconds
            )
            route = read_route(response.body)
            self._note_response()
        except TlsRequiredError:
            # The server closes the connection, which is not worth a line for each request.
            raise
        except ResponseError as error:
            self._note_response()
            if not isinstance(error, TopicNotExistError):
                raise
        # If the connection was lost and replaced meanwhile, the sender of the response is unknown.
        is_identified = identity.is_native is not None and identity.connection == connection
        boot_id = (identity.boot_id or "") if is_identified else f"{self.address}#"
        is_complete = is_identified and identity.is_complete
        connection, was_complete = identity.note_routes(connection, boot_id, is_complete=is_complete)
        return RouteResponse(
            boot_id=boot_id,
            connection=connection,
            is_complete=is_complete,
            was_complete=was_complete,
            knows_all_topics=is_identified and identity.knows_all_topics,
            topics=(topic,),
            routes={topic: route},
        )

    async def full_routes(
        self,
        topics: Sequence[str],
        receive: Receive,
        timeout_seconds: float,
        unanswered: dict[str, RemotingError],
        *,
        is_total: bool = False,
    ) -> None:
        """Request the full routes of topics; add unanswered topics to `unanswered`.

        The timeout is that of each request, or with `is_total` that of all requests together; topics that a working
        server has not answered by then are unanswered. Raises RemotingError, also if all topics were refused.
        """
        pull = self._pull_batches if self.identity.is_native else self._pull_each
        limit = _TimeLimit(self.address, timeout_seconds, self._clock, is_total=is_total)
        await pull(topics, receive, limit, unanswered)

    async def changes(
        self, topics: Sequence[str], point: SyncPoint, receive: Receive, timeout_seconds: float
    ) -> Unanswered:
        """Request the changes of the topics in the sync point, and the full routes of the other topics.

        Returns the unanswered topics. Raises RemotingError, also if the server refuses each of the topics.
        """
        known, others = point.known(self.identity.boot_id, topics) if self.identity.is_native else ([], list(topics))
        if known:
            try:
                await self._pull_changes(known, point.revision, receive, timeout_seconds)
            except ResponseError as error:
                if not may_concern_a_topic(error):
                    raise
                point.retain(())
                known, others = [], list(topics)
        unanswered: dict[str, RemotingError] = {}
        try:
            await self.full_routes(others, receive, timeout_seconds, unanswered)
        except ResponseError as error:
            if not known or not may_concern_a_topic(error):
                raise
            return {**dict.fromkeys(others, error), **unanswered}
        return unanswered

    async def _pull_changes(self, topics: Sequence[str], since: int, receive: Receive, timeout_seconds: float) -> None:
        """Request the changes of topics since a revision, in as few requests as the server accepts."""
        responses = [await self.pull(batch, timeout_seconds, since=since) for batch in pull_batches(topics)]
        first = responses[0]
        if len(responses) == 1 or any(
            (response.boot_id, response.connection, response.is_conditional)
            != (first.boot_id, first.connection, first.is_conditional)
            for response in responses
        ):
            # One response covers all topics, or the server has restarted between the requests.
            for response in responses:
                receive(response)
            return
        # The sync point moves only with a response that covers all topics.
        receive(
            replace(
                first,
                is_complete=all(response.is_complete for response in responses),
                was_complete=all(response.was_complete for response in responses),
                knows_all_topics=all(response.knows_all_topics for response in responses),
                topics=topics,
                routes=ChainMap(*(dict(response.routes) for response in responses)),
                revision=min(response.revision or 0 for response in responses),
            )
        )

    async def _pull_batches(
        self, topics: Sequence[str], receive: Receive, limit: _TimeLimit, unanswered: dict[str, RemotingError]
    ) -> None:
        """Request topics in batches; a refused batch is halved, to find the topic that caused the refusal."""
        has_answered = False
        batches = [topics[at : at + BATCH] for at in range(0, len(topics), BATCH)]
        refusals_left = _REFUSALS + 2 * len(batches)
        while batches:
            batch = batches.pop(0)
            try:
                receive(await self.pull(batch, limit.left()))
                has_answered = True
            except RequestTimeoutError:
                if not (limit.is_total and has_answered):
                    raise
                self.record.note_failure(limit.timeout_error())
                unanswered.update(dict.fromkeys(chain(batch, *batches), limit.timeout_error()))
                return
            except ResponseError as error:
                refusals_left -= 1
                if not may_concern_a_topic(error) or not refusals_left:
                    raise
                self.record.note_failure(error)
                if len(batch) > 1:
                    batches[:0] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
                else:
                    unanswered[batch[0]] = error
                    if len(unanswered) == len(topics):
                        raise

    async def _pull_each(
        self, topics: Sequence[str], receive: Receive, limit: _TimeLimit, unanswered: dict[str, RemotingError]
    ) -> None:
        """Request each topic in RocketMQ's protocol, several at a time."""
        waiting = iter(topics)
        failures: list[RemotingError] = []

        async def work() -> None:
            for topic in waiting:
                if failures:
                    return
                # With one timeout for all requests, the last ones may be sent just before its end: a response to an
                # earlier one shows that the server works.
                since = limit.began if limit.is_total else self._clock.monotonic()
                try:
                    await self.identify(limit.left())
                    receive(await self.route_by_topic(topic, limit.left()))
                except (ResponseError, RemoteProtocolError, RequestTimeoutError) as error:
                    is_silent = isinstance(error, RequestTimeoutError) and self.record.answered_at < since
                    if isinstance(error, SERVER_FAILED) or is_silent:
                        failures.append(error)
                    else:
                        self.record.note_failure(f"topic {topic}: {error}")
                        unanswered[topic] = error
                except RemotingError as error:
                    failures.append(error)

        await asyncio.gather(*(work() for _ in range(min(_BY_TOPIC, len(topics)))))
        if failures:
            raise failures[0]
        last = next(reversed(unanswered.values()), None)
        if len(unanswered) == len(topics) and isinstance(last, ResponseError):
            raise last


def _refusal(request: asyncio.Task[RemotingError | None]) -> ResponseError | None:
    """The server's refusal of a request that has ended; None after another end, or while the request is under way."""
    error = request.result() if request.done() and not request.cancelled() else None
    return error if isinstance(error, ResponseError) else None
