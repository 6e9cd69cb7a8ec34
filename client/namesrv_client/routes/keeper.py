"""The keeper: polls, watches and asks, so that the routes in use stay fresh.

A poll about every 30 s is one conditional question for all topics. With `watch`, the server holds such a question until
something changes, and the poll is the net under it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final

from namesrv_client.routes.cache import Answer, RouteCache
from namesrv_client.routes.route import (
    Route,
    RouteChange,
    RouteError,
    RouteUnavailableError,
    Source,
    TopicNotFoundError,
)
from namesrv_client.routes.session import ServerSession
from namesrv_client.settings import ClientSettings
from namesrv_remoting.errors import RemotingError
from namesrv_runtime.clock import Clock

logger: Final = logging.getLogger("namesrv_client.pull")
_watch_logger: Final = logging.getLogger("namesrv_client.watch")

# Polls come this much earlier or later, so that clients that started together part.
_JITTER: Final = 0.1
_WATCH_SECONDS: Final = 25.0
# A watch says nothing while nothing changes: this is how a dead connection under it is noticed. With the second that an
# answer may take, well within 5 s.
_PING_SECONDS: Final = 3.0
# The pause after a watch that failed, or that a server did not hold (one that drains answers at once).
_WATCH_RETRY_SECONDS: Final = 1.0
# Topics that come into use within it join the watch together. Each time, the server is left with a question that it
# goes on holding for 25 s, and it reads no more from a client that has 256 of them.
_JOIN_SECONDS: Final = 0.2
# after failed sends, the routes concerned are asked for at most this often
_REFRESH_SECONDS: Final = 1.0


@dataclass(eq=False, repr=False)
class RouteKeeper:
    """Asks about topics, once for all who want to know, and keeps what is in use up to date in the cache."""

    settings: ClientSettings
    clock: Clock
    session: ServerSession
    cache: RouteCache
    _: KW_ONLY
    changed: Callable[[RouteChange], None]
    random_unit: Callable[[], float]

    def __post_init__(self) -> None:
        # topics that are polled: all that anybody ever asked for
        self.in_use: set[str] = set()
        # topic -> what those await who have asked for it
        self._asking: dict[str, asyncio.Future[Route]] = {}
        # those of them that are in no question yet
        self._wanted: dict[str, asyncio.Future[Route]] = {}
        self._questions: set[asyncio.Task[None]] = set()
        # set when the watch has to be asked anew: of other topics, or of another run
        self._watch_again = asyncio.Event()
        # brokers that sends failed on, whose topics are to be asked about
        self._suspects: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<RouteKeeper [{len(self.in_use)} in use | {len(self._asking)} asked]>"

    def works(self) -> list[Coroutine[Any, Any, None]]:
        """What has to run as long as the client does."""
        is_watching = self.settings.watch and self.settings.protocol != "rocketmq"
        return [self._poll(), self._watch(), self._ping()] if is_watching else [self._poll()]

    async def close(self) -> None:
        """End all questions that are under way; who waits for them gets a RouteUnavailableError."""
        for asking in self._asking.values():
            asking.cancel()
        self._asking.clear()
        for task in self._questions:
            task.cancel()
        if self._questions:
            await asyncio.wait(self._questions)

    def use(self, topic: str) -> None:
        """Keep a topic up to date from now on."""
        if topic not in self.in_use:
            self.in_use.add(topic)
            self._watch_again.set()

    def forget(self, topic: str) -> None:
        """Keep it no longer."""
        self.in_use.discard(topic)
        self.cache.forget(topic)

    async def fetch(self, topic: str) -> Route:
        """What a server says of a topic now: one question for all who ask at the same time. Raises RouteError."""
        asking = self._asking.get(topic)
        if asking is None:
            if not self._wanted:
                # begins when all who run now have said what they want
                self._question(self._ask())
            asking = self._asking[topic] = self._wanted[topic] = asyncio.get_running_loop().create_future()
        # waited for, not awaited: whoever gives up must not take the answer from the others
        await asyncio.wait([asking])
        if asking.cancelled():
            raise RouteUnavailableError(f"topic {topic}: the client is closed")
        return asking.result()

    def _question(self, asking: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(asking)
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)
        return task

    async def _ask(self) -> None:
        wanted, self._wanted = self._wanted, {}
        reasons: Mapping[str, str] = {}
        try:
            reasons = await self.session.routes(list(wanted), self._take_fetched)
        finally:
            for topic, asking in wanted.items():
                # nobody is left waiting, not even by a bug
                if not asking.done():
                    self._fail(topic, RouteUnavailableError(f"topic {topic}: {reasons.get(topic, 'no answer')}"))

    def _take_fetched(self, answer: Answer) -> None:
        for topic, route in answer.routes.items():
            if route is not None:
                # first: whoever is told of the change may ask for the topic
                self.use(topic)
        self._take("pull", answer, is_sync=False)
        for topic, route in answer.routes.items():
            known = self.cache.get(topic)
            if known is None and topic not in self.in_use:
                # it has joined the sync point, and nobody will ask about it again
                self.cache.forget(topic)
            if route is None and not answer.can_deny and (known is None or known.confirmed_absent_since is None):
                # the next server may know
                continue
            if known is None:
                reason = f"topic {topic} does not exist, according to {self.session.chosen}"
                self._fail(topic, TopicNotFoundError(reason))
            elif (asking := self._asking.pop(topic, None)) is not None and not asking.done():
                self.use(topic)
                asking.set_result(known)

    def _fail(self, topic: str, error: RouteError) -> None:
        asking = self._asking.pop(topic, None)
        if asking is not None and not asking.done():
            asking.set_exception(error)
            # fetched, so that asyncio does not report it when everybody has given up
            asking.exception()

    def _take(self, source: Source, answer: Answer, *, is_sync: bool = True) -> None:
        doubted = len(self.cache.doubted)
        for change in self.cache.apply(answer, source, is_sync=is_sync):
            self.changed(change)
        if len(self.cache.doubted) < doubted:
            # believed again: the watch may have it back
            self._watch_again.set()

    async def refresh(self) -> bool:
        """Ask for what changed of all topics in use, now; whether a server answered."""
        self.cache.point.retain(self.in_use)
        return await self._refresh(sorted(self.in_use))

    async def _refresh(self, topics: list[str]) -> bool:
        if not topics:
            return True
        try:
            await self.session.changes(topics, partial(self._take, "pull"))
        except RemotingError as error:
            # the session logs an outage, once a minute
            logger.debug("routes not refreshed: %s", error)
            return False
        return True

    async def _poll(self) -> None:
        # full jitter on the first: a thousand clients that start together do not ask together
        await self.clock.sleep(self.settings.poll_seconds * self.random_unit())
        while True:
            await self.refresh()
            spread = 1 + _JITTER * (2 * self.random_unit() - 1)
            await self.clock.sleep(self.settings.poll_seconds * spread)

    def suspect(self, broker: str) -> None:
        """A send to the broker failed: ask about its topics, once a second at most."""
        self._suspects.add(broker)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._question(self._refresh_suspects())

    async def _refresh_suspects(self) -> None:
        while self._suspects:
            suspects, self._suspects = self._suspects, set()
            await self._refresh(sorted(self.cache.topics_of(suspects) & self.in_use))
            await self.clock.sleep(_REFRESH_SECONDS)

    async def _watch(self) -> None:
        while True:
            self._watch_again.clear()
            # what a young server said and nobody believed is the poll's business: a watch would be told it at once
            topics = sorted(self.in_use - self.cache.doubted)
            if not topics:
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
        """Ask once; whether something has changed, in the routes or in what is to be watched."""
        held = asyncio.create_task(self.session.watch(topics, _WATCH_SECONDS, partial(self._take, "watch")))
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
                # looked at, so that asyncio does not report it if this is the end
                held.exception()
        return held.cancelled() or held.result()

    async def _ping(self) -> None:
        while True:
            await self.clock.sleep(_PING_SECONDS)
            try:
                if self.in_use and await self.session.ping():
                    # the one that holds the watch is gone, and its connection may be a proxy's
                    self._watch_again.set()
            except RemotingError as error:
                _watch_logger.debug("server lost: %s", error)
