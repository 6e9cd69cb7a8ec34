"""Asks every NameServer, one task for each, however many tabs are open.

Four times a second a server says in one small answer how far it is (20002); everything else is asked only when that
has moved on, or when it is time to look again. New topics are in no watch, so that route changes are learnt from the
server's events (20003), and then only the routes that they name are pulled.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn, TypeVar

from namesrv_client.ctl.nameserver import ROUTES_PER_PULL, NameServer
from namesrv_client.ctl.servers import reason
from namesrv_console.state import KEPT_EVENTS, Cluster, ServerView, seen_brokers
from namesrv_remoting.bodies.extensions import Event, ServerInfo
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.errors import RemotingError, ResponseError
from namesrv_runtime.clock import Clock

T = TypeVar("T")

PULSE_SECONDS: Final = 0.25
# a server that does not answer within this time is unreachable: with the pulse and a tab's pause, well within 3 s
ANSWER_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 1.0
# Heartbeats show within a second, connections within five; Apache's server is asked topic by topic, as by a client.
_BROKERS_SECONDS: Final = 1.0
_CONNECTIONS_SECONDS: Final = 5.0
_APACHE_SECONDS: Final = 2.0
_APACHE_ROUTES_SECONDS: Final = 30.0
_APACHE_TOPICS: Final = 500
# a question that takes long is asked so much more rarely that it takes the server a twentieth of the time at most
_REST: Final = 20
# what a server refuses is asked for again after this long
_REFUSED_SECONDS: Final = 5.0
_MAX_EVENTS: Final = 1000
# more than this are pulled together with all others
_FEW_TOPICS: Final = 5_000


class Observed:
    """The latest `Cluster`, and whoever waits for the next."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.cluster = Cluster.of(addresses)
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Observed [revision {self.cluster.revision} | {len(self.cluster.servers)} servers]>"

    def put(self, view: ServerView) -> None:
        """Take what a server says now."""
        before, self.cluster = self.cluster.revision, self.cluster.with_view(view)
        if self.cluster.revision != before:
            self._wake()

    def renew(self) -> None:
        """What follows from it has changed, with time."""
        self.cluster = replace(self.cluster, revision=self.cluster.revision + 1)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed_since(self, revision: int) -> None:
        """Return once the revision is another one."""
        while self.cluster.revision == revision:
            await self._changed.wait()


@dataclass(slots=True)
class _Timetable:
    """When each question to one server is due again."""

    clock: Clock
    _due: dict[str, float] = field(default_factory=dict)
    # not before, whatever happens
    _rested: dict[str, float] = field(default_factory=dict)

    def is_due(self, name: str) -> bool:
        return self.clock.monotonic() >= self._due.get(name, 0.0)

    def hurry(self, name: str) -> None:
        """There is news."""
        self._due[name] = self._rested.get(name, 0.0)

    def done(self, name: str, began: float, seconds: float = 0.0) -> None:
        """It was asked, and took until now."""
        now = self.clock.monotonic()
        self._rested[name] = now + _REST * (now - began)
        self._due[name] = max(began + seconds, self._rested[name])

    def refused(self, name: str) -> None:
        """The server does not tell."""
        self._due[name] = self._rested[name] = self.clock.monotonic() + _REFUSED_SECONDS

    def clear(self) -> None:
        """Another run may tell everything at once."""
        self._due.clear()
        self._rested.clear()


class Poller:
    """Keeps `observed` up to date."""

    def __init__(self, servers: Sequence[NameServer], observed: Observed, clock: Clock) -> None:
        self._servers = servers
        self._observed = observed
        self._clock = clock

    async def run(self) -> NoReturn:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for server in self._servers:
                tasks.create_task(self._follow(server))
        raise AssertionError("a console without servers")

    async def _follow(self, server: NameServer) -> NoReturn:
        times = _Timetable(self._clock)
        asks = _Asking(server, times, self._clock)
        while True:
            try:
                await asks.all(self._observed.cluster.server(server.address), self._observed.put)
            except RemotingError as error:
                # what it said before it failed was put there
                view, refuses = self._observed.cluster.server(server.address), isinstance(error, ResponseError)
                self._observed.put(view.lost(reason(error), self._clock.monotonic(), refuses=refuses))
                times.clear()
                await self._clock.sleep(_RETRY_SECONDS)
            else:
                await self._clock.sleep(PULSE_SECONDS)


