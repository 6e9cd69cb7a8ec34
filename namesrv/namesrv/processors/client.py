"""Handlers of clients' route requests, for one topic (105) or many, with watches for changes (20001)."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, KeysView, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgpack
import msgspec

from namesrv.context import Namesrv
from namesrv.encoded_routes import RoutesInView
from namesrv.net.dispatcher import HELD, Reply
from namesrv.net.request import Request
from namesrv.processors.no_route import no_route_reason
from namesrv.state.watchers import FEW_TOPICS, SharedResponse, SharedResponses, WatchedRoutes
from namesrv.yielding import in_chunks, run_in_steps
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.extensions import ABSENT_ROUTE, FEWER_TOPICS, Pull, RoutesResponse, pull_in_steps
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.errors import NotReadyError, SystemBusyError, SystemError_, TopicNotExistError
from namesrv_remoting.headers import GetRouteInfoRequestHeader
from namesrv_runtime.clock import Timer, call_later_on

FAQ: Final = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
# Routes encoded into one response between two yields to the event loop.
_ENCODED_CHUNK: Final = 500
# Topics checked for changes between two yields; checking is quicker than encoding, and one line of the heartbeat log
# names as many topics.
_CHECKED_CHUNK: Final = 1000
# Bytes charged for a watch: its request, timer and entries; and for each of its topics: the name and the entry.
_WATCH_BYTES: Final = 2048
_WATCHED_TOPIC_BYTES: Final = 512
# Memory of a decoded request as a multiple of its size, and the size up to which that memory is not accounted for.
_DECODED: Final = 3
_SMALL_BYTES: Final = 16 * 1024
# Watches do not share longer responses, since memory has to be reserved for each response.
_SHARED_BYTES: Final = 60 * 1024


class ClientProcessor:
    """Answers route requests that the fast path left to the dispatcher."""

    def __init__(self, namesrv: Namesrv) -> None:
        self._namesrv = namesrv
        # The lock is held while a large response is built.
        self._building = asyncio.Lock()

    async def route(self, request: Request, header: GetRouteInfoRequestHeader) -> Reply:
        """Handle GET_ROUTEINFO_BY_TOPIC (105)."""
        self._check_ready()
        in_view = self._namesrv.routes.in_view_of(request)
        cache = in_view.native if request.command.is_native else in_view.json
        response = cache.find(header.topic, header.zone())
        # A response without a route is logged as well, since it removes the last broker from the client's view.
        self._note_served(request, [(header.topic, self._namesrv.manager.revisions.last_change(header.topic))])
        if response is None:
            reason = no_route_reason(self._namesrv, header.topic, in_view.view)
            remark = f"No topic route info in name server for the topic: {header.topic}\n{FAQ}\n{reason}"
            raise TopicNotExistError(remark)
        return Reply(response.body)

    async def pull_routes(self, request: Request) -> Reply:
        """Handle PULL_ROUTES (20001): changed routes of the requested topics; `wait_ms` waits for a change."""
        self._check_ready()
        namesrv = self._namesrv
        version = namesrv.access.permission_version(request)
        with self._decoding(request):
            pull = await run_in_steps(pull_in_steps(request.command.body))
            if request.check_topics is not None:
                await request.check_topics(pull.topics)
            if pull.wait_ms and not namesrv.boot.is_draining:
                revision = namesrv.manager.revisions.revision
                # Nothing is awaited between the second look at the revision and `_begin_watch`, so no change is missed.
                if await self._changed(pull) == [] and revision == namesrv.manager.revisions.revision:
                    self._begin_watch(request, pull, version, revision)
                    return HELD
            return await self._response(request, pull)

    async def _response(self, request: Request, pull: Pull) -> Reply:
        """Return the response to a pull; a large one is built alone, once the peer has read the earlier ones."""
        if len(pull.topics) <= _ENCODED_CHUNK:
            return await self._routes(request, pull)
        # Of several large responses that are built together, each would keep all of its routes in memory while its peer
        # does not read.
        connection = request.connection
        while True:
            await connection.until_responses_sent()
            async with self._building:
                if not (connection.is_write_paused and connection.is_open):
                    return await self._routes(request, pull)

    @contextlib.contextmanager
    def _decoding(self, request: Request) -> Iterator[None]:
        """Reserve memory for a large decoded request until its response is made, or the request is held."""
        size = len(request.command.body)
        size = size * _DECODED if size > _SMALL_BYTES else 0
        if size and not request.connection.reserve_memory(size):
            raise SystemBusyError(f"no memory for a request of {len(request.command.body)} bytes")
        try:
            yield
        finally:
            request.connection.release_memory(size)

    # -- watches ------------------------------------------------------------------------------------------------------

    def _begin_watch(self, request: Request, pull: Pull, permission_version: tuple[int, bool], revision: int) -> None:
        """Hold a request until one of its topics changes."""
        namesrv, connection, command = self._namesrv, request.connection, request.command
        if not connection.reserve_memory(_watch_bytes(pull.topics)):
            raise SystemBusyError(f"no memory for a watch (topics: {len(pull.topics)})")
        # The watch keeps the decoded pull only: the memory of header and body is no longer charged.
        command = replace(command, ext_fields=None, body=b"")
        watch = RouteWatch(
            self, replace(request, command=command, check_topics=None), pull, permission_version, revision
        )
        seconds = min(pull.wait_ms / 1000, namesrv.access.account_seconds_left(request), connection.age_seconds_left)
        watch.timer = call_later_on(namesrv.clock, seconds, partial(self._time_over, watch))
        namesrv.routes.watchers.add(watch)
        connection.hold(watch)

    def _time_over(self, watch: "RouteWatch") -> None:
        self._namesrv.routes.watchers.remove(watch)
        self._end_in_task(watch)

    def cancel_watch(self, watch: "RouteWatch") -> None:
        """Give up a watch, whose connection ends."""
        self._namesrv.routes.watchers.remove(watch)
        watch.release()

    def end_watch(self, watch: "RouteWatch", shared: SharedResponses) -> None:
        """Respond to a watch that has left the table, since a topic has changed or all watches end."""
        namesrv, request = self._namesrv, watch.request
        if not watch.opaque or (
            namesrv.access.guard is not None and watch.permission_version != namesrv.access.permission_version(request)
        ):
            self._end_in_task(watch)
            return
        key = watch.routes, namesrv.routes.in_view_of(request)
        if key not in shared:
            shared[key] = self._shared_response(*key)
        response, revisions = shared[key]
        if response is None:
            self._end_in_task(watch)
            return
        watch.release()
        if not watch.pull.observes:
            self._note_served(request, revisions)
        request.connection.end_held(watch, response.frame(watch.opaque), RequestCode.PULL_ROUTES, watch.began)

    def _end_in_task(self, watch: "RouteWatch") -> None:
        watch.release()
        watch.request.connection.resume(watch, watch.request, partial(self._reply_after_wait, watch), watch.began)

    def _shared_response(self, watched: WatchedRoutes, in_view: RoutesInView) -> SharedResponse:
        """The response to all watches of the same routes; its `response` is None if it is too large to be shared."""
        namesrv, revisions = self._namesrv, self._namesrv.manager.revisions
        changed = revisions.changed_since(watched.topics, watched.since)
        routes: dict[str, msgspec.Raw] = {}
        for topic in watched.topics if changed is None else changed:
            body = in_view.native_body(topic, watched.zone)
            routes[topic] = ABSENT_ROUTE if body is None else msgspec.Raw(body)
        if sum(map(len, routes.values())) > _SHARED_BYTES:
            return SharedResponse(None, [])
        body = self._encoded(revisions.revision, routes, is_full=changed is None)
        served = [(topic, revisions.last_change(topic)) for topic in routes]
        return SharedResponse(namesrv.routes.encoded.native_response(body), served)

    async def _reply_after_wait(self, watch: "RouteWatch") -> Reply:
        """The reply to a watch that ends in a task of its own."""
        if watch.permission_version != self._namesrv.access.permission_version(watch.request):
            # The access rules changed during the wait: the response has no routes, and the access guard judges the
            # client's next request by the new rules.
            return Reply(self._encoded(watch.revision, {}, is_full=False))
        return await self._response(watch.request, watch.pull)

    # -- responses ----------------------------------------------------------------------------------------------------

    def _encoded(self, revision: int, routes: Mapping[str, msgspec.Raw], *, is_full: bool) -> bytes:
        boot = self._namesrv.boot
        # The fast path gets ready in the tick that finds out whether any broker has ended the wait.
        is_ready = self._namesrv.fast_path.is_ready and not boot.expected_back.may_lack_live_brokers
        return NATIVE.encode(RoutesResponse(boot.id, revision, ready=is_ready, full=is_full, routes=routes))

    async def _routes(self, request: Request, pull: Pull) -> Reply:
        namesrv, last_change = self._namesrv, self._namesrv.manager.revisions.last_change
        in_view = namesrv.routes.in_view_of(request)
        routes: dict[str, msgspec.Raw] = {}
        # Pairs of a topic and the revision of its last change.
        served: list[tuple[str, int]] = []
        size, limit = 0, namesrv.settings.limits.server.max_frame_bytes
        # The read lock keeps the tables unchanged: the response's revision must hold for all of its routes.
        async with namesrv.manager.lock.read():
            revision = namesrv.manager.revisions.revision
            changed = await self._changed(pull)
            for number, topic in enumerate(pull.topics if changed is None else changed, start=1):
                body = in_view.native_body(topic, pull.zone)
                routes[topic] = ABSENT_ROUTE if body is None else msgspec.Raw(body)
                served.append((topic, last_change(topic)))
                size += len(routes[topic])
                if size > limit:
                    raise SystemError_(f"routes of more than {limit} bytes: {FEWER_TOPICS}")
                if number % _ENCODED_CHUNK == 0:
                    await asyncio.sleep(0)
        if not pull.observes:
            async for chunk in in_chunks(served, _CHECKED_CHUNK):
                self._note_served(request, chunk)
        return Reply(self._encoded(revision, routes, is_full=changed is None))

    def _note_served(self, request: Request, revisions: Sequence[tuple[str, int]]) -> None:
        log = self._namesrv.heartbeat_log
        if log is not None:
            log.served_many(request.connection, revisions)
            log.pulled(topic for topic, _ in revisions)

    async def _changed(self, pull: Pull) -> list[str] | None:
        """Return the topics that changed since the client's revision; None for another boot or too old a revision."""
        namesrv = self._namesrv
        topics: list[str] = []
        if pull.boot_id != namesrv.boot.id:
            return None
        if pull.since == namesrv.manager.revisions.revision:
            return []
        async for chunk in in_chunks(pull.topics, _CHECKED_CHUNK):
            changed = namesrv.manager.revisions.changed_since(chunk, pull.since)
            if changed is None:
                return None
            topics += changed
        return topics

    def _check_ready(self) -> None:
        if not self._namesrv.boot.is_ready():
            raise NotReadyError


