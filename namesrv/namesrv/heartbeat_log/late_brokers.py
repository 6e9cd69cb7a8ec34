"""Pulls of topics that have a late broker: one that should have been heard from by now."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from namesrv.routeinfo.records import BrokerAddrInfo
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.bodies.base import Steps, parts

# Silence in usual periods after which a broker is late: one heartbeat was lost, or it is dead.
LATE_PERIODS: Final = 1.5
# Before a broker has shown its period: four heartbeats fit into an expiry, as with 30 s in 120 s.
_PERIODS_PER_EXPIRY: Final = 4
# How much one gap counts in the estimate. A gap longer than twice the estimate is a silence, not a period.
_WEIGHT: Final = 0.25
# Topics that are looked at in one step: a fraction of a millisecond.
_STEP_TOPICS: Final = 5_000


class LateBrokers:
    """The topics that have a late broker, and how often they were pulled."""

    def __init__(self, tables: RouteTables) -> None:
        # empty as long as nobody is late; the same object all the time, since the fast path holds it
        self.topics: set[str] = set()
        # pulls of such topics since they were last taken
        self.pulls: Counter[str] = Counter()
        self._tables = tables
        self._periods: dict[BrokerAddrInfo, float] = {}
        # when each broker had been heard, the last time we looked
        self._heard_at: dict[BrokerAddrInfo, float] = {}
        # the broker names that `topics` is made of, and the revision of the tables then
        self._made_of: tuple[set[str], int] = (set(), 0)

    def left(self, key: BrokerAddrInfo) -> None:
        """A broker is no longer known."""
        self._periods.pop(key, None)
        self._heard_at.pop(key, None)

    def update(self, now: float) -> Steps[None]:
        """Look who is late; to be done every second or so, in steps: they may have a million topics."""
        late = set()
        for key, live in self._tables.broker_live_table.items():
            period = self._period(key, live.last_update) or live.expiry_seconds / _PERIODS_PER_EXPIRY
            if now - live.last_update > LATE_PERIODS * period:
                late.add(live.broker_name)
        made_of = (late, self._tables.revisions.revision)
        if made_of == self._made_of or not (late or self.topics):
            return
        found: set[str] = set()
        for name in late:
            # copies: they may change between two steps
            for part in parts(list(self._tables.topics_of_broker.get(name, ())), _STEP_TOPICS):
                found.update(part)
                self.topics.update(part)
                yield
        for part in parts(list(self.topics), _STEP_TOPICS):
            self.topics.difference_update(topic for topic in part if topic not in found)
            yield
        self._made_of = made_of

    def _period(self, key: BrokerAddrInfo, last_update: float) -> float | None:
        """Learn from the time between two looks: heartbeats themselves have to stay cheap."""
        before, period = self._heard_at.get(key), self._periods.get(key)
        if before != last_update:
            self._heard_at[key] = last_update
            if before is not None:
                gap = last_update - before
                period = gap if period is None else period + _WEIGHT * (min(gap, 2 * period) - period)
                self._periods[key] = period
        return period

    def take(self, topics: Collection[str] | None = None) -> list[tuple[str, int]]:
        """The topics (of these; None: all) that were pulled, with their counts, which begin anew."""
        found = list(self.pulls) if topics is None else [topic for topic in self.pulls if topic in topics]
        return [(topic, self.pulls.pop(topic)) for topic in found]
