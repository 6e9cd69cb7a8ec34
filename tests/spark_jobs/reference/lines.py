"""Reads log lines into events or counted bad lines, and groups events into boots with their clock and settings."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

from namesrv_spark_jobs.options import Options

# Times are integers in microseconds, so that sums and comparisons are exact.
MICROSECONDS = 1000
VERSION = 2
HEARTBEATS = frozenset({"register", "heartbeat"})
OF_CLIENTS = frozenset({"refreshed", "send_failed", "isolated"})
OTHERS = "start opened stop unregister evict fenced scan late route served client_gone pulls dropped"
KNOWN = HEARTBEATS | OF_CLIENTS | set(OTHERS.split())
# Types of the fields; some fields, such as `v`, are required.
WHOLE = frozenset({"broker_id", "scan", "revision", "count"})
TIMES = frozenset({"expiry_ms", "silent_ms", "late_ms", "scan_interval_ms", "broker_expiry_ms"})
# Counters of each file.
NUMBERS = (
    *("lines", "bad", "duplicates", "newer_version", "unknown_events", "left_out", "dropped_by_writers", "clock_steps"),
)
# The year 2200: later times are bad lines.
LATEST_WALL_MS = 7_258_118_400_000
MOST_COUNT = 10**12
EVERYTHING = Options()
ANCHORS = ("start", "opened", "scan", "stop")
# A larger difference between two anchors is a step of the wall clock, not drift.
STEP = 500 * MICROSECONDS


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """One event. Lines of one boot compare in the order of the contract."""

    # mono_ms
    at: int
    seq: int
    boot: str = field(compare=False)
    event: str = field(compare=False)
    # All fields of the line.
    fields: Mapping[str, Any] = field(compare=False)
    file: str = field(compare=False)
    # Number of gaps (missing lines of the boot) before this line.
    part: int = field(compare=False, default=0)

    def get(self, name: str) -> Any:
        """A further field; None when it is missing."""
        return self.fields.get(name)

    def time(self, name: str) -> int | None:
        value = self.fields.get(name)
        return None if value is None else microseconds(value)


def microseconds(milliseconds: float) -> int:
    """A time of the log in microseconds; the log has milliseconds with at most three decimals."""
    return round(milliseconds * MICROSECONDS)


def whole_milliseconds(time: float) -> int:
    """A time rounded to milliseconds, half up, as in reports."""
    return int((time + 500) // MICROSECONDS)


def lower_median(values: Iterable[int]) -> int:
    """The middle value; of two middle values the lower one."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def percentile(values: Sequence[float], part: float) -> float:
    """The percentile at `part`, linearly interpolated; values must be sorted and not empty."""
    position = part * (len(values) - 1)
    below, above = math.floor(position), math.ceil(position)
    if below == above:
        return values[below]
    # Both weights by subtraction, as in Spark: the last bit decides how a half is rounded.
    return (above - position) * values[below] + (position - below) * values[above]


def read(
    files: Mapping[str, Iterable[str | bytes]], options: Options = EVERYTHING
) -> tuple[list[Line], dict[str, Counter[str]]]:
    """All events, and the counters of each file; of lines with the same boot and number only the first is kept.

    Lines after missing ones have another `part` of their boot.
    """
    lines: list[Line] = []
    counts: dict[str, Counter[str]] = {}
    met: set[tuple[str, int]] = set()
    # boot -> numbers of its good lines
    numbers: dict[str, set[int]] = defaultdict(set)
    left_out: list[Line] = []
    for name in sorted(files):
        count = counts[name] = Counter()
        for text in files[name]:
            if not text.strip():
                continue
            count["lines"] += 1
            line = _parsed(text, name)
            if line is not None:
                numbers[line.boot].add(line.seq)
            if line is None:
                count["bad"] += 1
            elif (wanted := _wanted(line, options)) is None:
                count["left_out"] += 1
                left_out.append(line)
            elif (line.boot, line.seq) in met:
                count["duplicates"] += 1
            else:
                met.add((line.boot, line.seq))
                count["newer_version"] += line.fields["v"] > VERSION
                count["unknown_events"] += line.event not in KNOWN
                count["dropped_by_writers"] += (line.get("count") or 0) if line.event == "dropped" else 0
                lines.append(wanted)
    steps = _clock_steps(lines, left_out, options)
    for step, _ in steps:
        counts[step.file]["clock_steps"] += 1
    # boot -> the numbers from which on the lines of a server follow missing ones
    resumed: dict[str, list[int]] = defaultdict(list)
    after_steps = ((step.boot, begins) for step, begins in steps if begins is not None)
    for boot, number in (*_after_missing(lines, numbers), *after_steps):
        resumed[boot].append(number)
    return [replace(line, part=sum(number <= line.seq for number in resumed[line.boot])) for line in lines], counts


