"""Boots: the clock and the settings of each."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from tests.spark_jobs.reference.lines import BEATS, MICROSECONDS, OF_CLIENTS, Line, lower_median, whole_milliseconds

ANCHORS = ("start", "opened", "scan", "stop")
# between two anchors a wall clock does not drift that far
STEP = 500 * MICROSECONDS


class Boot:
    """One run of a server: its lines in order, and how to read their times."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = sorted(lines)
        self.boot = lines[0].boot
        self.nameserver: str | None = self.lines[0].get("nameserver")
        self._by_event: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            self._by_event[line.event].append(line)
        anchors = sorted(self.of(*ANCHORS), key=lambda line: line.seq)
        # wall time = time of the line + this; milliseconds
        self.offset_ms = whole_milliseconds(lower_median(_difference(line) for line in anchors or self.lines))
        steps = [now for before, now in pairwise(anchors) if abs(_difference(now) - _difference(before)) > STEP]
        # the files with the lines at which its wall clock was found to have stepped
        self.clock_steps = [line.file for line in steps]
        # the liveness time of each line
        self.live = _liveness(self)
        settings = next(iter(self.of("start") or self.of("opened")), None)
        # None: no line says so
        self.scan_interval = None if settings is None else settings.time("scan_interval_ms")
        self.expiry = None if settings is None else settings.time("broker_expiry_ms")
        self.version = None if settings is None else settings.get("version")

    def wall(self, at: int) -> int:
        """The wall time of a moment, in microseconds."""
        return at + self.offset_ms * MICROSECONDS

    def wall_ms(self, at: int) -> int:
        """A moment as people know it."""
        return whole_milliseconds(self.wall(at))

    def of(self, *events: str) -> list[Line]:
        return sorted(line for event in events for line in self._by_event[event])


def boots(lines: Iterable[Line]) -> list[Boot]:
    """The servers' boots, by name and id; those of clients are left out."""
    lines_of: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        lines_of[line.boot].append(line)
    found = [Boot(ours) for ours in lines_of.values() if not any(line.event in OF_CLIENTS for line in ours)]
    return sorted(found, key=lambda boot: (boot.nameserver or "", boot.boot))


def _difference(line: Line) -> int:
    return int(line.fields["ts_ms"]) * MICROSECONDS - line.at


def _liveness(boot: Boot) -> dict[int, int]:
    """The liveness time of every line, by its number."""
    live: dict[int, int] = {}
    late = 0 if boot.of("start") else next((line.time("late_ms") or 0 for line in boot.of("opened")), 0)
    for line in boot.lines:
        late += (line.time("late_ms") or 0) if line.event == "late" else 0
        live[line.seq] = line.at - late
    # what was heard before the server knew how late it was counts as heard when it knew
    cap: int | None = None
    for line in reversed(boot.lines):
        if line.event == "late":
            cap = live[line.seq]
        elif cap is not None and line.event in BEATS:
            live[line.seq] = min(live[line.seq], cap)
    return live
