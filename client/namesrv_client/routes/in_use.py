"""The topics in use, and the application of responses to the cache: the changes are announced to the client."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from namesrv_client.routes.cache import KnownRoutes
from namesrv_client.routes.response import RouteResponse
from namesrv_client.routes.route import RouteChange, Source


class TopicsInUse:
    """The topics whose routes polls and watches keep fresh, and the cache with the routes.

    A topic comes into use when the application has got its route, and goes out of use when the application forgets it.
    """

    def __init__(self, cache: KnownRoutes, changed: Callable[[RouteChange], None]) -> None:
        self.cache = cache
        # called with each change of a route
        self._changed = changed
        # requested topics that have had a route, and missing topics for which the application uses queues of the
        # default topic
        self._topics: set[str] = set()
        # set when the current watch has to end, because the next one names more topics or goes to another boot
        self.watch_again = asyncio.Event()

    def __repr__(self) -> str:
        return f"<TopicsInUse [{len(self._topics)} topics | {self.cache!r}]>"

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    def polled(self) -> list[str]:
        """The topics that a poll names; the sync point drops all others."""
        self.cache.point.retain(self._topics)
        return sorted(self._topics)

    def watched(self) -> list[str]:
        """The topics that a watch names.

        Topics to request again are left to the poll: the server would answer or refuse each watch of them at once.
        """
        return sorted(self._topics - self.cache.to_request_again)

    def of_brokers(self, brokers: Collection[str]) -> list[str]:
        """The topics whose route has one of the brokers."""
        return sorted(self.cache.topics_of(brokers) & self._topics)

    def use(self, topic: str) -> None:
        """Begin to keep a topic up to date."""
        if topic not in self._topics:
            self._topics.add(topic)
            self.watch_again.set()

    def forget(self, topic: str) -> None:
        """Stop keeping a topic up to date, and drop its route."""
        self._topics.discard(topic)
        self.cache.forget(topic)

    def leave_to_poll(self, topics: Collection[str]) -> None:
        """Leave topics out of the watch until a response for them is accepted, because a server refuses them."""
        self.cache.to_request_again.update(self._topics.intersection(topics))

    def refreshed(self, source: Source, response: RouteResponse) -> None:
        """Apply the response to a poll, a watch or another request that keeps routes fresh; announce the changes."""
        if not self._topics.issuperset(response.topics):
            # The application has forgotten some topics since the request was sent.
            routes = {topic: route for topic, route in response.routes.items() if topic in self._topics}
            response = replace(response, topics=sorted(self._topics.intersection(response.topics)), routes=routes)
        self.announce(self._apply(source, response, is_sync=True))

    def fetched(self, response: RouteResponse) -> list[RouteChange]:
        """Apply the response to the first request for topics; return the changes, which the caller announces."""
        return self._apply("pull", response, is_sync=False)

    def _apply(self, source: Source, response: RouteResponse, *, is_sync: bool) -> list[RouteChange]:
        before = set(self.cache.to_request_again)
        changes = self.cache.apply(response, source, is_sync=is_sync)
        if before - self.cache.to_request_again:
            # A response for a topic was accepted, so that the topic can return to the watch.
            self.watch_again.set()
        return changes

    def announce(self, changes: Iterable[RouteChange]) -> None:
        """Report changes to the client."""
        for change in changes:
            # A callback may have forgotten a topic whose change is still to be announced.
            if self.cache.get(change.topic) is not None:
                self._changed(change)
