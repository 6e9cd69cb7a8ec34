"""The first requests for routes: callers wait for them, and share them."""

import asyncio
from collections.abc import Mapping

from namesrv_client.routes.in_use import TopicsInUse
from namesrv_client.routes.response import RouteResponse
from namesrv_client.routes.route import Route, RouteError, RouteUnavailableError, TopicNotFoundError
from namesrv_client.routes.session import ServerSession
from namesrv_remoting.bodies.topic import MAX_TOPIC_CHARACTERS


class RouteFetches:
    """Requests routes of topics that are unknown or too old, each once for all of its callers.

    There is one request for all topics that are requested in one iteration of the loop.
    """

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
            reasons = await self._session.fetch(
                list(sent), self._received, to_request_again=self._topics.cache.to_request_again
            )
        finally:
            for topic, waiting in sent.items():
                # In `finally`, so that no caller waits for ever after an unexpected error.
                if not waiting.done():
                    self._fail(topic, RouteUnavailableError(f"topic {topic}: {reasons.get(topic, 'no response')}"))

    def _received(self, response: RouteResponse) -> None:
        """Apply a response; callers get their routes or errors, unless another server may know more."""
        for topic, route in response.routes.items():
            if route is not None:
                # Before the change is announced, because a listener may request the topic.
                self._topics.use(topic)
        changes = self._topics.fetched(response)
        for topic in response.routes:
            if self._topics.cache.get(topic) is None and topic not in self._topics:
                # The topic has joined the sync point, but no further request will name it.
                self._topics.cache.forget(topic)
            if not self._may_get_more(topic, response):
                self._finish(topic)
        # The changes are announced last, because a listener may forget a topic whose route was just found.
        self._topics.announce(changes)

    def _may_get_more(self, topic: str, response: RouteResponse) -> bool:
        """True if another server may have the topic, or brokers that the response lacks."""
        known = self._topics.cache.get(topic)
        if known is not None and known.confirmed_absent_since is not None:
            # An accepted response, this one or an earlier one, has reported the absence.
            return False
        if topic in self._topics.cache.to_request_again:
            # The response was not accepted.
            return True
        return response.routes[topic] is None and not response.knows_all_topics

    def _finish(self, topic: str) -> None:
        """Pass the cached route to the callers, or an error if the topic does not exist."""
        known = self._topics.cache.get(topic)
        if known is None:
            reason = f"topic {topic} does not exist, according to {self._session.chosen}"
            self._fail(topic, TopicNotFoundError(reason))
            return
        waiting = self._waiting.pop(topic, None)
        if waiting is not None and not waiting.done():
            # A topic whose cached route is marked as absent comes into use here.
            self._topics.use(topic)
            waiting.set_result(known)

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