@dataclass(frozen=True, slots=True)
class _Asking:
    """The questions to one server. Each raises RemotingError when the server does not answer."""

    server: NameServer
    times: _Timetable
    clock: Clock

    async def all(self, view: ServerView, put: Callable[[ServerView], None]) -> None:
        """Whatever is due; what is known is put before what takes long is asked."""
        info = await self.server.info()
        if (info and (info.boot_id, info.ready)) != (view.info and (view.info.boot_id, view.info.ready)):
            # what was refused may be told now
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
        if info.revision != view.routes_revision and self.times.is_due("routes"):
            view = await self._routes(view, info, put)
            put(view)
        if self.times.is_due("connections"):
            put(await self._connections(view))

    async def _events(self, view: ServerView) -> ServerView:
        view, found = await self._told(view, "events", lambda: self.server.events(view.last_seq, _MAX_EVENTS))
        if found is None or found.boot_id != view.boot_id:
            return view
        return replace(view, events=(*view.events, *found.events)[-KEPT_EVENTS:])

    async def _brokers(self, view: ServerView, seconds: float) -> ServerView:
        began = self.clock.monotonic()
        view, found = await self._told(view, "brokers", self.server.brokers, seconds)
        # the answer was made between the question and now
        asked_at = (began + self.clock.monotonic()) / 2
        return view if found is None else replace(view, brokers=seen_brokers(view.brokers, found, asked_at))

    async def _routes(self, view: ServerView, info: ServerInfo, put: Callable[[ServerView], None]) -> ServerView:
        changed = changed_topics(view.events, view.routes_revision, info.revision)
        if changed is None or len(changed) > _FEW_TOPICS:
            view, topics = await self._told(view, "routes", self.server.topics)
            if topics is None:
                return view
            known = {topic: view.routes[topic] for topic in topics if topic in view.routes}
        else:
            topics, known = sorted(changed), dict(view.routes)
        # of those that are known only what has changed; of new ones the route, whenever that was
        old = [topic for topic in topics if topic in known]
        new = [topic for topic in topics if topic not in known]
        since, boot_id = view.routes_revision, view.boot_id
        asks = [
            functools.partial(self.server.changed_routes, part, boot_id=boot_id, since=since) for part in _parts(old)
        ]
        asks += [functools.partial(self.server.changed_routes, part) for part in _parts(new)]
        for ask in asks:
            view, found = await self._told(view, "routes", ask)
            if found is None:
                return view
            for topic, route in found.items():
                if route is None:
                    known.pop(topic, None)
                else:
                    known[topic] = route
            if self.times.is_due("brokers"):
                # routes of hundreds of brokers take a while, and nobody is to look silent for it
                view = await self._brokers(view, _BROKERS_SECONDS)
                put(view)
        return replace(view, topics=frozenset(known), routes=known, routes_revision=info.revision)

    async def _connections(self, view: ServerView) -> ServerView:
        began = self.clock.monotonic()
        ask = functools.partial(self.server.connections, None)
        view, found = await self._told(view, "connections", ask, _CONNECTIONS_SECONDS)
        return replace(view, connections=None if found is None else tuple(found), connections_at=began)

    async def _apache(self, view: ServerView, put: Callable[[ServerView], None]) -> None:
        if self.times.is_due("brokers"):
            view = await self._brokers(view, _APACHE_SECONDS)
        put(view)
        if self.times.is_due("routes"):
            view, found = await self._told(view, "routes", self._apache_routes, _APACHE_ROUTES_SECONDS)
            if found is not None:
                view = replace(view, topics=frozenset(found[0]), routes=found[1])
            put(view)

    async def _apache_routes(self) -> tuple[list[str], dict[str, TopicRouteData]]:
        topics = await self.server.topics()
        found = await self.server.routes(topics) if len(topics) <= _APACHE_TOPICS else {}
        return topics, {topic: route for topic, route in found.items() if route is not None}

    async def _told(
        self, view: ServerView, name: str, ask: Callable[[], Awaitable[T]], seconds: float = 0.0
    ) -> tuple[ServerView, T | None]:
        """An answer, to be asked for again in so many seconds; who refuses one question may well answer the others."""
        refused = {key: why for key, why in view.refused.items() if key != name}
        began = self.clock.monotonic()
        try:
            found = await ask()
        except ResponseError as error:
            self.times.refused(name)
            return replace(view, refused={**refused, name: reason(error)}), None
        self.times.done(name, began, seconds)
        return replace(view, refused=refused), found


def _parts(topics: Sequence[str]) -> Iterator[Sequence[str]]:
    return (topics[at : at + ROUTES_PER_PULL] for at in range(0, len(topics), ROUTES_PER_PULL))


def changed_topics(news: Sequence[Event], since: int, until: int) -> set[str] | None:
    """The topics whose routes changed, by the events; None when these do not name all of them."""
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
