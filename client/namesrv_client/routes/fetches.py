"""The first requests for routes: callers wait for them, and share them."""

import asyncio
from collections.abc import Mapping

from namesrv_client.routes.in_use import TopicsInUse
from namesrv_client.routes.response import RouteResponse
from namesrv_client.routes.route import Route, RouteError, RouteUnavailableError, TopicNotFoundError
from namesrv_client.routes.session import ServerSession
from namesrv_remoting.bodies.topic import MAX_TOPIC_CHARACTERS


class RouteFetches:
    """Requests routes of topics that are unknown or too old: once for all callers, and for all topics of the moment."""

    def __init__(self, session: ServerSession, topics: TopicsInUse) -> None:
        self._session = session
        self._topics = topics
        # topic -> the future that its callers wait for
        self._waiting: dict[str, asyncio.Future[Route]] = {}
        # topics of `_waiting` that are in no request yet
        self._unsent: dict[str, asyncio.Future[Route]] = {}
        self._requests: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<RouteFetches [{len(self)} topics, {len(self._unsent)} unsent]>"

    def __len__(self) -> int:
        """Number of topics for which callers wait."""
        return len(self._waiting)

    async def close(self) -> None:
        """End all requests under way; callers that wait for them get a RouteUnavailableError."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()
        for request in self._requests:
            request.cancel()
        if self._requests:
            await asyncio.wait(self._requests)

    async def fetch(self, topic: str) -> Route:
        """The route of a topic from a server. Raises RouteError, or ValueError for an invalid name."""
        waiting = self._waiting.get(topic)
        if waiting is None:
            _check_name(topic)
            if not self._unsent:
                # The request is sent once all tasks that run now have added their topics.
                request = asyncio.create_task(self._send())
                self._requests.add(request)
                request.add_done_callback(self._requests.discard)
            waiting = self._waiting[topic] = self._unsent[topic] = asyncio.get_running_loop().create_future()
        # asyncio.wait, because awaiting the future would cancel it for all callers when one caller is cancelled.
        await asyncio.wait([waiting])
        if waiting.cancelled():
            raise RouteUnavailableError(f"topic {topic}: the client is closed")
        return waiting.result()

    async def _send(self) -> None:
        """Request all topics that are in no request yet."""
        sent, self._unsent = self._unsent, {}
        reasons: Mapping[str, str] = {}
        try:
            reasons = await self._session.routes(list(sent), self._answered, rejected=self._topics.cache.unconfirmed)
        finally:
            for topic, waiting in sent.items():
                # In `finally`, so that no caller waits for ever after an unexpected error.
                if not waiting.done():
                    self._fail(topic, RouteUnavailableError(f"topic {topic}: {reasons.get(topic, 'no answer')}"))

    def _answered(self, response: RouteResponse) -> None:
        """Apply a response; callers get their routes or errors, unless another server may know more."""
        topics, cache = self._topics, self._topics.cache
        for topic, route in response.routes.items():
            if route is not None:
                # Before the change is announced, because a listener may request the topic.
                topics.use(topic)
        changes = topics.fetched(response)
        for topic, route in response.routes.items():
            known = cache.get(topic)
            is_absent = known is not None and known.confirmed_absent_since is not None
            if known is None and topic not in topics:
                # The topic has joined the sync point, but no further request will name it.
                cache.forget(topic)
            is_undecided = topic in cache.unconfirmed or (route is None and not response.knows_all_topics)
            if is_undecided and not is_absent:
                # Another server may have the topic, or all of its brokers.
                continue
            if known is None:
                reason = f"topic {topic} does not exist, according to {self._session.chosen}"
                self._fail(topic, TopicNotFoundError(reason))
            elif (waiting := self._waiting.pop(topic, None)) is not None and not waiting.done():
                # The first loop leaves out topics whose known route is marked as absent.
                topics.use(topic)
                waiting.set_result(known)
        # The changes are announced last, because a listener may forget a topic whose route was just found.
        topics.announce(changes)

    def _fail(self, topic: str, error: RouteError) -> None:
        waiting = self._waiting.pop(topic, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
            # The exception is read so that asyncio does not report it when all callers have been cancelled.
            waiting.exception()


def _check_name(topic: str) -> None:
    """Raise a ValueError for a name that would fail a request for all of its topics."""
    if not 1 <= len(topic) <= MAX_TOPIC_CHARACTERS:
        raise ValueError(f"topic name of {len(topic)} characters: must have 1 to {MAX_TOPIC_CHARACTERS}")
    try:
        topic.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"topic {topic!a} is not valid Unicode: {error.reason}") from error
