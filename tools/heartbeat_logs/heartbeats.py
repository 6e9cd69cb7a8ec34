"""Heartbeats of one broker at one server, and its evictions there."""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from tools.heartbeat_logs.boots import Boot
from tools.heartbeat_logs.lines import Event, broker_fields, heartbeat_tail, milliseconds, tail
from tools.heartbeat_logs.settings import Settings
from tools.heartbeat_logs.world import Broker, Death, Kind, Process

# Latency from a broker to the server: 0.2 to 1.7 ms.
LEAST_LATENCY, LATENCY_SPREAD = 200, 1500
# A broker is late after a silence of more than 1.5 of its intervals.
LATE_TIMES_2 = 3
# A scan evicts brokers one after the other.
REMOVAL = 20


@dataclass(frozen=True, slots=True)
class Change:
    """A broker registered, or was removed."""

    at: int
    broker: Broker
    is_there: bool
    # The eviction of a removed broker.
    eviction: "Eviction | None" = None


@dataclass(frozen=True, slots=True)
class Eviction:
    """A removal of a broker."""

    broker: Broker
    at: int
    last_ok: int
    reason: str
    # None: the broker lives, and its heartbeats were lost.
    death: Death | None


@dataclass(slots=True)
class Chunk:
    """The events and changes of one span of time."""

    until: int
    events: list[Event] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    # Numbers of scans (from 0) that found a broker late, with the broker.
    late_scans: list[tuple[int, Broker]] = field(default_factory=list)