@dataclass(slots=True, eq=False, repr=False)
class RouteWatch:
    """A pull that waits for a change of its topics, or for the end of its time."""

    processor: ClientProcessor
    # the pull as it was received, but without its ext fields and body
    request: Request
    pull: Pull
    # value of `AccessControl.permission_version`, and revision of the routes, when the watch began
    permission_version: tuple[int, bool]
    revision: int
    # monotonic time at which the watch began
    began: float = field(default_factory=time.monotonic)
    # ends the watch when its time is over; None after the end
    timer: Timer | None = None
    topics: KeysView[str] = field(init=False)
    # The routes for which watches share a response, and the bytes of the opaque in it; the opaque is empty if the
    # watch shares none: it has many topics, or is one-way.
    routes: WatchedRoutes = field(init=False)
    opaque: bytes = b""

    def __post_init__(self) -> None:
        """Prepare the key by which the response is shared, and the encoded opaque."""
        command, pull = self.request.command, self.pull
        self.topics = pull.topics
        is_small = len(pull.topics) <= FEW_TOPICS
        self.routes = WatchedRoutes(tuple(pull.topics) if is_small else (), pull.since, pull.zone)
        if is_small and not command.is_oneway and command.opaque is not None:
            self.opaque = msgpack.packb(command.opaque)

    def __repr__(self) -> str:
        return f"<RouteWatch [{len(self.topics)} topics | {self.request.connection!r}]>"

    def end(self, shared: SharedResponses) -> None:
        """Respond, or start a task that responds: a topic has changed, or all watches end."""
        self.processor.end_watch(self, shared)

    def cancel(self) -> None:
        """Give up the watch, since its connection ends."""
        self.processor.cancel_watch(self)

    def release(self) -> None:
        """Stop the timer, and release the memory that is reserved for the watch."""
        if self.timer is not None:
            self.timer.cancel()
            # The timer references the watch: without the cycle the watch is freed at once.
            self.timer = None
        self.request.connection.release_memory(_watch_bytes(self.topics))


def _watch_bytes(topics: Sized) -> int:
    return _WATCH_BYTES + len(topics) * _WATCHED_TOPIC_BYTES
