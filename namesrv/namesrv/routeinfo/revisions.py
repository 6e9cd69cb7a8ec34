"""Numbers of route changes, and which topics have changed since a client last asked."""

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Final

from namesrv.routeinfo.rows import RowChanges, TopicRow
from namesrv_remoting.bodies.base import Steps, parts

# Of at most so many topics without a route the last change is remembered; a client that asks for changes since before a
# forgotten one gets everything.
DEFAULT_SPARE_TOPICS: Final = 200_000
# Topics that are looked at in one step: a fraction of a millisecond.
STEP_TOPICS: Final = 2_000


class RouteRevisions:
    """Counts route changes, and knows for each topic which was the last that touched it.

    That of a topic with a route is in its row, and so is found and changed with it.
    """

    def __init__(self, routed: Mapping[str, TopicRow], spare_topics: int = DEFAULT_SPARE_TOPICS) -> None:
        # the number of the last change
        self.revision = 0
        # changes up to this one are forgotten
        self.floor = 0
        self._routed = routed
        # topic that had no route after a change -> the last such change; means nothing once it has one again, and is
        # left only where that was one of many
        self._gone: dict[str, int] = {}
        # large changes whose topics have yet to be entered there: nothing looks at each of a hundred thousand at once
        self._large: list[tuple[int, RowChanges]] = []
        # the number of the last small one
        self._small = 0
        self._spare_topics = spare_topics

    def changed(self, row_changes: RowChanges) -> int:
        """Note one change, whose rows are in the table; its number."""
        self.revision += 1
        for row in row_changes.made:
            row.revision = self.revision
        if len(row_changes.gone) > STEP_TOPICS:
            self._large.append((self.revision, row_changes))
        elif row_changes.gone:
            self._gone.update(dict.fromkeys(row_changes.gone, self.revision))
            self._small = self.revision
        if self._gone and len(row_changes.rows) <= STEP_TOPICS:
            # the fewer are left there, the quicker the next ones are entered
            for alike in chain.from_iterable(row_changes.batches):
                if alike.before is None and alike.after is not None:
                    deque(map(self._gone.pop, alike.topics, repeat(None)), maxlen=0)
        return self.revision

    def everything_changed(self) -> int:
        """Note a change that may have touched any topic; its number."""
        self.revision += 1
        self.floor = self.revision
        return self.revision

    def settle(self) -> Steps[None]:
        """Enter large changes, and forget topics that have no route if there are too many; one at a time, in steps."""
        gone, routed = self._gone, self._routed
        while self._large:
            number, row_changes = self._large[0]
            for part in parts(row_changes.gone, STEP_TOPICS):
                if self._small > number:
                    # a small change has come in between, perhaps of one of these
                    part = tuple(topic for topic in part if gone.get(topic, 0) < number)  # noqa: PLW2901
                gone.update(zip(part, repeat(number)))
                yield
            del self._large[0]
        if len(gone) > self._spare_topics:
            for part in parts(list(gone), STEP_TOPICS):
                for topic in filter(routed.__contains__, part):
                    del gone[topic]
                yield
            # if half is left, all go: or nearly every change would have to look at all of them
            for part in parts(list(gone) if len(gone) > self._spare_topics // 2 else (), STEP_TOPICS):
                self.floor = max(self.floor, *map(gone.pop, part))
                yield

    def last_change(self, topic: str) -> int:
        """The last change that touched a topic, 0 if none is known."""
        return self.last_change_of(topic, self._routed.get(topic))

    def last_change_of(self, topic: str, row: TopicRow | None) -> int:
        """The same for a topic that has this row, or had it before a change that is not noted yet."""
        if row is not None:
            return row.revision
        found = self._gone.get(topic, 0)
        for number, row_changes in self._large:
            if number > found and topic in row_changes.rows:
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