class BrokerLines:
    """The lines of one broker in one boot of a server, made chunk by chunk."""

    def __init__(self, settings: Settings, boot: Boot, broker: Broker, removals: dict[int, int]) -> None:
        self._settings = settings
        self._boot = boot
        self.broker = broker
        self._random = Random(f"{settings.seed}/{boot.boot_id}/{broker.index}")
        self._processes = [process for process in broker.processes if process.end > boot.start]
        self._partitions = [one for one in broker.partitions if one.back > boot.start]
        # Time of the last heartbeat; None while the server does not have the broker.
        self.last_ok: int | None = None
        self._process: Process | None = None
        # Number of the first scan that was not checked for a late broker yet.
        self._next_late_scan = 0
        self._touch = ""
        # Number of brokers that each scan has evicted so far; shared by all brokers.
        self._removals = removals

    def __repr__(self) -> str:
        return f"<BrokerLines [{self.broker.addr} at {self._boot.boot_id} | {self.last_ok}]>"

    def add(self, begin: int, chunk: Chunk) -> None:
        """Add the broker's events from `begin` to the chunk's end."""
        while self._processes and self._processes[0].start < chunk.until:
            process = self._processes[0]
            times = self._times(process, begin, chunk.until)
            if not self._add_regular(process, times, chunk):
                for at in times:
                    self._receive(process, at, chunk)
            if process.end > chunk.until or process.death is None:
                break
            self._end(process.death, chunk)
            self._processes.pop(0)
        self._wait(chunk.until, chunk)

    def _times(self, process: Process, begin: int, until: int) -> list[int]:
        """Times of arrival of the heartbeats that were sent in this span."""
        period, start, random = self.broker.period, process.start, self._random.random
        first = max(0, -(-(begin - start) // period))
        last = -(-(min(until, process.end) - start) // period)
        if self._settings.jitter:
            spread = self._settings.jitter * period
            sent = [start + k * period + int(_hashed(start, k) * spread) for k in range(first, last)]
        else:
            sent = list(range(start + first * period, start + last * period, period))
        if process.death is not None:
            sent = [at for at in sent if at < process.end]
        if self._settings.missed:
            missed = self._settings.missed
            sent = [at for at in sent if random() >= missed]
        for one in self._partitions:
            sent = [at for at in sent if not one.at <= at < one.back]
        times = [at + LEAST_LATENCY + int(random() * LATENCY_SPREAD) for at in sent]
        for late in self._boot.lates:
            if late.begin < until and begin < late.end:
                times = [self._boot.taken(at) for at in times]
        return times

    def _add_regular(self, process: Process, times: list[int], chunk: Chunk) -> bool:
        """Add heartbeats without a gap, the usual case; return False, and add nothing, in any other case."""
        if process is not self._process or self.last_ok is None or not times:
            return False
        allowed = self.broker.period * LATE_TIMES_2 // 2
        all_times = [self.last_ok, *times]
        if any(later - earlier > allowed for earlier, later in pairwise(all_times)):
            return False
        touch = self._touch
        chunk.events += [(at, f"{touch}{(at - before) / 1000}}}") for before, at in pairwise(all_times)]
        self.last_ok = times[-1]
        return True

    def _receive(self, process: Process, at: int, chunk: Chunk) -> None:
        self._wait(at, chunk, is_received=True)
        if at >= self._boot.end:
            return
        is_new, is_other = self.last_ok is None, process is not self._process
        kind = "full" if is_new or is_other else "touch" if process.agent_id else "unchanged"
        silent = 0 if self.last_ok is None else at - self.last_ok
        chunk.events.append((at, f"{heartbeat_tail(self.broker, process, kind)}{milliseconds(silent)}}}"))
        if is_other:
            self._touch = heartbeat_tail(self.broker, process, "touch" if process.agent_id else "unchanged")
        self._process, self.last_ok = process, at
        if is_new:
            chunk.changes.append(Change(at, self.broker, is_there=True))

    def _wait(self, until: int, chunk: Chunk, *, is_received: bool = False) -> None:
        """Add the events of a silence until this moment: late scans, then an eviction."""
        if self.last_ok is None:
            return
        self._find_late(min(until, self._boot.end), chunk)
        scan = self._boot.evicting_scan(self.last_ok, self.broker.expiry)
        if scan is None or self._boot.scans[scan] >= until:
            return
        removals = self._removals.get(scan, 0) + 1
        at = self._boot.scans[scan] + REMOVAL * removals
        if at < until:
            self._removals[scan] = removals
            self._evict(at, "silent", chunk, scan + 1)
        elif is_received:
            self._fence(at, chunk, scan + 1)

    def _fence(self, at: int, chunk: Chunk, scan: int) -> None:
        """Add a fenced removal: a heartbeat arrived between the scan and the removal."""
        assert self._process is not None  # noqa: S101 - by its last heartbeat
        fields = broker_fields(self.broker, self._process)
        chunk.events.append((at, tail("fenced", **fields, reason="silent", scan=scan)))

    def _find_late(self, until: int, chunk: Chunk) -> None:
        assert self.last_ok is not None  # noqa: S101 - the caller has looked
        allowed = self.broker.period * LATE_TIMES_2 // 2
        if until - self.last_ok <= allowed:
            return
        first = self._boot.evicting_scan(self.last_ok, allowed)
        last = self._boot.evicting_scan(self.last_ok, self.broker.expiry)
        if first is None:
            return
        for scan in range(max(first, self._next_late_scan), len(self._boot.scans)):
            if self._boot.scans[scan] >= until or (last is not None and scan > last):
                break
            chunk.late_scans.append((scan, self.broker))
            self._next_late_scan = scan + 1

    def _cause(self, removed: int) -> Death | None:
        """The death that ended the heartbeats; None if heartbeats were only lost."""
        assert self.last_ok is not None  # noqa: S101 - the caller has looked
        assert self._process is not None  # noqa: S101 - by its last heartbeat
        deaths = [one for one in self._partitions if one.back > self.last_ok]
        if self._process.death is not None:
            deaths.append(self._process.death)
        return min((one for one in deaths if one.at <= removed), key=lambda death: death.at, default=None)

    def _end(self, death: Death, chunk: Chunk) -> None:
        """End a process; the server notices the end only if a connection closes or an unregistration arrives."""
        at = self._boot.taken(death.at + LEAST_LATENCY + int(self._random.random() * LATENCY_SPREAD))
        if self.last_ok is not None and at <= self.last_ok:
            # The server read the end together with the last heartbeat.
            at = self.last_ok + 1
        self._wait(at, chunk)
        if self.last_ok is None or self._process is not self._processes[0] or at >= self._boot.end:
            return
        if death.kind is Kind.CRASH:
            self._evict(at, "disconnected", chunk)
        elif death.kind is Kind.UNREGISTER:
            fields = broker_fields(self.broker, self._process)
            chunk.events.append((at, tail("unregister", **fields, kind="unregister")))
            self._evict(at + 1, "unregistered", chunk)

    def _evict(self, at: int, reason: str, chunk: Chunk, scan: int | None = None) -> None:
        assert self.last_ok is not None  # noqa: S101 - the caller has looked
        assert self._process is not None  # noqa: S101 - by its last heartbeat
        silent = self._boot.live(at) - self._boot.live(self.last_ok)
        fields = broker_fields(self.broker, self._process)
        # no report uses `last_seq`
        line = tail("evict", **fields, reason=reason, silent_ms=milliseconds(silent), last_seq=None, scan=scan)
        chunk.events.append((at, line))
        eviction = Eviction(self.broker, at, self.last_ok, reason, self._cause(at))
        chunk.changes.append(Change(at, self.broker, is_there=False, eviction=eviction))
        self.last_ok = None


def _hashed(start: int, number: int) -> float:
    """A pseudo-random number in [0, 1) that is equal on every server."""
    return ((start // 7 + number) * 2_654_435_761 >> 7 & 0xFFFF) / 0x10000
