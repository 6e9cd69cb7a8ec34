"""Numbers of route changes, and which topics have changed since a client last asked."""

from collections.abc import Iterable
from typing import Final

# Topics whose last change is remembered, at the most; who asks for changes before the oldest of them gets everything.
DEFAULT_LOG_TOPICS: Final = 200_000


class RouteRevisions:
    """Counts route changes, and knows for each of many topics which was the last that touched it."""

    def __init__(self, log_topics: int = DEFAULT_LOG_TOPICS) -> None:
        # the number of the last change
        self.revision = 0
        # changes up to this one are forgotten
        self.floor = 0
        # Topic -> the last change that touched it. When the younger half is full it becomes the older one, which is
        # forgotten as a whole: nothing looks at each of a hundred thousand topics. Changes themselves are not kept: a
        # broker that flaps changes the same ten thousand topics over and over.
        self._younger: dict[str, int] = {}
        self._older: dict[str, int] = {}
        self._half = max(1, log_topics // 2)
        # the last change that is in the older half
        self._turned_at = 0

    def changed(self, topics: Iterable[str]) -> int:
        """Note one change of these topics; its number."""
        self.revision += 1
        self._younger.update(dict.fromkeys(topics, self.revision))
        if len(self._younger) > self._half:
            self._older, self._younger = self._younger, {}
            self.floor = max(self.floor, self._turned_at)
            self._turned_at = self.revision
        return self.revision

    def everything_changed(self) -> int:
        """Note a change that may have touched any topic; its number."""
        self.revision += 1
        self.floor = self._turned_at = self.revision
        self._younger.clear()
        self._older.clear()
        return self.revision

    def changed_since(self, topics: Iterable[str], since: int) -> list[str] | None:
        """Those of the topics that changed after `since`; None when that is too long ago to know."""
        if since == self.revision:
            return []
        if since < self.floor or since > self.revision:
            return None
        younger, older = self._younger.get, self._older.get
        return [topic for topic in topics if (younger(topic) or older(topic, 0)) > since]
