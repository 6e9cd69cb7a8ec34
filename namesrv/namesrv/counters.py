"""Counters of past events that no other object counts."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from namesrv.histogram import WAIT_BOUNDS, Histogram
from namesrv.routeinfo.tables.effects import Effect, Registered
from namesrv.routeinfo.tables.records import Reason
from namesrv_runtime.write_state import WriteState

REASONS: Final[tuple[Reason, ...]] = ("silent", "disconnected", "unregistered", "superseded")
# The first bound counts heartbeats in time.
LATENESS_BOUNDS: Final = (0.0, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 90.0, 300.0)
# The bounds are finest where the default settings put a dead broker: 120 s, and up to 10 s until the scan.
STALENESS_BOUNDS: Final = (0.1, 1.0, 5.0, 15.0, 30.0, 45.0, 60.0, 90.0, 120.0, 122.5, 125.0, 127.5, 130.0, 140.0, 300.0)
SCAN_BOUNDS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
REQUEST_BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Counters:
    """The counters of one boot; the object is called with each effect and counts it."""

    def __init__(self) -> None:
        # Lateness of heartbeats that came more than an interval after the last heartbeat; heartbeats in time are left
        # out.
        self.late_heartbeats = Histogram(LATENESS_BOUNDS)
        # Registrations, renewals included.
        self.registrations = 0
        # Lateness of registrations that renewed one, including those in time.
        self.renewals = Histogram(LATENESS_BOUNDS)
        # Time from a broker's last heartbeat to its removal.
        self.staleness: dict[Reason, Histogram] = {reason: Histogram(STALENESS_BOUNDS) for reason in REASONS}
        # Removals that were ignored, by the reason of the removal.
        self.fenced: Counter[Reason] = Counter()
        # Attempts to take a live broker's place or to remove it, by outcome.
        self.takeovers: Counter[str] = Counter(warned=0, refused=0)
        # Requests beyond a limit of the tables or a quota of a cluster or account: by class, reason and outcome.
        self.quota_exceeded: Counter[tuple[str, str, str]] = Counter()
        # Counters by the names that effects use in `measured`.
        self._counters: dict[str, Counter[Any]] = {
            "fenced": self.fenced,
            "takeovers": self.takeovers,
            "quota_exceeded": self.quota_exceeded,
        }
        self._histograms: dict[str, Mapping[Any, Histogram]] = {
            "renewals": {None: self.renewals},
            "staleness": self.staleness,
        }
        # True if the last reload changed nothing because of an error in it.
        self.is_reload_refused = False
        # Peers that broke a rule, by (serialize type, reason).
        self.refusals: Counter[tuple[int, str]] = Counter()
        # Response times of the dispatcher, by sender of the request (broker, client, admin), `watch` or `unknown`; the
        # fast path is too short to be timed.
        self.requests: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(REQUEST_BOUNDS))
        # Lag of the event loop.
        self.lag = Histogram(WAIT_BOUNDS)
        # Duration of scans for silent brokers, including their wait for the lock and the evictions.
        self.scans = Histogram(SCAN_BOUNDS)
        # Monotonic times of the last housekeeping tick, and when the snapshot on disk was last known to be current.
        self.last_tick: float | None = None
        self.snapshot_current_at: float | None = None
        self.snapshot_bytes = 0
        self.snapshot_writes = WriteState()
        # Number of HTTP requests by (path, status).
        self.http: Counter[tuple[str, int | str]] = Counter()

    def __repr__(self) -> str:
        evicted = sum(histogram.count for histogram in self.staleness.values())
        return f"<Counters [{self.late_heartbeats.count} late | {evicted} evicted | {self.fenced.total()} fenced]>"

    def __call__(self, effect: Effect) -> None:
        """Count an effect."""
        self.registrations += isinstance(effect, Registered)
        measured = effect.measured()
        if measured is None:
            return
        if measured.value is None:
            self._counters[measured.name][measured.label] += 1
        else:
            self._histograms[measured.name][measured.label].observe(measured.value)

    def refusals_by_reason(self) -> dict[str, int]:
        """Return the number of peers that broke a rule, by rule."""
        totals: Counter[str] = Counter()
        for (_, reason), count in self.refusals.items():
            totals[reason] += count
        return totals

    def lateness(self, heartbeats: int) -> Histogram:
        """Return the lateness of all heartbeats and renewals; `heartbeats` is the number of heartbeats."""
        late, renewals = self.late_heartbeats, self.renewals
        histogram = Histogram(LATENESS_BOUNDS)
        histogram.counts = [
            heartbeat + renewal for heartbeat, renewal in zip(late.counts, renewals.counts, strict=True)
        ]
        histogram.counts[0] += heartbeats - late.count
        histogram.sum = late.sum + renewals.sum
        return histogram

    def responses(self) -> Histogram:
        """Return the response times of all responses of the dispatcher."""
        histogram = Histogram(REQUEST_BOUNDS)
        columns = zip(histogram.counts, *(one.counts for one in self.requests.values()), strict=True)
        histogram.counts = [sum(counts) for counts in columns]
        histogram.sum = sum(one.sum for one in self.requests.values())
        return histogram

    def request_answered(self, kind: str, seconds: float) -> None:
        """Count a response of the dispatcher; `kind` is the key in `requests`."""
        self.requests[kind].observe(seconds)
