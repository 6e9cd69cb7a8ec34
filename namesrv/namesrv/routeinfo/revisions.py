"""Which routes have changed since a client last asked?"""

from collections import deque
from collections.abc import Iterable
from typing import Final

# Topics that the change log remembers; who asks for changes before the oldest gets everything.
DEFAULT_LOG_TOPICS: Final = 200_000


class RouteRevisions:
    """Counts route changes, and knows for the latest of them which topics they touched."""

    def __init__(self, log_topics: int = DEFAULT_LOG_TOPICS) -> None:
        # the number of the last change
        self.revision = 0
        # changes up to this one are forgotten
        self.floor = 0
        self._log_topics = log_topics
        # topic -> the last change that touched it
        self._changed_at: dict[str, int] = {}
        # (change, its topics), oldest first
        self._log: deque[tuple[int, tuple[str, ...]]] = deque()

    def changed(self, topics: Iterable[str]) -> int:
        """Note one change of these topics; its number."""
        self.revision += 1
        noted = tuple(topics)
        self._changed_at.update(dict.fromkeys(noted, self.revision))
        self._log.append((self.revision, noted))
        while len(self._changed_at) > self._log_topics or len(self._log) > self._log_topics:
            self._forget_oldest()
        return self.revision

    def everything_changed(self) -> int:
        """Note a change that may have touched any topic; its number."""
        self.revision += 1
        self.floor = self.revision
        self._changed_at.clear()
        self._log.clear()
        return self.revision

    def changed_since(self, topics: Iterable[str], since: int) -> list[str] | None:
        """Those of the topics that changed after `since`; None when that is too long ago to know."""
        if since == self.revision:
            return []
        if since < self.floor or since > self.revision:
            return None
        changed_at = self._changed_at
        return [topic for topic in topics if changed_at.get(topic, 0) > since]

    def _forget_oldest(self) -> None:
        revision, topics = self._log.popleft()
        self.floor = revision
        for topic in topics:
            if self._changed_at.get(topic) == revision:
                del self._changed_at[topic]
