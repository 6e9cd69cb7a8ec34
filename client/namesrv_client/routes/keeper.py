"""The keeper: polls, watches and requests routes, so that the routes in use stay fresh.

A poll about every 30 s is one conditional request for all topics; a failed poll is repeated sooner. With `watch`, the
server also holds such a request until a topic changes.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Final

from namesrv_client.routes.cache import RouteCache, RouteResponse
from namesrv_client.routes.route import (
    Route,
    RouteChange,
    RouteError,
    RouteUnavailableError,
    Source,
    TopicNotFoundError,
)
from namesrv_client.routes.server import pull_batches
from namesrv_client.routes.session import ServerSession
from namesrv_client.settings import ClientSettings
from namesrv_remoting.bodies.topic import MAX_TOPIC_CHARACTERS
from namesrv_remoting.errors import RemotingError
from namesrv_runtime.backoff import Backoff
from namesrv_runtime.clock import Clock, timeout_on

logger: Final = logging.getLogger("namesrv_client.pull")
_watch_logger: Final = logging.getLogger("namesrv_client.watch")

# Polls come up to this part earlier, so that clients that started together do not stay together. They never come later:
# the time until a client knows of a dead broker includes one interval of `poll_seconds` at most.
_JITTER: Final = 0.1
# The longest pause before a poll that no server has answered is repeated; it doubles with each failure in a row, up to
# the interval of polls.
_POLL_RETRY_SECONDS: Final = 1.0
# The chosen server is chosen anew this often, give or take a fifth, so that a server that was added gets its share.
_CHOICE_SECONDS: Final = 600.0
_CHOICE_JITTER: Final = 0.2
_WATCH_SECONDS: Final = 25.0
# A watch is silent while nothing changes, so pings find a dead connection within 4.5 s, or later if the setting
# `attempt_timeout_seconds` is more than 1.5 s. The time for the response is long enough for one lost packet on a slow
# network: with a round trip of 0.6 s, TCP repeats the packet after about 0.8 s.
_PING_SECONDS: Final = 3.0
_PING_RESPONSE_SECONDS: Final = 1.5
# The pause after a watch that failed, or that a server did not hold (a draining server answers at once).
_WATCH_RETRY_SECONDS: Final = 1.0
# Topics that come into use within this time join the watch together. Each new watch leaves the server with an old one,
# held for up to 25 s, and the server reads nothing more from a client with 256 watches.
_JOIN_SECONDS: Final = 0.2
# after failed sends, the routes concerned are requested at most this often
_REFRESH_SECONDS: Final = 1.0


@dataclass(eq=False, repr=False)
class RouteKeeper:
    """Requests routes, once for all concurrent callers, and keeps the topics in use up to date in the cache."""

    settings: ClientSettings
    clock: Clock
    session: ServerSession
    cache: RouteCache
    _: KW_ONLY
    changed: Callable[[RouteChange], None]
    random_unit: Callable[[], float]

    def __post_init__(self) -> None:
        # topics that are polled: requested topics that have had a route, and missing topics for which the application
        # uses queues of the default topic
        self.in_use: set[str] = set()
        # topic -> the future that callers of `fetch` wait for
        self._fetches: dict[str, asyncio.Future[Route]] = {}
        # fetches that are in no request yet
        self._unsent: dict[str, asyncio.Future[Route]] = {}
        self._requests: set[asyncio.Task[None]] = set()
        # set when a new watch is needed: for other topics, or after a restart of the server
        self._watch_again = asyncio.Event()
        # True while there is no watch, because one request cannot name all topics
        self._has_too_many = False
        # set when the list of servers has changed
        self._servers_changed = asyncio.Event()
        # brokers of failed sends, whose topics are to be refreshed
        self._suspects: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<RouteKeeper [{len(self.in_use)} in use | {len(self._fetches)} requested]>"

    def works(self) -> list[Coroutine[Any, Any, None]]:
        """The coroutines that have to run as long as the client runs."""
        is_watching = self.settings.watch and self.settings.protocol != "rocketmq"
        watching = [self._watch(), self._ping()] if is_watching else []
        return [self._poll(), self._choose(), *watching]

    async def close(self) -> None:
        """End all requests under way; callers that wait for them get a RouteUnavailableError."""
        for fetch in self._fetches.values():
            fetch.cancel()
        self._fetches.clear()
        for task in self._requests:
            task.cancel()
        if self._requests:
            await asyncio.wait(self._requests)

    def use(self, topic: str) -> None:
        """Begin to keep a topic up to date."""
        if topic not in self.in_use:
            self.in_use.add(topic)
            self._watch_again.set()

    def forget(self, topic: str) -> None:
        """Stop keeping a topic up to date."""
        self.in_use.discard(topic)
        self.cache.forget(topic)
        if self._has_too_many:
            self._watch_again.set()

    def servers_changed(self) -> None:
        """Poll at once if no server answered the last poll, because a new server may answer."""
        self._servers_changed.set()

    async def fetch(self, topic: str) -> Route:
        """The route of a topic from a server; one request serves all callers of the moment.

        Raises RouteError, or ValueError for an invalid name.
        """
        fetch = self._fetches.get(topic)
        if fetch is None:
            _check_name(topic)
            if not self._unsent:
                # The request is sent once all tasks that run now have added their topics.
                self._start(self._send_fetches())
            fetch = self._fetches[topic] = self._unsent[topic] = asyncio.get_running_loop().create_future()
        # asyncio.wait, because awaiting the future would cancel it for all callers when one caller is cancelled.
        await asyncio.wait([fetch])
        if fetch.cancelled():
            raise RouteUnavailableError(f"topic {topic}: the client is closed")
        return fetch.result()

    def _start(self, request: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return task

    async def _send_fetches(self) -> None:
        fetches, self._unsent = self._unsent, {}
        reasons: Mapping[str, str] = {}
        try:
            reasons = await self.session.routes(list(fetches), self._apply_fetched, rejected=self.cache.unconfirmed)
        finally:
            for topic, fetch in fetches.items():
                # In `finally`, so that no caller waits for ever after an unexpected error.
                if not fetch.done():
                    self._fail(topic, RouteUnavailableError(f"topic {topic}: {reasons.get(topic, 'no answer')}"))

    def _apply_fetched(self, response: RouteResponse) -> None:
        for topic, route in response.routes.items():
            if route is not None:
                # Before the change is announced, because a listener may request the topic.
                self.use(topic)
        changes = self._apply_to_cache("pull", response, is_sync=False)
        for topic, route in response.routes.items():
            known = self.cache.get(topic)
            is_absent = known is not None and known.confirmed_absent_since is not None
            if known is None and topic not in self.in_use:
                # The topic has joined the sync point, but no further request will name it.
                self.cache.forget(topic)
            is_undecided = topic in self.cache.unconfirmed or (route is None and not response.knows_all_topics)
            if is_undecided and not is_absent:
                # Another server may have the topic, or all of its brokers.
                continue
            if known is None:
                reason = f"topic {topic} does not exist, according to {self.session.chosen}"
                self._fail(topic, TopicNotFoundError(reason))
            elif (fetch := self._fetches.pop(topic, None)) is not None and not fetch.done():
                self.use(topic)
                fetch.set_result(known)
        # The changes are announced last, because a listener may forget a topic whose route was just found.
        self._announce(changes)

    def _fail(self, topic: str, error: RouteError) -> None:
        fetch = self._fetches.pop(topic, None)
        if fetch is not None and not fetch.done():
            fetch.set_exception(error)
            # The exception is read so that asyncio does not report it when all callers have been cancelled.
            fetch.exception()

    def _apply_and_announce(self, source: Source, response: RouteResponse) -> None:
        self._announce(self._apply_to_cache(source, response, is_sync=True))

    def _announce(self, changes: Iterable[RouteChange]) -> None:
        for change in changes:
            # A callback may have forgotten a topic whose change is still to be announced.
            if self.cache.get(change.topic) is not None:
                self.changed(change)

    def _apply_to_cache(self, source: Source, response: RouteResponse, *, is_sync: bool) -> list[RouteChange]:
        if is_sync and not self.in_use.issuperset(response.topics):
            # The application has forgotten some topics since the request was sent.
            routes = {topic: route for topic, route in response.routes.items() if topic in self.in_use}
            response = replace(response, topics=sorted(self.in_use.intersection(response.topics)), routes=routes)
        unconfirmed = set(self.cache.unconfirmed)
        changes = self.cache.apply(response, source, is_sync=is_sync)
        if unconfirmed - self.cache.unconfirmed:
            # A topic is confirmed again and can return to the watch.
            self._watch_again.set()
        return changes

    async def refresh(self) -> bool:
        """Request all changes of the topics in use now; True if a server has answered, or no topic is in use."""
        self.cache.point.retain(self.in_use)
        return await self._refresh(sorted(self.in_use))

    async def _refresh(self, topics: list[str]) -> bool:
        if not topics:
            return True
        try:
            await self.session.changes(topics, partial(self._apply_and_announce, "pull"))
        except RemotingError as error:
            # The session logs the outage, once a minute.
            logger.debug("routes not refreshed: %s", error)
            return False
        return True

    async def _poll(self) -> None:
        # Full jitter on the first poll, so that a thousand clients that start together do not poll together.
        await self.clock.sleep(self.settings.poll_seconds * self.random_unit())
        retry, failures = Backoff(_POLL_RETRY_SECONDS, self.settings.poll_seconds), 0
        while True:
            self._servers_changed.clear()
            if await self.refresh():
                failures = 0
                await self.clock.sleep(self.settings.poll_seconds * (1 - _JITTER * self.random_unit()))
                continue
            failures += 1
            with suppress(TimeoutError):
                async with timeout_on(self.clock, retry.pause_seconds(failures, self.random_unit())):
                    await self._servers_changed.wait()
                    # The failures were those of the former servers.
                    failures = 0

    async def _choose(self) -> None:
        # Full jitter before the first choice, since many clients may have started together.
        await self.clock.sleep(_CHOICE_SECONDS * self.random_unit())
        while True:
            self.cache.point.retain(self.in_use)
            topics = sorted(self.in_use)
            if topics and await self.session.choose_anew(topics, partial(self._apply_and_announce, "pull")):
                self._watch_again.set()
                # Requests under way on the former server end within this time.
                await self.clock.sleep(self.settings.call_timeout_seconds)
                await self.session.leave_others()
            spread = 1 + _CHOICE_JITTER * (2 * self.random_unit() - 1)
            await self.clock.sleep(_CHOICE_SECONDS * spread)

    def suspect(self, broker: str) -> None:
        """Refresh the topics of a broker after a failed send, once a second at most."""
        self._suspects.add(broker)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._start(self._refresh_suspects())

    async def _refresh_suspects(self) -> None:
        while self._suspects:
            suspects, self._suspects = self._suspects, set()
            await self._refresh(sorted(self.cache.topics_of(suspects) & self.in_use))
            await self.clock.sleep(_REFRESH_SECONDS)

    async def _watch(self) -> None:
        has_warned = False
        while True:
            self._watch_again.clear()
            # Unconfirmed topics are left to the poll: the server would answer or refuse a watch of them at once, again
            # and again.
            topics = sorted(self.in_use - self.cache.unconfirmed)
            if not topics:
                await self._watch_again.wait()
                continue
            self._has_too_many = len(pull_batches(topics)) > 1
            if self._has_too_many:
                if not has_warned:
                    _watch_logger.warning(
                        "no watch of %d topics, which one request cannot name; polls go on", len(topics)
                    )
                has_warned = True
                await self._watch_again.wait()
                continue
            began = self.clock.monotonic()
            try:
                has_news = await self._watch_once(topics)
            except RemotingError as error:
                _watch_logger.debug("watch ended: %s", error)
                has_news = False
            if not has_news and self.clock.monotonic() - began < _WATCH_RETRY_SECONDS:
                await self.clock.sleep(_WATCH_RETRY_SECONDS * (1 + self.random_unit()) / 2)

    async def _watch_once(self, topics: list[str]) -> bool:
        """Send one watch and wait for its end; True if a route or the set of watched topics has changed."""
        watch = self.session.watch(
            topics, _WATCH_SECONDS, partial(self._apply_and_announce, "watch"), on_refused=self._leave_to_poll
        )
        held = asyncio.create_task(watch)
        again = asyncio.create_task(self._watch_again.wait())
        try:
            await asyncio.wait((held, again), return_when=asyncio.FIRST_COMPLETED)
            if not held.done():
                await self.clock.sleep(_JOIN_SECONDS)
        finally:
            held.cancel()
            again.cancel()
            await asyncio.wait((held, again))
            if not held.cancelled():
                # The exception is read so that asyncio does not report it if this task is cancelled.
                held.exception()
        return held.cancelled() or held.result()

    def _leave_to_poll(self, topics: Collection[str]) -> None:
        self.cache.unconfirmed.update(self.in_use.intersection(topics))

    async def _ping(self) -> None:
        while True:
            await self.clock.sleep(_PING_SECONDS)
            try:
                if self.in_use and await self.session.ping(_PING_RESPONSE_SECONDS):
                    # The process that held the watch is gone, although the connection, through a proxy, is open.
                    self._watch_again.set()
            except RemotingError as error:
                _watch_logger.debug("server lost: %s", error)


def _check_name(topic: str) -> None:
    """Raise a ValueError for a name that would fail a request for all of its topics."""
    if not 1 <= len(topic) <= MAX_TOPIC_CHARACTERS:
        raise ValueError(f"topic name of {len(topic)} characters: must have 1 to {MAX_TOPIC_CHARACTERS}")
    try:
        topic.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"topic {topic!a} is not valid Unicode: {error.reason}") from error
