"""Revisions: numbers of route changes, by which a client's request finds the topics that changed since."""

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Final

from namesrv.routeinfo.tables.rows import CHUNK_TOPICS, RowChanges, TopicRow
from namesrv_remoting.bodies.base import Steps, chunked

# Number of topics without a route whose last change is remembered; a client whose revision is older than a dropped one
# gets all routes.
DEFAULT_SPARE_TOPICS: Final = 200_000


class RouteRevisions:
    """Counts route changes, and finds the last change of each topic.

    For a topic with a route, the row holds the revision, and so is found and changed with the topic.
    """

    def __init__(self, routed: Mapping[str, TopicRow], spare_topics: int = DEFAULT_SPARE_TOPICS) -> None:
        # The revision of the last change.
        self.revision = 0
        # Changes up to this revision are no longer known by topic.
        self.floor = 0
        self._routed = routed
        # Topic without a route -> revision of the change that removed it. An entry is ignored once its topic has a
        # route again; after large changes such entries are left.
        self._gone: dict[str, int] = {}
        # Large changes whose topics are not in `_gone` yet: a hundred thousand topics are not processed at once.
        self._large: list[tuple[int, RowChanges]] = []
        # The revision of the last small change.
        self._small = 0
        self._spare_topics = spare_topics

    def changed(self, row_changes: RowChanges) -> int:
        """Note a change whose rows are in the table; return its revision."""
        self.revision += 1
        for row in row_changes.made:
            row.revision = self.revision
        if len(row_changes.gone) > CHUNK_TOPICS:
            self._large.append((self.revision, row_changes))
        elif row_changes.gone:
            self._gone.update(dict.fromkeys(row_changes.gone, self.revision))
            self._small = self.revision
        if self._gone and len(row_changes.rows) <= CHUNK_TOPICS:
            # Topics with a route again leave `_gone`: the smaller it is, the quicker entries are added.
            for shared in chain.from_iterable(row_changes.chunks):
                if shared.before is None and shared.after is not None:
                    deque(map(self._gone.pop, shared.topics, repeat(None)), maxlen=0)
        return self.revision

    def everything_changed(self) -> int:
        """Note a change that may have touched any topic; return its revision."""
        self.revision += 1
        self.floor = self.revision
        return self.revision

    def settle(self) -> Steps[None]:
        """Enter large changes into `_gone`, and drop topics without a route if there are too many; in steps."""
        gone, routed = self._gone, self._routed
        while self._large:
            number, row_changes = self._large[0]
            for topics in chunked(row_changes.gone, CHUNK_TOPICS):
                if self._small > number:
                    # A later small change may have entered some of these topics already.
                    gone.update((topic, number) for topic in topics if gone.get(topic, 0) < number)
                else:
                    gone.update(zip(topics, repeat(number)))
                yield
            del self._large[0]
        if len(gone) > self._spare_topics:
            for chunk in chunked(list(gone), CHUNK_TOPICS):
                for topic in filter(routed.__contains__, chunk):
                    del gone[topic]
                yield
            # If more than half would be left, all are dropped: otherwise nearly every change would scan all of them.
            for chunk in chunked(list(gone) if len(gone) > self._spare_topics // 2 else (), CHUNK_TOPICS):
                self.floor = max(self.floor, *map(gone.pop, chunk))
                yield

    def last_change(self, topic: str) -> int:
        """Return the revision of a topic's last change, 0 if unknown."""
        return self.last_change_of(topic, self._routed.get(topic))

    def last_change_of(self, topic: str, row: TopicRow | None) -> int:
        """Return the revision of the last change of a topic whose row is `row`.

        The row in the table may be newer: a change is applied before it is noted here.
        """
        if row is not None:
            return row.revision
        latest = self._gone.get(topic, 0)
        for number, row_changes in self._large:
            if number > latest and topic in row_changes.rows:
                latest = number
        return latest

    def changed_since(self, topics: Iterable[str], since: int) -> list[str] | None:
        """Return the topics that changed after `since`; None if `since` is too old or of the future."""
        if since == self.revision:
            return []
        if since < self.floor or since > self.revision:
            return None
        last = self.last_change
        return [topic for topic in topics if last(topic) > since]
