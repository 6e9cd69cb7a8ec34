"""Polls every NameServer in one task per server, independently of the number of open tabs.

Four times a second, a small response (20002) has the server's revision and last event; other requests are sent only
when one of these has grown, or when their interval is over. Watches do not cover new topics, so route changes are read
from the server's events (20003), and only the routes that they name are pulled.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn, TypeVar

from namesrv_client.ctl.nameserver import MAX_EVENTS, ROUTES_PER_PULL, NameServer
from namesrv_client.ctl.servers import reason
from namesrv_client.health import failure_state
from namesrv_console.state import Cluster, ConnectionReport, ServerView, TopicReport, seen_brokers
from namesrv_remoting.bodies.extensions import Event, ServerInfo
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.errors import RemotingError, RequestTimeoutError, ResponseError, SystemBusyError
from namesrv_runtime.clock import Clock

T = TypeVar("T")
_Routes = Mapping[str, TopicRouteData | None]

PULSE_SECONDS: Final = 0.25
# A server without a response within this time is unreachable: with the pulse and a tab's pause, a page shows that well
# within 3 s.
ANSWER_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 1.0
# Heartbeats show within a second, connections within five; Apache's server gets a request for each topic, as from a
# client.
_BROKERS_SECONDS: Final = 1.0
_CONNECTIONS_SECONDS: Final = 5.0
_APACHE_SECONDS: Final = 2.0
_APACHE_ROUTES_SECONDS: Final = 30.0
_APACHE_TOPICS: Final = 500
# Requests rest for 20 times their duration, so that they take at most a twentieth of the server's time. Those that show
# failures rest for a second at most: a busy machine makes any request slow.
REST: Final = 20
_SHOW_FAILURES: Final = frozenset({"events", "brokers"})
MOST_REST_SECONDS: Final = 1.0
# A refused request is sent again after this time.
_REFUSED_SECONDS: Final = 5.0
# If more topics than this have changed, the whole topic list is requested.
_FEW_TOPICS: Final = 5_000
# Number of topics whose routes are requested before brokers are requested again: at first, and over a fast link.
_FIRST_TOPICS: Final = 10
_MOST_TOPICS: Final = 1_000
# Responses within this time leave room for four times as many routes.
_QUICK_SECONDS: Final = ANSWER_SECONDS / 8


class Observed:
    """The latest `Cluster`, and a way to wait for the next one."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.cluster = Cluster.of(addresses)
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Observed [revision {self.cluster.revision} | {len(self.cluster.servers)} servers]>"

    def put(self, view: ServerView) -> None:
        """Store the newest view of a server."""
        before, self.cluster = self.cluster.revision, self.cluster.with_view(view)
        if self.cluster.revision != before:
            self._wake()

    def renew(self) -> None:
        """Begin a new revision, since a result derived from the cluster has changed with time."""
        self.cluster = replace(self.cluster, revision=self.cluster.revision + 1)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed_since(self, revision: int) -> None:
        """Return once the revision differs from this one."""
        while self.cluster.revision == revision:
            await self._changed.wait()


@dataclass(slots=True)
class _Timetable:
    """The due time of each request to one server."""

    clock: Clock
    _due: dict[str, float] = field(default_factory=dict)
    # Earliest due time, even after news.
    _rested: dict[str, float] = field(default_factory=dict)

    def is_due(self, name: str) -> bool:
        return self.clock.monotonic() >= self._due.get(name, 0.0)

    def hurry(self, name: str) -> None:
        """Make a request due as soon as its rest is over, since there is news."""
        self._due[name] = self._rested.get(name, 0.0)

    def done(self, name: str, began: float, seconds: float = 0.0) -> None:
        """Note that a request, which began at `began`, has just been answered."""
        now = self.clock.monotonic()
        rest = REST * (now - began)
        self._rested[name] = now + (min(rest, MOST_REST_SECONDS) if name in _SHOW_FAILURES else rest)
        self._due[name] = max(began + seconds, self._rested[name])

    def refused(self, name: str) -> None:
        """Note that the server refused a request."""
        self._due[name] = self._rested[name] = self.clock.monotonic() + _REFUSED_SECONDS

    def clear(self) -> None:
        """Make all requests due, since another boot of the server may accept them."""
        self._due.clear()
        self._rested.clear()


