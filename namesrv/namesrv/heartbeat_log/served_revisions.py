"""The revision of each route that each connection got last, so that the heartbeat log has a line only for a new one."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from namesrv.net.request import Connection

# (connection, topic) pairs remembered as served. At the limit the oldest record is emptied, and some responses to its
# connection are logged twice.
MAX_SERVED_PAIRS: Final = 500_000
# Pairs that are forgotten at once at most: about 3 ms. All 500,000 pairs would take 20 to 50 ms.
FORGOTTEN_AT_ONCE: Final = 50_000


class ServedRevisions:
    """What each connection got last: a record for each, `Peer.served`, in which each topic with its revision is a pair.

    The number of pairs is limited, and the records of closed connections are forgotten.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        # topic -> the one string of its name that all records share
        self._names = names
        # The records with pairs by connection id, the oldest first, and the number of pairs in them.
        self._records: OrderedDict[int, dict[str, int]] = OrderedDict()
        self._pairs = 0

    def __repr__(self) -> str:
        return f"<ServedRevisions [{self._pairs} pairs of {len(self._records)} connections]>"

    def note(self, connection: Connection, topic: str, revision: int) -> bool:
        """Note the revision of a topic that a connection gets; True if its last one was another."""
        record = self._record(connection)
        before = record.get(topic)
        if before == revision:
            return False
        self._pairs += before is None
        record[self._names.get(topic, topic)] = revision
        return True

    def note_many(self, connection: Connection, revisions: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Note the revisions of topics that a connection gets; return the pairs whose last revision was another.

        A topic that never had a route has no revision, 0, and is left out.
        """
        record, names = self._record(connection), self._names
        new = [
            (names.get(topic, topic), revision)
            for topic, revision in revisions
            if revision and revision != record.get(topic)
        ]
        self._pairs += sum(topic not in record for topic, _ in new)
        record.update(new)
        return new

    def forget(self, connection: Connection) -> bool:
        """Forget a connection that has closed; True if it got any route."""
        record = connection.peer.served
        if record is None:
            return False
        self._records.pop(connection.id, None)
        self._pairs -= len(record)
        connection.peer.served = None
        return True

    def _record(self, connection: Connection) -> dict[str, int]:
        while self._pairs >= MAX_SERVED_PAIRS:
            self._forget_first()
        record = connection.peer.served
        if record is None:
            record = connection.peer.served = {}
        # A record that was emptied comes back as the newest.
        return self._records.setdefault(connection.id, record)

    def _forget_first(self) -> None:
        """Empty the record that was begun first, in use or not, or remove the first pairs of a very large one."""
        connection_id, record = next(iter(self._records.items()))
        self._pairs -= min(len(record), FORGOTTEN_AT_ONCE)
        if len(record) > FORGOTTEN_AT_ONCE:
            for topic in list(islice(record, FORGOTTEN_AT_ONCE)):
                del record[topic]
        else:
            record.clear()
            del self._records[connection_id]
