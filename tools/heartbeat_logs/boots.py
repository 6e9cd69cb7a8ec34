"""Runs of a server: its scans, its stalls and the steps of its clock."""

from bisect import bisect_right
from dataclasses import dataclass
from random import Random

from tools.heartbeat_logs.settings import SECOND, Settings

# after waking up, what has arrived is taken first, and then the server learns how late it is
LATE_LINE_AFTER = 500
SCAN_AFTER = 600


@dataclass(frozen=True, slots=True)
class Late:
    """A time during which the server stood still."""

    begin: int
    end: int

    @property
    def line(self) -> int:
        """When it knows."""
        return self.end + LATE_LINE_AFTER

    @property
    def length(self) -> int:
        """By how much."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Boot:
    """One run of a server; all times are true ones, in microseconds."""

    nameserver: int
    boot_id: str
    start: int
    end: int
    # ends with a `stop` line, by a crash, or goes on after the log
    is_stopped: bool
    lates: tuple[Late, ...]
    # when, and by how much from then on
    clock_steps: tuple[tuple[int, int], ...]
    scans: tuple[int, ...]
    # the same in liveness time
    live_scans: tuple[int, ...]
    # of its monotonic clock
    origin: int

    def live(self, at: int) -> int:
        """Liveness time of what happened at a time; the clock of the world minus what the server was late."""
        return _live(self.lates, at)

    def wall(self, at: int) -> int:
        """What its wall clock shows at a time."""
        return at + sum(length for step, length in self.clock_steps if step <= at)

    def taken(self, at: int) -> int:
        """When the server gets to something that arrives at a time."""
        for one in self.lates:
            if one.begin <= at < one.end:
                # in the order in which it came, more or less
                return one.end + (at - one.begin) * (LATE_LINE_AFTER - 1) // one.length
        return at

    def evicting_scan(self, beat: int, expiry: int) -> int | None:
        """The number (from 0) of the first scan that finds a broker silent which was last heard at a time."""
        number = bisect_right(self.live_scans, self.live(beat) + expiry)
        return number if number < len(self.scans) else None


def boots(settings: Settings, nameserver: int) -> list[Boot]:
    """The runs of one server, one after the other."""
    random = Random(f"boots of {settings.seed}/{nameserver}")
    restarts = sorted(random.randrange(settings.begin, settings.end) for _ in range(settings.restarts))
    found: list[Boot] = []
    start = settings.begin + random.randrange(SECOND)
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
            # heard between waking up and knowing: as if it had come when it knew
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
    """Every interval; one that is due while the server stands still is made when it wakes up, and counted from then."""
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