class Poller:
    """Polls all servers, and keeps `observed` up to date."""

    def __init__(self, servers: Sequence[NameServer], observed: Observed, clock: Clock) -> None:
        self._servers = servers
        self._observed = observed
        self._clock = clock

    async def run(self) -> NoReturn:
        """Poll until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for server in self._servers:
                tasks.create_task(self._follow(server))
        raise AssertionError("a console without servers")

    async def _follow(self, server: NameServer) -> NoReturn:
        times = _Timetable(self._clock)
        requests = _Requests(server, times, self._clock)
        while True:
            try:
                await requests.send_due(self._observed.cluster.server(server.address), self._observed.put)
            except RemotingError as error:
                # Responses before the error are in the stored view already.
                view = self._observed.cluster.server(server.address)
                self._observed.put(view.lost(reason(error), self._clock.monotonic(), failure_state(error)))
                times.clear()
                await self._clock.sleep(RETRY_SECONDS)
            else:
                await self._clock.sleep(PULSE_SECONDS)


@dataclass(slots=True)
class _Portion:
    """The number of topics whose routes are requested from a server before its brokers are requested again.

    Over a slow link, many routes would take too long. More than ROUTES_PER_PULL are pulled by several requests, each of
    which has a timeout of its own.
    """

    topics: int = _FIRST_TOPICS

    def answered(self, count: int, seconds: float) -> None:
        """Adapt to a response with the routes of so many topics."""
        if count == self.topics and seconds < _QUICK_SECONDS:
            self.topics = 4 * count if 4 * count < ROUTES_PER_PULL else _MOST_TOPICS

    def timed_out(self) -> None:
        """Adapt to a timeout."""
        self.topics = max(1, min(self.topics, ROUTES_PER_PULL) // 4)


@dataclass(frozen=True, slots=True)
class _Requests:
    """The requests to one server. Each method raises RemotingError when the server does not answer."""

    server: NameServer
    times: _Timetable
    clock: Clock
    portion: _Portion = field(default_factory=_Portion)

    async def send_due(self, view: ServerView, put: Callable[[ServerView], None]) -> None:
        """Send all due requests; views are stored before a request that takes long."""
        info = await self.server.info()
        if (info and (info.boot_id, info.ready)) != (view.info and (view.info.boot_id, view.info.ready)):
            # The server may now accept requests that it refused before.
            self.times.clear()
        view = view.answered(self.clock.monotonic(), info=info)
        if info is None:
            await self._apache(view, put)
            return
        if view.last_seq < (info.last_event_seq or 0) and self.times.is_due("events"):
            view = await self._events(view)
            self.times.hurry("brokers")
        if self.times.is_due("brokers"):
            view = await self._brokers(view, _BROKERS_SECONDS)
        put(view)
        # A server that is not ready refuses route requests, and closes the connection.
        if info.ready and info.revision != view.topic_report.revision and self.times.is_due("routes"):
            view = await self._routes(view, info, put)
            put(view)
        if self.times.is_due("connections"):
            put(await self._connections(view))

    async def _events(self, view: ServerView) -> ServerView:
        view, found = await self._response(view, "events", lambda: self.server.events(view.last_seq, MAX_EVENTS))
        if found is None or found.boot_id != view.boot_id:
            return view
        return view.with_events(found.events)

    async def _brokers(self, view: ServerView, seconds: float) -> ServerView:
        began = self.clock.monotonic()
        view, found = await self._response(view, "brokers", self.server.brokers, seconds)
        # The server made its response between the request and now.
        asked_at = (began + self.clock.monotonic()) / 2
        if found is None:
            return view
        return replace(view, brokers=seen_brokers(view.brokers, found, asked_at), brokers_seq=view.last_seq)

    async def _routes(self, view: ServerView, info: ServerInfo, put: Callable[[ServerView], None]) -> ServerView:
        before = view.topic_report
        changed = changed_topics(view.events, before.revision, info.revision)
        if changed is None or len(changed) > _FEW_TOPICS:
            view, topics = await self._response(view, "routes", self.server.topics)
            if topics is None:
                return view
            routes = {topic: before.routes[topic] for topic in topics if topic in before.routes}
        else:
            topics, routes = sorted(changed), dict(before.routes)
        # Of known topics only changed routes are pulled; of new topics the route in any case.
        changed_since = functools.partial(self.server.changed_routes, boot_id=view.boot_id, since=before.revision)
        known = [topic for topic in topics if topic in routes]
        new = [topic for topic in topics if topic not in routes]
        for ask, some in ((changed_since, known), (self.server.changed_routes, new)):
            view, pulled = await self._pull_all(view, ask, some, put)
            if pulled is None:
                return view
            for topic, route in pulled.items():
                if route is None:
                    routes.pop(topic, None)
                else:
                    routes[topic] = route
        return replace(view, topic_report=TopicReport(frozenset(routes), routes, info.revision))

    async def _pull_all(
        self,
        view: ServerView,
        ask: Callable[[list[str]], Awaitable[_Routes]],
        topics: Iterable[str],
        put: Callable[[ServerView], None],
    ) -> tuple[ServerView, _Routes | None]:
        """The routes of topics, requested in portions; None if the server refused one of them."""
        pulled: dict[str, TopicRouteData | None] = {}
        left = deque(topics)
        while left:
            part = [left.popleft() for _ in range(min(self.portion.topics, len(left)))]
            view, found = await self._pull(view, functools.partial(ask, part), len(part))
            if found is None:
                return view, None
            pulled |= found
            if self.times.is_due("brokers"):
                # Pulling routes of hundreds of brokers takes a while; without this request all brokers would look
                # silent meanwhile.
                view = await self._brokers(view, _BROKERS_SECONDS)
                put(view)
        return view, pulled

    async def _pull(
        self, view: ServerView, ask: Callable[[], Awaitable[_Routes]], count: int
    ) -> tuple[ServerView, _Routes | None]:
        """The routes of so many topics; None if the server refused them."""
        began = self.clock.monotonic()
        try:
            view, found = await self._response(view, "routes", ask)
        except RequestTimeoutError:
            self.portion.timed_out()
            raise
        if found is not None:
            self.portion.answered(count, self.clock.monotonic() - began)
        return view, found

    async def _connections(self, view: ServerView) -> ServerView:
        began = self.clock.monotonic()
        ask = functools.partial(self.server.connections, None)
        view, found = await self._response(view, "connections", ask, _CONNECTIONS_SECONDS)
        return view if found is None else replace(view, connection_report=ConnectionReport(began, tuple(found)))

    async def _apache(self, view: ServerView, put: Callable[[ServerView], None]) -> None:
        if self.times.is_due("brokers"):
            view = await self._brokers(view, _APACHE_SECONDS)
        put(view)
        if self.times.is_due("routes"):
            view, found = await self._response(view, "routes", self._apache_routes, _APACHE_ROUTES_SECONDS)
            if found is not None:
                view = replace(view, topic_report=found)
            put(view)

    async def _apache_routes(self) -> TopicReport:
        topics = await self.server.topics()
        found = await self.server.routes(topics) if len(topics) <= _APACHE_TOPICS else {}
        return TopicReport(frozenset(topics), {topic: route for topic, route in found.items() if route is not None})

    async def _response(
        self, view: ServerView, name: str, ask: Callable[[], Awaitable[T]], seconds: float = 0.0
    ) -> tuple[ServerView, T | None]:
        """A response, due again after `seconds`; None if the server refused this request, but maybe not others."""
        began = self.clock.monotonic()
        try:
            found = await ask()
        except ResponseError as error:
            self.times.refused(name)
            # A busy server is not asked for all its routes again.
            is_kept = name == "routes" and isinstance(error, SystemBusyError)
            view = view if is_kept else view.without(name)
            return replace(view, refused={**view.refused, name: reason(error)}), None
        self.times.done(name, began, seconds)
        return replace(view, refused={key: why for key, why in view.refused.items() if key != name}), found


def changed_topics(news: Sequence[Event], since: int, until: int) -> set[str] | None:
    """The topics whose routes changed according to the events; None if the events do not name all of them."""
    topics: set[str] = set()
    revision = since
    for event in news:
        number, named, count = (event.fields.get(name) for name in ("revision", "topics", "count"))
        if event.event != "route" or not isinstance(number, int) or number <= since:
            continue
        if number != revision + 1 or not isinstance(named, list) or len(named) != count:
            return None
        revision = number
        topics.update(map(str, named))
    return topics if revision >= until and since else None
