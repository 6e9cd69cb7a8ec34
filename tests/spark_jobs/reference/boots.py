"""Boots: the clock and the settings of each."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.spark_jobs.reference.lines import BEATS, MICROSECONDS, OF_CLIENTS, Line, lower_median, whole_milliseconds

ANCHORS = ("start", "opened", "scan", "stop")
# between two anchors a wall clock does not drift that far
STEP = 500 * MICROSECONDS


@dataclass(slots=True, repr=False)
class Boot:
    """One run of a server: its lines in order, and how to read their times."""

    boot: str
    nameserver: str | None
    lines: list[Line]
    by_event: dict[str, list[Line]]
    # the liveness time of each line
    live: dict[int, int]
    # wall time = time of the line + this; milliseconds
    offset_ms: int
    # the files with the lines at which its wall clock was found to have stepped
    clock_steps: list[str]
    # None: no line says so
    scan_interval: int | None
    expiry: int | None
    version: str | None

    def wall(self, at: int) -> int:
        """The wall time of a moment, in microseconds."""
        return at + self.offset_ms * MICROSECONDS

    def wall_ms(self, at: int) -> int:
        """A moment as people know it."""
        return whole_milliseconds(self.wall(at))

    def of(self, *events: str) -> list[Line]:
        """Its lines of these kinds."""
        return sorted(line for event in events for line in self.by_event.get(event, ()))


def boots(lines: Iterable[Line]) -> list[Boot]:
    """The servers' boots, by name and id; those of clients are left out."""
    lines_of: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        lines_of[line.boot].append(line)
    found = [_boot(sorted(ours)) for ours in lines_of.values() if not any(line.event in OF_CLIENTS for line in ours)]
    return sorted(found, key=lambda boot: (boot.nameserver or "", boot.boot))


def _boot(lines: list[Line]) -> Boot:
    by_event: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_event[line.event].append(line)
    anchors = sorted((line for event in ANCHORS for line in by_event[event]), key=lambda line: line.seq)
    settings = next(iter(by_event["start"] or by_event["opened"]), None)
    steps = [now for before, now in pairwise(anchors) if abs(_difference(now) - _difference(before)) > STEP]
    return Boot(
        boot=lines[0].boot,
        nameserver=lines[0].get("nameserver"),
        lines=lines,
        by_event=by_event,
        live=_liveness(lines, by_event),
        offset_ms=whole_milliseconds(lower_median(_difference(line) for line in anchors or lines)),
        clock_steps=[line.file for line in steps],
        scan_interval=None if settings is None else settings.time("scan_interval_ms"),
        expiry=None if settings is None else settings.time("broker_expiry_ms"),
        version=None if settings is None else settings.get("version"),
    )


def _difference(line: Line) -> int:
    return int(line.fields["ts_ms"]) * MICROSECONDS - line.at


def _liveness(lines: Sequence[Line], by_event: dict[str, list[Line]]) -> dict[int, int]:
    """The liveness time of every line, by its number."""
    live: dict[int, int] = {}
    late = 0 if by_event["start"] or not by_event["opened"] else by_event["opened"][0].time("late_ms") or 0
    for line in lines:
        late += (line.time("late_ms") or 0) if line.event == "late" else 0
        live[line.seq] = line.at - late
    # what was heard before the server knew how late it was counts as heard when it knew
    cap: int | None = None
    for line in reversed(lines):
        if line.event == "late":
            cap = live[line.seq]
        elif cap is not None and line.event in BEATS:
            live[line.seq] = min(live[line.seq], cap)
    return live
