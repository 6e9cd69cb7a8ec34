"""The watch: a request that the chosen server holds until a topic in use changes, and pings that find a dead server."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from namesrv_client.routes.batches import pull_batches
from namesrv_client.routes.in_use import TopicsInUse
from namesrv_client.routes.session import ServerSession
from namesrv_remoting.errors import RemotingError
from namesrv_runtime.clock import Clock

logger: Final = logging.getLogger("namesrv_client.watch")

_WATCH_SECONDS: Final = 25.0
# A watch is silent while nothing changes, so pings find a dead connection within 4.5 s, or later if the setting
# `attempt_timeout_seconds` is more than 1.5 s. The time for the response is long enough for one lost packet on a slow
# network: with a round trip of 0.6 s, TCP repeats the packet after about 0.8 s.
_PING_SECONDS: Final = 3.0
_PING_RESPONSE_SECONDS: Final = 1.5
# The pause after a watch that failed, or that a server did not hold (a draining server answers at once).
_RETRY_SECONDS: Final = 1.0
# Topics that come into use within this time join the watch together. Each new watch leaves the server with an old one,
# held for up to 25 s, and the server reads nothing more from a client with 256 watches.
_JOIN_SECONDS: Final = 0.2


class RouteWatch:
    """Keeps a watch of the topics in use at the chosen server."""

    def __init__(
        self, clock: Clock, session: ServerSession, topics: TopicsInUse, random_unit: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._session = session
        self._topics = topics
        self._random_unit = random_unit
        # True while there is no watch, because one request cannot name all topics
        self._has_too_many = False
        # True once the warning of too many topics was logged
        self._has_warned = False

    def __repr__(self) -> str:
        return f"<RouteWatch [{'too many topics' if self._has_too_many else len(self._topics.watched())}]>"

    def begin_again(self) -> None:
        """Replace the current watch by a new one."""
        self._topics.watch_again.set()

    def topic_forgotten(self) -> None:
        """Begin a watch, if only the number of topics has prevented one."""
        if self._has_too_many:
            self.begin_again()

    async def run(self) -> None:
        """Send one watch after the other, until cancelled."""
        while True:
            self._topics.watch_again.clear()
            topics = self._topics.watched()
            if not topics or not self._fits(topics):
                await self._topics.watch_again.wait()
                continue
            began = self._clock.monotonic()
            try:
                next_may_follow = await self._watch(topics)
            except RemotingError as error:
                logger.debug("watch ended: %s", error)
                next_may_follow = False
            if not next_may_follow and self._clock.monotonic() - began < _RETRY_SECONDS:
                await self._clock.sleep(_RETRY_SECONDS * (1 + self._random_unit()) / 2)

    def _fits(self, topics: list[str]) -> bool:
        """True if one request can name the topics; a warning is logged the first time that one request cannot."""
        self._has_too_many = len(pull_batches(topics)) > 1
        if self._has_too_many and not self._has_warned:
            self._has_warned = True
            logger.warning("no watch of %d topics, which one request cannot name; polls go on", len(topics))
        return not self._has_too_many

    async def _watch(self, topics: list[str]) -> bool:
        """Send one watch and wait for its end; True if the next watch may follow at once."""
        request = self._session.watch(topics, _WATCH_SECONDS, partial(self._topics.refreshed, "watch"))
        held = asyncio.create_task(request)
        again = asyncio.create_task(self._topics.watch_again.wait())
        try:
            await asyncio.wait((held, again), return_when=asyncio.FIRST_COMPLETED)
            if not held.done():
                # `watch_again` is set: further topics may come into use.
                await self._clock.sleep(_JOIN_SECONDS)
        finally:
            held.cancel()
            again.cancel()
            await asyncio.wait((held, again))
            if not held.cancelled():
                # The exception is read so that asyncio does not report it if this task is cancelled.
                held.exception()
        if held.cancelled():
            return True
        self._topics.leave_to_poll(held.result().left_to_poll)
        return held.result().next_may_follow

    async def ping(self) -> None:
        """Request the boot id of the chosen server at short intervals, until cancelled."""
        while True:
            await self._clock.sleep(_PING_SECONDS)
            try:
                if len(self._topics) and await self._session.is_watch_stale(_PING_RESPONSE_SECONDS):
                    # The process that held the watch is gone, although the connection, through a proxy, is open.
                    self.begin_again()
            except RemotingError as error:
                logger.debug("server lost: %s", error)
