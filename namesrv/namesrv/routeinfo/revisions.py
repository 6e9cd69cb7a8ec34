"""Revisions: which routes have changed since a client last asked."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

# Topics whose last change is remembered; who asks for changes before the oldest of them gets everything.
DEFAULT_LOG_TOPICS: Final = 200_000


class RouteRevisions:
    """Counts route changes, and knows for each of many topics which was the last that touched it."""

    def __init__(self, log_topics: int = DEFAULT_LOG_TOPICS) -> None:
        # the number of the last change
        self.revision = 0
        # changes up to this one are forgotten
        self.floor = 0
        self._log_topics = log_topics
        # topic -> the last change that touched it, longest ago first. Changes themselves are not kept: a broker that
        # flaps changes the same ten thousand topics over and over.
        self._changed_at: OrderedDict[str, int] = OrderedDict()

    def changed(self, topics: Iterable[str]) -> int:
        """Note one change of these topics; its number."""
        self.revision += 1
        changed_at = self._changed_at
        for topic in topics:
            changed_at[topic] = self.revision
            changed_at.move_to_end(topic)
        while len(changed_at) > self._log_topics:
            _, self.floor = changed_at.popitem(last=False)
        return self.revision

    def everything_changed(self) -> int:
        """Note a change that may have touched any topic; its number."""
        self.revision += 1
        self.floor = self.revision
        self._changed_at.clear()
        return self.revision

    def changed_since(self, topics: Iterable[str], since: int) -> list[str] | None:
        """Those of the topics that changed after `since`; None when that is too long ago to know."""
        if since == self.revision:
            return []
        if since < self.floor or since > self.revision:
            return None
        changed_at = self._changed_at
        return [topic for topic in topics if changed_at.get(topic, 0) > since]
