"""Boots of a server: its scans, its stalls and the steps of its clock."""

from bisect import bisect_right
from dataclasses import dataclass
from random import Random

from tools.heartbeat_logs.settings import BEGIN, SECOND, Settings

# After a stall the server first reads what has arrived, and then measures its lateness.
LATE_LINE_AFTER = 500
SCAN_AFTER = 600


@dataclass(frozen=True, slots=True)
class Late:
    """A span in which the server was stalled."""

    begin: int
    end: int

    @property
    def line(self) -> int:
        """Time at which the server logs its lateness."""
        return self.end + LATE_LINE_AFTER

    @property
    def length(self) -> int:
        """Length of the stall."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Boot:
    """One boot of a server; all times are true times, in microseconds."""

    nameserver: int
    boot_id: str
    start: int
    end: int
    # True: the boot ends with a `stop` line; False: by a crash, or after the end of the log.
    is_stopped: bool
    lates: tuple[Late, ...]
    # Times of clock steps, and their lengths.
    clock_steps: tuple[tuple[int, int], ...]
    scans: tuple[int, ...]
    # The times of the scans as liveness time.
    live_scans: tuple[int, ...]
    # Zero of the server's monotonic clock.
    origin: int

    def live(self, at: int) -> int:
        """The liveness time at a true time: the true time minus the server's lateness."""
        return _live(self.lates, at)

    def wall(self, at: int) -> int:
        """The server's wall clock at a true time."""
        return at + sum(length for step, length in self.clock_steps if step <= at)

    def taken(self, at: int) -> int:
        """The time at which the server reads a message that arrives at `at`."""
        for one in self.lates:
            if one.begin <= at < one.end:
                # Messages are read roughly in their order of arrival.
                return one.end + (at - one.begin) * (LATE_LINE_AFTER - 1) // one.length
        return at

    def evicting_scan(self, heartbeat: int, expiry: int) -> int | None:
        """The number (from 0) of the first scan that evicts a broker whose last heartbeat was at a time."""
        number = bisect_right(self.live_scans, self.live(heartbeat) + expiry)
        return number if number < len(self.scans) else None


def boots(settings: Settings, nameserver: int) -> list[Boot]:
    """The boots of one server, in order."""
    random = Random(f"boots of {settings.seed}/{nameserver}")
    restarts = sorted(random.randrange(BEGIN, settings.end) for _ in range(settings.restarts))
    found: list[Boot] = []
    start = BEGIN + random.randrange(SECOND)
    for end in (*restarts, settings.end):
        if start < end:
            found.append(_boot(settings, random, nameserver, start, end))
            start = end + random.randrange(SECOND, 20 * SECOND)
    return found


def _boot(settings: Settings, random: Random, nameserver: int, start: int, end: int) -> Boot:
    lates = _lates(settings, random, start, end)
    scans = _scans(settings, start, end, lates)
    steps = [
        (random.randrange(start, end), random.choice((-1, 1)) * random.randrange(SECOND, 3600 * SECOND))
        for _ in range(round(settings.clock_steps * (end - start) / settings.duration))
    ]
    return Boot(
        nameserver=nameserver,
        boot_id=f"{random.getrandbits(64):016x}",
        start=start,
        end=end,
        is_stopped=not settings.torn,
        lates=lates,
        clock_steps=tuple(sorted(steps)),
        scans=scans,
        live_scans=tuple(_live(lates, scan) for scan in scans),
        origin=start - random.randrange(3600 * SECOND),
    )


def _live(lates: tuple[Late, ...], at: int) -> int:
    late = 0
    for one in lates:
        if at < one.line:
            # A heartbeat between the end of the stall and its measurement counts from the measurement.
            return min(at - late, one.line - late - one.length)
        late += one.length
    return at - late


def _lates(settings: Settings, random: Random, start: int, end: int) -> tuple[Late, ...]:
    count = round(settings.lates * (end - start) / settings.duration)
    begins = sorted(random.randrange(start, end) for _ in range(count))
    found: list[Late] = []
    for begin in begins:
        late = Late(begin, begin + random.randrange(SECOND, 40 * SECOND))
        if late.line + SECOND < end and (not found or found[-1].line + SECOND < begin):
            found.append(late)
    return tuple(found)


def _scans(settings: Settings, start: int, end: int, lates: tuple[Late, ...]) -> tuple[int, ...]:
    """The times of scans; a scan that is due during a stall runs after it, and the next interval starts then."""
    found: list[int] = []
    at = start + settings.scan
    left = list(lates)
    while at < end:
        while left and left[0].end <= at:
            left.pop(0)
        if left and left[0].begin <= at:
            at = left[0].end + SCAN_AFTER
        if at < end:
            found.append(at)
        at += settings.scan
    return tuple(found)
