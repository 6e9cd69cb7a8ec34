"""Pulls of topics that have a late broker: one that should have been heard from by now."""

from collections.abc import Iterable
from typing import Final

from namesrv.routeinfo.records import BrokerAddrInfo
from namesrv.routeinfo.tables import RouteTables

# Silence in usual periods after which a broker is late: one heartbeat was lost, or it is dead.
LATE_PERIODS: Final = 1.5
# Before a broker has shown its period: four heartbeats fit into an expiry, as with 30 s in 120 s.
_PERIODS_PER_EXPIRY: Final = 4
# How much one gap counts in the estimate. A gap longer than twice the estimate is a silence, not a period.
_WEIGHT: Final = 0.25


class LateBrokers:
    """Counts the pulls of topics that have a late broker; `topics` is what the fast lane looks into."""

    def __init__(self, tables: RouteTables) -> None:
        # topic -> pulls since they were last taken; empty as long as nobody is late
        self.topics: dict[str, int] = {}
        # the same, of topics that have no late broker any more
        self._untaken: dict[str, int] = {}
        self._tables = tables
        self._periods: dict[BrokerAddrInfo, float] = {}
        # when each broker had been heard, the last time we looked
        self._heard_at: dict[BrokerAddrInfo, float] = {}
        # the broker names that `topics` is made of
        self._late: frozenset[str] = frozenset()

    def _heard(self, key: BrokerAddrInfo, last_update: float) -> None:
        """Learn from the time between two looks: heartbeats themselves have to stay cheap."""
        before = self._heard_at.get(key)
        if before == last_update:
            return
        self._heard_at[key] = last_update
        if before is None:
            return
        gap, period = last_update - before, self._periods.get(key)
        self._periods[key] = gap if period is None else period + _WEIGHT * (min(gap, 2 * period) - period)

    def left(self, key: BrokerAddrInfo) -> None:
        """A broker is no longer known."""
        self._periods.pop(key, None)
        self._heard_at.pop(key, None)

    def update(self, now: float) -> None:
        """Look who is late; to be done every second or so."""
        periods, names = self._periods, set()
        for key, live in self._tables.broker_live_table.items():
            self._heard(key, live.last_update)
            if now - live.last_update > LATE_PERIODS * periods.get(key, live.expiry_seconds / _PERIODS_PER_EXPIRY):
                names.add(live.broker_name)
        late = frozenset(names)
        if not late and not self._late:
            return
        self._late = late
        topics_of_broker = self._tables.topics_of_broker
        before = dict(self.topics)
        # the same object: the fast lane holds it
        self.topics.clear()
        for name in late:
            self.topics.update((topic, before.pop(topic, 0)) for topic in topics_of_broker.get(name, ()))
        for topic, count in before.items():
            if count:
                self._untaken[topic] = self._untaken.get(topic, 0) + count

    def take(self, topics: Iterable[str] | None = None) -> list[tuple[str, int]]:
        """The topics (of these; None: all) that were pulled, with their counts, which begin anew."""
        taken: dict[str, int] = {}
        for counts in (self.topics, self._untaken):
            for topic in list(counts) if topics is None else counts.keys() & set(topics):
                if counts[topic]:
                    taken[topic] = taken.get(topic, 0) + counts[topic]
                    counts[topic] = 0
        if topics is None:
            self._untaken.clear()
        return list(taken.items())
