"""Numbers of route changes, and which topics have changed since a client last asked."""

from collections.abc import Collection, Iterable
from itertools import repeat
from typing import Final

from namesrv_remoting.bodies.base import Steps, parts

# Of at most so many topics without a route the last change is remembered; a client that asks for changes since before a
# forgotten one gets everything.
DEFAULT_SPARE_TOPICS: Final = 200_000
# Topics that are looked at in one step: a fraction of a millisecond.
STEP_TOPICS: Final = 2_000


class RouteRevisions:
    """Counts route changes, and knows for each topic which was the last that touched it."""

    def __init__(self, spare_topics: int = DEFAULT_SPARE_TOPICS) -> None:
        # the number of the last change
        self.revision = 0
        # changes up to this one are forgotten
        self.floor = 0
        # topic -> the last change that touched it
        self._last: dict[str, int] = {}
        # large changes that have yet to be entered there (number, topics): nothing looks at each of a hundred thousand
        # topics at once
        self._large: list[tuple[int, Collection[str]]] = []
        # the number of the last small one
        self._small = 0
        self._spare_topics = spare_topics

    def changed(self, topics: Collection[str]) -> int:
        """Note one change of these topics, which stay as they are; its number."""
        self.revision += 1
        if len(topics) > STEP_TOPICS:
            self._large.append((self.revision, topics))
        else:
            self._last.update(dict.fromkeys(topics, self.revision))
            self._small = self.revision
        return self.revision

    def everything_changed(self) -> int:
        """Note a change that may have touched any topic; its number."""
        self.revision += 1
        self.floor = self.revision
        return self.revision

    def settle(self, routed: Collection[str]) -> Steps[None]:
        """Enter large changes, and forget topics that have no route if there are too many; one at a time, in steps."""
        last = self._last
        while self._large:
            number, topics = self._large[0]
            for part in parts(topics, STEP_TOPICS):
                if self._small > number:
                    # a small change has come in between, perhaps of one of these
                    part = tuple(topic for topic in part if last.get(topic, 0) < number)  # noqa: PLW2901
                last.update(zip(part, repeat(number)))
                yield
            del self._large[0]
        if len(last) > len(routed) + self._spare_topics:
            for part in parts(list(last), STEP_TOPICS):
                for topic in part:
                    if topic not in routed:
                        self.floor = max(self.floor, last.pop(topic))
                yield

    def last_change(self, topic: str) -> int:
        """The last change that touched a topic, 0 if none is known."""
        found = self._last.get(topic, 0)
        for number, topics in self._large:
            if number > found and topic in topics:
                found = number
        return found

    def changed_since(self, topics: Iterable[str], since: int) -> list[str] | None:
        """Those of the topics that changed after `since`; None when that is too long ago to know."""
        if since == self.revision:
            return []
        if since < self.floor or since > self.revision:
            return None
        last = self.last_change
        return [topic for topic in topics if last(topic) > since]
