"""Counts pulls of topics that have a late broker, one whose next heartbeat is overdue."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv_remoting.bodies.base import Steps, chunked

# Silence in heartbeat intervals after which a broker is late: it has lost one heartbeat, or is dead.
LATE_PERIODS: Final = 1.5
# The assumed number of heartbeats in an expiry until a broker's interval is known, as with 30 s in 120 s.
_PERIODS_PER_EXPIRY: Final = 4
# Weight of one interval in the estimate. A longer time than twice the estimate may be a silence, and counts as twice
# the estimate.
_WEIGHT: Final = 0.25
# Topics that are processed in one step, which takes a fraction of a millisecond.
_STEP_TOPICS: Final = 5_000
# Brokers that are checked in one step, which takes about half a millisecond.
_STEP_BROKERS: Final = 500


class LateBrokers:
    """The topics that have a late broker, and the number of their pulls."""

    def __init__(self, tables: RouteTables) -> None:
        # empty while no broker is late
        self.topics: set[str] = set()
        # pulls of these topics since the last `take`
        self.pulls: Counter[str] = Counter()
        self._tables = tables
        self._periods: dict[BrokerAddrInfo, float] = {}
        # time of each broker's last heartbeat at the last update
        self._seen_at: dict[BrokerAddrInfo, float] = {}
        # names of the late brokers and revision of the tables from which `topics` was made
        self._made_of: tuple[set[str], int] = (set(), 0)

    def left(self, key: BrokerAddrInfo) -> None:
        """Forget a broker that has left."""
        self._periods.pop(key, None)
        self._seen_at.pop(key, None)

    def update(self, now: float) -> Steps[None]:
        """Find the late brokers and their topics, about once a second; in steps, since both may be very many."""
        late: set[str] = set()
        table = self._tables.broker_live_table
        for keys in chunked(list(table), _STEP_BROKERS):
            late.update(table[key].broker_name for key in keys if key in table and self._is_late(key, table[key], now))
            yield
        made_of = (late, self._tables.revisions.revision)
        if made_of == self._made_of or not (late or self.topics):
            return
        late_topics: set[str] = set()
        for name in late:
            # Copies, because the tables may change between two steps.
            for part in chunked(list(self._tables.topics.of_broker.get(name, ())), _STEP_TOPICS):
                late_topics.update(part)
                self.topics.update(part)
                yield
        for part in chunked(list(self.topics), _STEP_TOPICS):
            self.topics.difference_update(topic for topic in part if topic not in late_topics)
            yield
        self._made_of = made_of

    def _is_late(self, key: BrokerAddrInfo, live: BrokerLiveInfo, now: float) -> bool:
        period = self._period(key, live.last_update) or live.expiry_seconds / _PERIODS_PER_EXPIRY
        return now - live.last_update > LATE_PERIODS * period

    def _period(self, key: BrokerAddrInfo, last_update: float) -> float | None:
        """Estimate a broker's interval from the heartbeats at two updates, so that heartbeats themselves stay cheap."""
        before, period = self._seen_at.get(key), self._periods.get(key)
        if before != last_update:
            self._seen_at[key] = last_update
            if before is not None:
                interval = last_update - before
                period = interval if period is None else period + _WEIGHT * (min(interval, 2 * period) - period)
                self._periods[key] = period
        return period

    def take(self, topics: Collection[str] | None = None) -> list[tuple[str, int]]:
        """Remove and return the pull counts of these topics (None: all)."""
        taken = list(self.pulls) if topics is None else [topic for topic in self.pulls if topic in topics]
        return [(topic, self.pulls.pop(topic)) for topic in taken]
