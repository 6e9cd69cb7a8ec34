"""Heartbeats of one broker at one server, and its evictions there."""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from tools.heartbeat_logs.boots import Boot
from tools.heartbeat_logs.lines import Event, beat_tail, broker_fields, milliseconds, tail
from tools.heartbeat_logs.settings import Settings
from tools.heartbeat_logs.world import Broker, Death, Kind, Process

# from a broker to the server: 0.2 to 1.7 ms
LEAST_LATENCY, LATENCY_SPREAD = 200, 1500
# a broker is late when it was silent for over 1.5 of its periods
LATE_TIMES_2 = 3
# a scan removes one broker after the other
REMOVAL = 20


@dataclass(frozen=True, slots=True)
class Change:
    """A broker came or went."""

    at: int
    broker: Broker
    is_there: bool
    # of one that went
    eviction: "Eviction | None" = None


@dataclass(slots=True)
class Eviction:
    """What is to be known about a removal besides its line."""

    # whose line it is; the number of its last beat is put in when lines are numbered
    broker: Broker
    at: int
    last_ok: int
    reason: str
    # None: its beats were only lost
    death: Death | None
    # the line up to `last_seq`, and after it
    before_seq: str
    after_seq: str


@dataclass(slots=True)
class Chunk:
    """What happens in a stretch of time."""

    until: int
    events: list[Event] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    # scans (from 0) at which a broker was late
    late_scans: list[tuple[int, Broker]] = field(default_factory=list)


class Hearing:
    """One broker as one boot of a server hears it, told chunk by chunk."""

    def __init__(self, settings: Settings, boot: Boot, broker: Broker, removals: dict[int, int]) -> None:
        self._settings = settings
        self._boot = boot
        self.broker = broker
        self._random = Random(f"{settings.seed}/{boot.boot_id}/{broker.index}")
        self._processes = [process for process in broker.processes if process.end > boot.start]
        self._partitions = [one for one in broker.partitions if one.back > boot.start]
        # the last beat; None while the server does not have the broker
        self.last_ok: int | None = None
        self._heard: Process | None = None
        # the next scan that finds the broker late, as far as it was told
        self._next_late_scan = 0
        self._touch = ""
        # how many brokers each scan has removed so far, of all
        self._removals = removals

    def __repr__(self) -> str:
        return f"<Hearing [{self.broker.addr} at {self._boot.boot_id} | {self.last_ok}]>"

    def tell(self, begin: int, chunk: Chunk) -> None:
        """Everything from `begin` to the chunk's end."""
        while self._processes and self._processes[0].start < chunk.until:
            process = self._processes[0]
            times = self._times(process, begin, chunk.until)
            if not self._tell_quickly(process, times, chunk):
                for at in times:
                    self._hear(process, at, chunk)
            if process.end > chunk.until or process.death is None:
                break
            self._end(process.death, chunk)
            self._processes.pop(0)
        self._wait(chunk.until, chunk)

    def _times(self, process: Process, begin: int, until: int) -> list[int]:
        """When its beats arrive that were sent in this time."""
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

    def _tell_quickly(self, process: Process, times: list[int], chunk: Chunk) -> bool:
        """One beat after the other, as nearly always. Nothing is told when there is more to it."""
        if process is not self._heard or self.last_ok is None or not times:
            return False
        allowed = self.broker.period * LATE_TIMES_2 // 2
        all_times = [self.last_ok, *times]
        if any(later - earlier > allowed for earlier, later in pairwise(all_times)):
            return False
        touch = self._touch
        chunk.events += [(at, f"{touch}{(at - before) / 1000}}}") for before, at in pairwise(all_times)]
        self.last_ok = times[-1]
        return True

    def _hear(self, process: Process, at: int, chunk: Chunk) -> None:
        self._wait(at, chunk, is_heard=True)
        if at >= self._boot.end:
            return
        is_new, is_other = self.last_ok is None, process is not self._heard
        kind = "full" if is_new or is_other else "touch" if process.agent_id else "unchanged"
        silent = 0 if self.last_ok is None else at - self.last_ok
        chunk.events.append((at, f"{beat_tail(self.broker, process, kind)}{milliseconds(silent)}}}"))
        if is_other:
            self._touch = beat_tail(self.broker, process, "touch" if process.agent_id else "unchanged")
        self._heard, self.last_ok = process, at
        if is_new:
            chunk.changes.append(Change(at, self.broker, is_there=True))

    def _wait(self, until: int, chunk: Chunk, *, is_heard: bool = False) -> None:
        """Nothing is heard up to this moment: find it late, and then silent."""
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
        elif is_heard:
            self._fence(at, chunk, scan + 1)

    def _fence(self, at: int, chunk: Chunk, scan: int) -> None:
        """It was heard between the scan and its removal."""
        assert self._heard is not None  # noqa: S101 - by its last beat
        fields = broker_fields(self.broker, self._heard)
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
        """What it was that ended the beats; None when they were only lost."""
        assert self.last_ok is not None  # noqa: S101 - the caller has looked
        assert self._heard is not None  # noqa: S101 - by its last beat
        deaths = [one for one in self._partitions if one.back > self.last_ok]
        if self._heard.death is not None:
            deaths.append(self._heard.death)
        return min((one for one in deaths if one.at <= removed), key=lambda death: death.at, default=None)

    def _end(self, death: Death, chunk: Chunk) -> None:
        """A process ends; only what comes over a connection tells the server."""
        at = self._boot.taken(death.at + LEAST_LATENCY + int(self._random.random() * LATENCY_SPREAD))
        if self.last_ok is not None and at <= self.last_ok:
            # its last words were taken together
            at = self.last_ok + 1
        self._wait(at, chunk)
        if self.last_ok is None or self._heard is not self._processes[0] or at >= self._boot.end:
            return
        if death.kind is Kind.CRASH:
            self._evict(at, "disconnected", chunk)
        elif death.kind is Kind.UNREGISTER:
            fields = broker_fields(self.broker, self._heard)
            chunk.events.append((at, tail("unregister", **fields, kind="unregister")))
            self._evict(at + 1, "unregistered", chunk)

    def _evict(self, at: int, reason: str, chunk: Chunk, scan: int | None = None) -> None:
        assert self.last_ok is not None  # noqa: S101 - the caller has looked
        assert self._heard is not None  # noqa: S101 - by its last beat
        silent = self._boot.live(at) - self._boot.live(self.last_ok)
        fields = broker_fields(self.broker, self._heard)
        line = tail("evict", **fields, reason=reason, silent_ms=milliseconds(silent), last_seq=0, scan=scan)
        before, after = line.rsplit('"last_seq":0', 1)
        eviction = Eviction(self.broker, at, self.last_ok, reason, self._cause(at), f'{before}"last_seq":', after)
        chunk.changes.append(Change(at, self.broker, is_there=False, eviction=eviction))
        self.last_ok = None


def _hashed(start: int, number: int) -> float:
    """Something in [0, 1) that is the same at every server."""
    return ((start // 7 + number) * 2_654_435_761 >> 7 & 0xFFFF) / 0x10000
