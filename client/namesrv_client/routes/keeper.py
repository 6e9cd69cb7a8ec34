"""The keeper: polls, watches and requests routes, so that the routes in use stay fresh.

A poll about every 30 s is one conditional request for all topics; a failed poll is repeated sooner. With `watch`, the
server also holds such a request until a topic changes.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

from namesrv_client.routes.cache import KnownRoutes
from namesrv_client.routes.fetches import RouteFetches
from namesrv_client.routes.in_use import TopicsInUse
from namesrv_client.routes.route import Route, RouteChange
from namesrv_client.routes.session import ServerSession
from namesrv_client.routes.watch import RouteWatch
from namesrv_client.settings import ClientSettings
from namesrv_remoting.errors import RemotingError
from namesrv_runtime.backoff import Backoff
from namesrv_runtime.clock import Clock, timeout_on

logger: Final = logging.getLogger("namesrv_client.pull")

# Polls come up to this part earlier, so that clients that started together do not stay together. They never come later:
# the time until a client knows of a dead broker includes one interval of `poll_seconds` at most.
_JITTER: Final = 0.1
# The longest pause before a poll that no server has answered is repeated; it doubles with each failure in a row, up to
# the interval of polls.
_POLL_RETRY_SECONDS: Final = 1.0
# The chosen server is chosen anew this often, give or take a fifth, so that a server that was added gets its share.
_CHOICE_SECONDS: Final = 600.0
_CHOICE_JITTER: Final = 0.2
# after failed sends, the routes concerned are requested at most this often
_REFRESH_SECONDS: Final = 1.0


class RouteKeeper:
    """Keeps the topics in use up to date in the cache, and requests the routes of other topics."""

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        settings: ClientSettings,
        clock: Clock,
        session: ServerSession,
        cache: KnownRoutes,
        *,
        changed: Callable[[RouteChange], None],
        random_unit: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._session = session
        self._random_unit = random_unit
        self.topics = TopicsInUse(cache, changed)
        self._fetches = RouteFetches(session, self.topics)
        self._watch = RouteWatch(clock, session, self.topics, random_unit)
        # set when the list of servers has changed
        self._servers_changed = asyncio.Event()
        # brokers of failed sends, whose topics are to be refreshed
        self._suspects: set[str] = set()
        # the task that refreshes their topics; None before the first failed send
        self._refreshing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<RouteKeeper [{len(self.topics)} in use | {len(self._fetches)} requested]>"

    def background_coroutines(self) -> list[Coroutine[Any, Any, None]]:
        """The coroutines that have to run as long as the client runs."""
        is_watching = self._settings.watch and self._settings.protocol != "rocketmq"
        watching = [self._watch.run(), self._watch.ping()] if is_watching else []
        return [self._poll(), self._choose(), *watching]

    async def close(self) -> None:
        """End all requests under way; callers that wait for them get a RouteUnavailableError."""
        await self._fetches.close()
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])

    def forget(self, topic: str) -> None:
        """Stop keeping a topic up to date."""
        self.topics.forget(topic)
        self._watch.topic_forgotten()

    def servers_changed(self) -> None:
        """Poll at once if no server answered the last poll, because a new server may answer."""
        self._servers_changed.set()

    async def fetch(self, topic: str) -> Route:
        """The route of a topic from a server. Raises RouteError, or ValueError for an invalid name."""
        return await self._fetches.fetch(topic)

    async def refresh(self) -> bool:
        """Request all changes of the topics in use now; True if a server has answered, or no topic is in use."""
        return await self._refresh(self.topics.polled())

    async def _refresh(self, topics: list[str]) -> bool:
        if not topics:
            return True
        try:
            await self._session.refresh(topics, partial(self.topics.refreshed, "pull"))
        except RemotingError as error:
            # The session logs the outage, once a minute.
            logger.debug("routes not refreshed: %s", error)
            return False
        return True

    async def _poll(self) -> None:
        # Full jitter on the first poll, so that a thousand clients that start together do not poll together.
        await self._clock.sleep(self._settings.poll_seconds * self._random_unit())
        retry, failures = Backoff(_POLL_RETRY_SECONDS, self._settings.poll_seconds), 0
        while True:
            self._servers_changed.clear()
            if await self.refresh():
                failures = 0
                await self._clock.sleep(self._settings.poll_seconds * (1 - _JITTER * self._random_unit()))
                continue
            failures += 1
            with suppress(TimeoutError):
                async with timeout_on(self._clock, retry.pause_seconds(failures, self._random_unit())):
                    await self._servers_changed.wait()
                    # The failures were those of the former servers.
                    failures = 0

    async def _choose(self) -> None:
        # Full jitter before the first choice, since many clients may have started together.
        await self._clock.sleep(_CHOICE_SECONDS * self._random_unit())
        while True:
            topics = self.topics.polled()
            if topics and await self._session.choose_anew(topics, partial(self.topics.refreshed, "pull")):
                self._watch.begin_again()
                # Requests under way on the former server end within this time.
                await self._clock.sleep(self._settings.call_timeout_seconds)
                await self._session.leave_others()
            spread = 1 + _CHOICE_JITTER * (2 * self._random_unit() - 1)
            await self._clock.sleep(_CHOICE_SECONDS * spread)

    def suspect(self, broker: str) -> None:
        """Refresh the topics of a broker after a failed send, once a second at most."""
        self._suspects.add(broker)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_suspects())

    async def _refresh_suspects(self) -> None:
        while self._suspects:
            suspects, self._suspects = self._suspects, set()
            await self._refresh(self.topics.of_brokers(suspects))
            await self._clock.sleep(_REFRESH_SECONDS)
