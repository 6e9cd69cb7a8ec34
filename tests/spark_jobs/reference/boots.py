"""Boots: the clock and the settings of each."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from tests.spark_jobs.reference.lines import BEATS, OF_CLIENTS, Line
from tests.spark_jobs.reference.numbers import MICROSECONDS, lower_median, whole

ANCHORS = frozenset({"start", "opened", "scan", "stop"})
# between two anchors a wall clock does not drift that far
STEP = 500 * MICROSECONDS


@dataclass(slots=True)
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

    def __repr__(self) -> str:
        return f"<Boot [{self.nameserver} {self.boot} | {len(self.lines)} lines]>"

    @property
    def first(self) -> Line:
        """Its first line."""
        return self.lines[0]

    @property
    def last(self) -> Line:
        """Its last line."""
        return self.lines[-1]

    def wall(self, at: int) -> int:
        """The wall time of a moment, in microseconds."""
        return at + self.offset_ms * MICROSECONDS

    def of(self, *events: str) -> list[Line]:
        """Its lines of these kinds."""
        return sorted(line for event in events for line in self.by_event.get(event, ()))

    def late_between(self, after: int, up_to: int) -> int:
        """How long it was late altogether in a time."""
        return sum(line.time("late_ms") or 0 for line in self.of("late") if after < line.at <= up_to)


def boots(lines: Iterable[Line]) -> list[Boot]:
    """The servers' boots, by name and id; those of clients are left out."""
    lines_of: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        lines_of[line.boot].append(line)
    found = [_boot(sorted(ours)) for ours in lines_of.values() if not any(line.event in OF_CLIENTS for line in ours)]
    return sorted(found, key=lambda boot: (boot.nameserver or "", boot.boot))


def _boot(lines: list[Line]) -> Boot:
    anchors = [line for line in lines if line.event in ANCHORS]
    settings = _first(lines, "start") or _first(lines, "opened")
    return Boot(
        boot=lines[0].boot,
        nameserver=lines[0].nameserver,
        lines=lines,
        by_event=_by_event(lines),
        live=_liveness(lines),
        offset_ms=whole(lower_median([_difference(line) for line in anchors or lines]) / MICROSECONDS),
        clock_steps=_clock_steps(anchors),
        scan_interval=None if settings is None else settings.time("scan_interval_ms"),
        expiry=None if settings is None else settings.time("broker_expiry_ms"),
        version=None if settings is None else settings.get("version"),
    )


def _by_event(lines: Iterable[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        found[line.event].append(line)
    return found


def _first(lines: Iterable[Line], event: str) -> Line | None:
    return next((line for line in lines if line.event == event), None)


def _difference(line: Line) -> int:
    return line.wall_ms * MICROSECONDS - line.at


def _clock_steps(anchors: Iterable[Line]) -> list[str]:
    in_order = sorted(anchors, key=lambda line: line.seq)
    return [now.file for before, now in pairwise(in_order) if abs(_difference(now) - _difference(before)) > STEP]


def _liveness(lines: list[Line]) -> dict[int, int]:
    """The liveness time of every line, by its number."""
    live: dict[int, int] = {}
    opened = _first(lines, "opened")
    late = 0 if opened is None or _first(lines, "start") else opened.time("late_ms") or 0
    for line in lines:
        if line.event == "late":
            late += line.time("late_ms") or 0
        live[line.seq] = line.at - late
    # what was heard before the server knew how late it was counts as heard when it knew
    cap: int | None = None
    for line in reversed(lines):
        if line.event == "late":
            cap = live[line.seq]
        elif cap is not None and line.event in BEATS:
            live[line.seq] = min(live[line.seq], cap)
    return live
