"""Counters of what has happened so far: everything that is not a number somewhere already."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from namesrv.histogram import WAIT_BOUNDS, Histogram
from namesrv.routeinfo.effects import Effect
from namesrv.routeinfo.records import Reason
from namesrv_runtime.write_state import WriteState

REASONS: Final[tuple[Reason, ...]] = ("silent", "disconnected", "unregistered", "superseded")
# The first is what comes in time.
LATENESS_BOUNDS: Final = (0.0, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 90.0, 300.0)
# finest where the default settings put a broker that died: 120 s, and up to 10 s until the scan
STALENESS_BOUNDS: Final = (0.1, 1.0, 5.0, 15.0, 30.0, 45.0, 60.0, 90.0, 120.0, 122.5, 125.0, 127.5, 130.0, 140.0, 300.0)
SCAN_BOUNDS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
REQUEST_BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Counters:
    """The counts of one run; as an observer of effects it counts those of brokers' lives."""

    def __init__(self) -> None:
        # by how much heartbeats came later than an interval after the last sign of life: those that did
        self.late_heartbeats = Histogram(LATENESS_BOUNDS)
        # the same of registrations that renewed one, in time or not
        self.renewals = Histogram(LATENESS_BOUNDS)
        # from a broker's last sign of life to its removal
        self.staleness: dict[Reason, Histogram] = {reason: Histogram(STALENESS_BOUNDS) for reason in REASONS}
        # late removals that a newer registration kept from doing anything
        self.fenced: Counter[Reason] = Counter()
        # attempts to take a live broker's place or to remove it, by what became of them
        self.takeovers: Counter[str] = Counter(warned=0, refused=0)
        # requests for more than the tables, a cluster or an account may hold: by class, reason and outcome
        self.quota_exceeded: Counter[tuple[str, str, str]] = Counter()
        # what effects add to, by the names that they say
        self._counters: dict[str, Counter[Any]] = {
            "fenced": self.fenced,
            "takeovers": self.takeovers,
            "quota_exceeded": self.quota_exceeded,
        }
        self._histograms: dict[str, Mapping[Any, Histogram]] = {
            "renewals": {None: self.renewals},
            "staleness": self.staleness,
        }
        # whether the last reload changed nothing, for something in it was wrong
        self.is_reload_refused = False
        # (serialize type, reason) of peers that broke a rule
        self.refusals: Counter[tuple[int, str]] = Counter()
        # by class: how long answers took that were no matter of a look-up
        self.requests: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(REQUEST_BOUNDS))
        # how late the loop was with what was due
        self.lag = Histogram(WAIT_BOUNDS)
        # searches for silent brokers, their wait for the lock and the evictions included
        self.scans = Histogram(SCAN_BOUNDS)
        # monotonic: the last sign of life of our own, and when the snapshot on disk was last known to be current
        self.last_tick: float | None = None
        self.snapshot_current_at: float | None = None
        self.snapshot_bytes = 0
        self.snapshot_writes = WriteState()
        # (path, status) of what was asked over HTTP
        self.http: Counter[tuple[str, int | str]] = Counter()

    def __repr__(self) -> str:
        evicted = sum(histogram.count for histogram in self.staleness.values())
        return f"<Counters [{self.late_heartbeats.count} late | {evicted} evicted | {self.fenced.total()} fenced]>"

    def __call__(self, effect: Effect) -> None:
        """Count an effect."""
        measured = effect.measured()
        if measured is None:
            return
        if measured.value is None:
            self._counters[measured.name][measured.label] += 1
        else:
            self._histograms[measured.name][measured.label].observe(measured.value)

    def refusals_by_reason(self) -> dict[str, int]:
        """Peers that broke a rule, by which."""
        found: Counter[str] = Counter()
        for (_, reason), count in self.refusals.items():
            found[reason] += count
        return found

    def lateness(self, heartbeats: int) -> Histogram:
        """By how much signs of life were late, of so many heartbeats and all renewals."""
        late, renewals = self.late_heartbeats, self.renewals
        found = Histogram(LATENESS_BOUNDS)
        found.counts = [heartbeat + renewal for heartbeat, renewal in zip(late.counts, renewals.counts, strict=True)]
        found.counts[0] += heartbeats - late.count
        found.sum = late.sum + renewals.sum
        return found

    def request_answered(self, kind: str, seconds: float) -> None:
        """Count an answer of the ordinary road."""
        self.requests[kind].observe(seconds)
