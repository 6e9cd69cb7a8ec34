"""Handlers of clients' route requests, for one topic (105) or many, with watches for changes (20001)."""

import asyncio
import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from namesrv.context import Namesrv
from namesrv.net.dispatcher import Reply, Request
from namesrv.net.protocol import ServerConnection
from namesrv.net.steps import in_parts, run_in_steps
from namesrv.processors.handlers import Handlers
from namesrv.processors.no_route import no_route_reason
from namesrv_remoting.bodies.dialects import NATIVE, dialect_of
from namesrv_remoting.bodies.extensions import ABSENT_ROUTE, FEWER_TOPICS, Pull, RoutesResponse, pull_in_steps
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.errors import NotReadyError, SystemBusyError, SystemError_, TopicNotExistError
from namesrv_remoting.headers import GetRouteInfoRequestHeader
from namesrv_runtime.clock import timeout_on

FAQ: Final = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
# Routes encoded into one response between two yields to the event loop.
_CHUNK: Final = 500
# Topics checked for changes between two yields; checking is quicker than encoding, and one line of the heartbeat log
# names as many topics.
_PART: Final = 1000
# Bytes charged for a watch of one topic: its name, its entry, and the entry of the waiting request.
_WATCHED_BYTES: Final = 512
# Memory of a decoded request as a multiple of its size, and the size up to which that memory is not accounted for.
_DECODED: Final = 3
_SMALL_BYTES: Final = 16 * 1024