def _after_missing(lines: Sequence[Line], numbers: Mapping[str, set[int]]) -> Iterator[tuple[str, int]]:
    """The lines before which lines are lost with a file, or were dropped by a server."""
    clients = _clients(lines)
    for line in lines:
        is_lost = line.event == "opened" and line.seq - 1 not in numbers[line.boot]
        is_dropped = line.event == "dropped" and line.boot not in clients
        if (is_lost or is_dropped) and min(numbers[line.boot]) < line.seq:
            yield line.boot, line.seq


def _clock_steps(lines: Sequence[Line], left_out: Sequence[Line], options: Options) -> list[tuple[Line, int | None]]:
    """The anchors before which the wall clock was set.

    If the lines on one side only are in the selected time, with the number from which on lines are on the other side.
    """
    servers = {line.boot for line in lines} - _clients(lines)
    anchors = [line for line in (*lines, *left_out) if line.event in ANCHORS and line.boot in servers]
    anchors.sort(key=lambda line: (line.boot, line.seq, line.at, line.fields["ts_ms"]))
    found: list[tuple[Line, int | None]] = []
    for before, now in pairwise(anchors):
        was_in_time, is_in_time = (_is_in_time(line, options) for line in (before, now))
        has_moved = before.boot == now.boot and abs(_difference(now) - _difference(before)) > STEP
        if has_moved and (was_in_time or is_in_time):
            # lines after a step into the selected time may stand before the anchor
            begins = before.seq + 1 if is_in_time else now.seq
            found.append((now, begins if was_in_time != is_in_time else None))
    return found


def _clients(lines: Iterable[Line]) -> set[str]:
    return {line.boot for line in lines if line.event in OF_CLIENTS}


def _parsed(text: str | bytes, file: str) -> Line | None:
    """The event of a line; None for a bad line (truncated, not JSON, or without a required field)."""
    try:
        fields = json.loads(text)
        if not (0 <= fields["ts_ms"] <= LATEST_WALL_MS and 0 <= (fields.get("count") or 0) <= MOST_COUNT):
            return None
        whole = [fields[name] for name in ("v", "seq", "ts_ms")] + [fields.get(name) for name in WHOLE]
        if not all(type(value) is int for value in whole if value is not None) or None in whole[:3]:
            return None
        for name in TIMES & fields.keys():
            if fields[name] is not None:
                microseconds(fields[name])
        if not isinstance(fields["boot_id"], str) or not isinstance(fields["event"], str):
            return None
        return Line(microseconds(fields["mono_ms"]), fields["seq"], fields["boot_id"], fields["event"], fields, file)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def _wanted(line: Line, options: Options) -> Line | None:
    """The line, if the options select it; a line of version 2 with its selected topics only."""
    cluster = line.get("cluster")
    # Lines `start` and `opened` have the settings of later lines, and `late` a stop of the server.
    if _is_late(line, options) or (_is_early(line, options) and line.event not in {"start", "opened", "late"}):
        return None
    if options.nameservers and line.get("nameserver") not in options.nameservers:
        return None
    # A line without a cluster is about all clusters, and a line without a topic about all topics.
    if options.clusters and cluster is not None and cluster not in options.clusters:
        return None
    named = [topic for entry in entries(line) for topic in entry["topics"]]
    if not options.topics or not named:
        return line
    kept = [{**entry, "topics": [x for x in entry["topics"] if x in options.topics]} for entry in entries(line)]
    is_asked = any(entry["topics"] for entry in kept)
    return replace(line, fields={**line.fields, "entries": kept}) if is_asked else None


def _is_early(line: Line, options: Options) -> bool:
    return options.since_ms is not None and line.fields["ts_ms"] < options.since_ms


def _is_in_time(line: Line, options: Options) -> bool:
    return not (_is_early(line, options) or _is_late(line, options))


def _is_late(line: Line, options: Options) -> bool:
    return options.until_ms is not None and line.fields["ts_ms"] >= options.until_ms


