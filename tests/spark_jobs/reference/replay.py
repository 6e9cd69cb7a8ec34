"""Replays: the evictions under other settings, and under the logged ones."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product
from typing import Any

from namesrv_spark_jobs.options import WhatIf
from tests.spark_jobs.reference.lines import HEARTBEATS, MICROSECONDS, Boot, Line
from tests.spark_jobs.reference.registration_periods import is_same_process, lines_of_brokers, next_of_same

# Phases of a client's next poll, as fractions of the poll interval.
PHASES = 10

# (cluster, address)
Key = tuple[str, str]
# (deadline, broker) -> the first scan strictly afterwards in liveness time, and its number in the log.
Scans = Callable[[float, Key], tuple[int, int | None] | None]


def even_scans(boot: Boot, interval: int) -> Scans:
    """Scans at every interval from the boot's start to its last line, inclusive."""
    start = boot.live[next(iter(boot.of("start") or boot.of("scan") or [boot.first])).seq]
    end = boot.live[boot.last.seq]

    def first_after(deadline: float, _key: Key) -> tuple[int, int | None] | None:
        at = start + max(0, math.floor((deadline - start) / interval) + 1) * interval
        return (at, None) if at <= end else None

    return first_after


def logged_scans(boot: Boot) -> Scans:
    """The logged scans; a scan does not count for brokers whose removal was fenced."""
    fenced = {
        (line.get("cluster"), line.get("broker_addr"), line.get("scan"))
        for line in boot.of("fenced")
        if line.get("reason") == "silent"
    }
    # Liveness time never runs backwards, but a damaged log may claim so.
    scans = sorted((boot.live[line.seq], line) for line in boot.of("scan"))
    times = [at for at, _ in scans]

    def first_after(deadline: float, key: Key) -> tuple[int, int | None] | None:
        later = islice(scans, bisect_right(times, deadline), None)
        return next(((at, line.get("scan")) for at, line in later if (*key, line.get("scan")) not in fenced), None)

    return first_after


@dataclass(frozen=True, slots=True)
class Eviction:
    """One eviction of the replay; liveness time."""

    boot: Boot
    key: Key
    period: int
    heartbeat: Line
    at: int
    # Number of the scan in the log; None for calculated scans.
    scan: int | None
    is_false: bool

    @property
    def staleness(self) -> int:
        """The time since the broker's last heartbeat."""
        return self.at - self.boot.live[self.heartbeat.seq]


def replay(boot: Boot, expiry: int | None, scans: Scans) -> list[Eviction]:
    """The evictions of one boot under this expiry, or None: under that of each heartbeat."""
    brokers = lines_of_brokers(boot).items()
    return [eviction for key, lines in brokers for eviction in _evictions(boot, key, lines, expiry, scans)]


def _evictions(boot: Boot, key: Key, lines: Sequence[Line], expiry: int | None, scans: Scans) -> Iterator[Eviction]:
    live = boot.live
    heartbeats = [number for number, line in enumerate(lines) if line.event in HEARTBEATS]
    # Number of earlier registration periods.
    period = heartbeats[0] if heartbeats else 0
    for here, there in pairwise([*heartbeats, len(lines)]):
        heartbeat, between = lines[here], lines[here + 1 : there]
        ends = _ends_of_silence(boot, lines, here, there)
        deadline = _deadline(boot, heartbeat, expiry)
        scan = None if deadline is None else scans(deadline, key)
        if scan is not None and all(scan[0] < end for end in ends):
            back = next_of_same(lines, here)
            is_false = back is not None and is_same_process(heartbeat, back, live[back.seq] - scan[0])
            yield Eviction(boot, key, period, heartbeat, *scan, is_false)
        period += len(between)


def _deadline(boot: Boot, heartbeat: Line, expiry: int | None) -> int | None:
    """The end of the expiry, in liveness time; None: unknown. A broker that requested an expiry of its own keeps it."""
    own = heartbeat.time("expiry_ms")
    if own is None:
        return None
    return boot.live[heartbeat.seq] + (expiry if expiry is not None and own == boot.expiry else own)


def _ends_of_silence(boot: Boot, lines: Sequence[Line], here: int, there: int) -> list[int]:
    """The next heartbeat at an address, and the first eviction before it for another reason; None if there is none."""
    closing = [line for line in lines[here + 1 : there] if line.get("reason") != "silent"][:1]
    return [boot.live[line.seq] for line in (*closing, *lines[there : there + 1])]


def client_staleness(eviction: Eviction, poll: int) -> list[float]:
    """The client staleness of an eviction for clients with this poll interval, one value for each phase."""
    return [eviction.staleness + (2 * phase + 1) * poll / (2 * PHASES) for phase in range(PHASES)]


def replay_as_logged(boots: Sequence[Boot]) -> list[Eviction]:
    """The evictions under the logged settings."""
    return [eviction for boot in boots for eviction in replay(boot, None, logged_scans(boot))]


def evictions_by_setting(boots: Sequence[Boot], grid: WhatIf) -> Iterator[tuple[dict[str, Any], list[Eviction]]]:
    """The evictions under the logged settings, then under every expiry with every scan interval."""
    nothing = {"expiry_ms": None, "scan_ms": None}
    yield {"policy": "logged", **nothing}, replay_as_logged(boots)
    # Without the boot's settings, the expiries of its brokers are unknown.
    known = [boot for boot in boots if boot.expiry is not None]
    for expiry_ms, scan_ms in product(grid.expiry_ms, grid.scan_ms):
        evictions = []
        for boot in known:
            evictions += replay(boot, expiry_ms * MICROSECONDS, even_scans(boot, scan_ms * MICROSECONDS))
        yield {"policy": "fixed", "expiry_ms": expiry_ms, "scan_ms": scan_ms}, evictions


def as_logged(boots: Sequence[Boot], evictions: Sequence[Eviction]) -> dict[str, int | bool]:
    """The numbers of silent evictions: logged, replayed, missing, extra, and at another scan."""
    logged = Counter(
        ((boot, *key, period), evict.get("scan"))
        for boot in boots
        for key, lines in lines_of_brokers(boot).items()
        for period, (before, evict) in enumerate(
            (before, line) for before, line in zip([None, *lines], lines, strict=False) if line.event == "evict"
        )
        # The log lacks the last heartbeat of other evictions.
        if evict.get("reason") == "silent" and before is not None and before.event != "evict"
    )
    replayed = Counter(((one.boot, *one.key, one.period), one.scan) for one in evictions)
    missing = Counter(period for period, _ in (logged - replayed).elements())
    extra = Counter(period for period, _ in (replayed - logged).elements())
    # A missing and an extra eviction of the same registration period are one eviction at another scan.
    other_scan = (missing & extra).total()
    return {
        "logged": logged.total(),
        "replayed": replayed.total(),
        "missing": missing.total() - other_scan,
        "extra": extra.total() - other_scan,
        "other_scan": other_scan,
        "exact": logged == replayed,
    }