class ClientProcessor:
    """Answers route requests that the fast path left to the dispatcher."""

    def __init__(self, namesrv: Namesrv) -> None:
        self._namesrv = namesrv
        # The lock is held while a large response is built.
        self._building = asyncio.Lock()

    def handlers(self) -> Handlers:
        """Return the handler of each request code."""
        return {RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route, RequestCode.PULL_ROUTES: self.pull_routes}

    async def route(self, request: Request, header: GetRouteInfoRequestHeader) -> Reply:
        """Handle GET_ROUTEINFO_BY_TOPIC (105)."""
        self._check_ready()
        view = self._namesrv.views.of_request(request)
        route = self._namesrv.encoded_routes.inputs.route(header.topic, header.zone(), view)
        # A response without a route is logged as well: the client learns from it that the last broker is gone.
        self._note_served(request, [(header.topic, self._namesrv.manager.revisions.last_change(header.topic))])
        if route is None:
            reason = no_route_reason(self._namesrv, header.topic, view)
            remark = f"No topic route info in name server for the topic: {header.topic}\n{FAQ}\n{reason}"
            raise TopicNotExistError(remark)
        return Reply(dialect_of(request.command).encode(route))

    async def pull_routes(self, request: Request) -> Reply:
        """Handle PULL_ROUTES (20001): changed routes of the requested topics; `wait_ms` waits for a change."""
        self._check_ready()
        namesrv, connection = self._namesrv, request.connection
        rules = self._rules(request)
        with self._decoding(request):
            pull = await run_in_steps(pull_in_steps(request.command.body))
            if request.check_topics is not None:
                await request.check_topics(pull.topics)
            if pull.wait_ms and not namesrv.is_draining:
                looked_at = namesrv.manager.revisions.revision
                # Between the second check of the revision and the watch, nothing is awaited: no change is missed.
                if await self._changed(pull) == [] and looked_at == namesrv.manager.revisions.revision:
                    with self._watched(connection, len(pull.topics)), contextlib.suppress(TimeoutError):
                        seconds = min(pull.wait_ms / 1000, self._seconds_left(request), connection.seconds_left)
                        async with timeout_on(namesrv.clock, seconds):
                            await namesrv.watchers.wait(pull.topics)
                    if rules != self._rules(request):
                        # The access rules changed meanwhile: the response has no routes, and the client's next request
                        # is judged by the new rules.
                        nothing = RoutesResponse(namesrv.boot_id, looked_at, ready=True, full=False, routes={})
                        return Reply(NATIVE.encode(nothing))
            if len(pull.topics) <= _CHUNK:
                return await self._routes(request, pull)
            # One large response is built at a time: several would each hold all of their routes while their peers do
            # not read.
            while True:
                await connection.until_responses_read()
                async with self._building:
                    if not (connection.is_write_paused and connection.is_open):
                        return await self._routes(request, pull)

    @contextlib.contextmanager
    def _decoding(self, request: Request) -> Iterator[None]:
        """Reserve memory for a large decoded request until its response is made."""
        size = len(request.command.body)
        size = size * _DECODED if size > _SMALL_BYTES else 0
        if size and not request.connection.reserve(size):
            raise SystemBusyError(f"no memory for a request of {len(request.command.body)} bytes")
        try:
            yield
        finally:
            request.connection.release(size)

    @contextlib.contextmanager
    def _watched(self, connection: ServerConnection, count: int) -> Iterator[None]:
        if not connection.reserve(count * _WATCHED_BYTES):
            raise SystemBusyError(f"no memory for a watch (topics: {count})")
        try:
            yield
        finally:
            connection.release(count * _WATCHED_BYTES)

    async def _routes(self, request: Request, pull: Pull) -> Reply:
        namesrv, view = self._namesrv, self._namesrv.views.of_request(request)
        last_change = namesrv.manager.revisions.last_change
        routes: dict[str, msgspec.Raw] = {}
        # Pairs of a topic and the revision of its last change.
        served: list[tuple[str, int]] = []
        size, limit = 0, namesrv.settings.max_frame_bytes
        # The read lock keeps the tables unchanged: the response's revision must hold for all of its routes.
        async with namesrv.manager.lock.read():
            revision = namesrv.manager.revisions.revision
            changed = await self._changed(pull)
            for number, topic in enumerate(pull.topics if changed is None else changed, start=1):
                body = namesrv.encoded_routes.native_body(topic, pull.zone, view)
                routes[topic] = ABSENT_ROUTE if body is None else msgspec.Raw(body)
                served.append((topic, last_change(topic)))
                size += len(routes[topic])
                if size > limit:
                    raise SystemError_(f"routes of more than {limit} bytes: {FEWER_TOPICS}")
                if number % _CHUNK == 0:
                    await asyncio.sleep(0)
        if not pull.observes:
            async for part in in_parts(served, _PART):
                self._note_served(request, part)
        response = RoutesResponse(namesrv.boot_id, revision, ready=True, full=changed is None, routes=routes)
        if pull.zone:
            response.in_zone = True
        return Reply(NATIVE.encode(response))

    def _note_served(self, request: Request, revisions: Sequence[tuple[str, int]]) -> None:
        log = self._namesrv.heartbeat_log
        if log is not None:
            log.served_many(request.connection, revisions)
            log.pulled(topic for topic, _ in revisions)

    async def _changed(self, pull: Pull) -> list[str] | None:
        """Return the topics that changed since the client's revision; None for another boot or too old a revision."""
        namesrv = self._namesrv
        topics: list[str] = []
        if pull.boot_id != namesrv.boot_id:
            return None
        if pull.since == namesrv.manager.revisions.revision:
            return []
        async for part in in_parts(pull.topics, _PART):
            changed = namesrv.manager.revisions.changed_since(part, pull.since)
            if changed is None:
                return None
            topics += changed
        return topics

    def _rules(self, request: Request) -> tuple[int, bool]:
        """Return a value that changes when the access file changes or the account of the request expires."""
        guard = self._namesrv.guard
        return (0 if guard is None else guard.changes), self._seconds_left(request) <= 0

    def _seconds_left(self, request: Request) -> float:
        """Return the seconds until the account of the request expires; infinite without access rules or an end date."""
        guard = self._namesrv.guard
        account = None if guard is None or not guard.enforces else guard.file.accounts.get(request.account)
        if account is None or account.expires is None:
            return math.inf
        return max(0.0, account.expires.timestamp() - self._namesrv.clock.wall())

    def _check_ready(self) -> None:
        if not self._namesrv.is_ready():
            raise NotReadyError