def entries(line: Line) -> list[dict[str, Any]]:
    """(topic, value) pairs of a line, the same for both versions of the log."""
    fields = line.fields
    if "entries" in fields:
        return cast("list[dict[str, Any]]", fields["entries"])
    if line.event == "route" and fields.get("changes") is not None:
        return [{"unset": [], "set": [], "whole": False, **change} for change in fields["changes"]]
    if line.event in {"served", "pulls"} and fields.get("revisions") is not None:
        counts = fields.get("counts") or [None] * len(fields["topics"])
        rows = zip(fields["topics"], fields["revisions"], counts, strict=True)
        return [{"topics": [topic], "revision": revision, "count": count} for topic, revision, count in rows]
    if fields.get("topic") is None:
        return []
    brokers = {"set": fields.get("brokers") or [], "unset": [], "whole": True} if line.event == "route" else {}
    return [{"topics": [fields["topic"]], "revision": line.get("revision"), "count": line.get("count"), **brokers}]


class Boot:
    """One boot of a server, or a part of the boot between gaps: its lines in order, and its clock and settings."""

    def __init__(self, lines: list[Line], options: Options = EVERYTHING, settings: Line | None = None) -> None:
        self.lines = sorted(lines)
        # The extent has only lines in the selected time.
        in_time = [line for line in self.lines if not _is_early(line, options)]
        self.first, self.last = in_time[0], in_time[-1]
        # Sum of the server's delays in the extent.
        self.late = sum(line.time("late_ms") or 0 for line in in_time if line.event == "late")
        self.boot = lines[0].boot
        self.nameserver: str | None = self.lines[0].get("nameserver")
        self._by_event: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            self._by_event[line.event].append(line)
        anchors = sorted(self.of(*ANCHORS), key=lambda line: line.seq)
        # Wall time minus the line's monotonic time, in milliseconds.
        self.offset_ms = whole_milliseconds(lower_median(_difference(line) for line in anchors or self.lines))
        # Line -> liveness time.
        self.live = _liveness(self)
        # None: no line of the boot has the settings.
        self.scan_interval = None if settings is None else settings.time("scan_interval_ms")
        self.expiry = None if settings is None else settings.time("broker_expiry_ms")
        self.version = None if settings is None else settings.get("version")

    def wall(self, at: int) -> int:
        """The wall time of a moment, in microseconds."""
        return at + self.offset_ms * MICROSECONDS

    def wall_ms(self, at: int) -> int:
        """The wall time of a moment, in whole milliseconds."""
        return whole_milliseconds(self.wall(at))

    def of(self, *events: str) -> list[Line]:
        return sorted(line for event in events for line in self._by_event[event])


def boots(lines: Iterable[Line], options: Options = EVERYTHING) -> list[Boot]:
    """The servers' boots, by name and id, without boots of clients and boots that ended before `since`."""
    lines_of: dict[tuple[str, int], list[Line]] = defaultdict(list)
    for line in lines:
        lines_of[line.boot, line.part].append(line)
    servers = {part: ours for part, ours in lines_of.items() if not any(line.event in OF_CLIENTS for line in ours)}
    # boot -> line with the settings of the boot
    settings: dict[str, Line] = {}
    for event in ("start", "opened"):
        for line in sorted(line for ours in servers.values() for line in ours if line.event == event):
            settings.setdefault(line.boot, line)
    found = [
        Boot(ours, options, settings.get(boot))
        for (boot, _), ours in servers.items()
        if not all(_is_early(line, options) for line in ours)
    ]
    return sorted(found, key=lambda boot: (boot.nameserver or "", boot.boot, boot.first.at, boot.last.at))


def _difference(line: Line) -> int:
    return int(line.fields["ts_ms"]) * MICROSECONDS - line.at


def _liveness(boot: Boot) -> dict[int, int]:
    """Line number -> liveness time."""
    live: dict[int, int] = {}
    late = 0 if boot.of("start") else next((line.time("late_ms") or 0 for line in boot.of("opened")), 0)
    for line in boot.lines:
        late += (line.time("late_ms") or 0) if line.event == "late" else 0
        live[line.seq] = line.at - late
    # A heartbeat logged before the `late` line of its delay counts as received at the `late` line.
    cap: int | None = None
    for line in reversed(boot.lines):
        if line.event == "late":
            cap = live[line.seq]
        elif cap is not None and line.event in HEARTBEATS:
            live[line.seq] = min(live[line.seq], cap)
    return live
