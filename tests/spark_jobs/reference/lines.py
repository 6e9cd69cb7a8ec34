"""Lines of the files: each is an event, or counted as something that is none."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from namesrv_spark_jobs.options import Options
from tests.spark_jobs.reference.numbers import microseconds

VERSION = 2
BEATS = frozenset({"register", "heartbeat"})
OF_CLIENTS = frozenset({"refreshed", "send_failed", "isolated"})
KNOWN = (
    BEATS
    | OF_CLIENTS
    | {"start", "opened", "stop", "unregister", "evict", "fenced", "scan", "late", "route", "served", "client_gone"}
    | {"pulls", "dropped"}
)
# what is a number when it is there
WHOLE = frozenset({"broker_id", "scan", "revision", "count"})
TIMES = frozenset({"expiry_ms", "silent_ms", "late_ms", "scan_interval_ms", "broker_expiry_ms"})

# the year 2200
LATEST_WALL_MS = 7_258_118_400_000
MOST_COUNT = 10**12

EVERYTHING = Options()


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """One event. Lines compare as the contract orders those of one boot."""

    # mono_ms
    at: int
    seq: int
    boot: str = field(compare=False)
    nameserver: str | None = field(compare=False)
    # ts_ms
    wall_ms: int = field(compare=False)
    event: str = field(compare=False)
    # all that the line has
    fields: Mapping[str, Any] = field(compare=False)
    file: str = field(compare=False)

    def get(self, name: str) -> Any:
        """A further field; None when it is missing."""
        return self.fields.get(name)

    def time(self, name: str) -> int | None:
        """A further field that is a time in milliseconds."""
        value = self.fields.get(name)
        return None if value is None else microseconds(value)


@dataclass(slots=True)
class FileCount:
    """What became of the lines of one file."""

    lines: int = 0
    bad: int = 0
    duplicates: int = 0
    newer_version: int = 0
    unknown_events: int = 0
    # not asked for
    left_out: int = 0
    dropped_by_writers: int = 0
    clock_steps: int = 0


@dataclass(slots=True)
class Reading:
    """All lines once, and the counts of each file."""

    lines: list[Line] = field(default_factory=list)
    files: dict[str, FileCount] = field(default_factory=dict)


def read(files: Mapping[str, Iterable[str | bytes]], options: Options = EVERYTHING) -> Reading:
    """Read every line of every file; of lines with one number of one boot the first is kept."""
    reading = Reading()
    met: set[tuple[str, int]] = set()
    for name in sorted(files):
        count = reading.files[name] = FileCount()
        found = (_looked_at(text, name, count, options) for text in files[name] if text.strip())
        for line in found:
            if line is None:
                continue
            if (line.boot, line.seq) in met:
                count.duplicates += 1
                continue
            met.add((line.boot, line.seq))
            count.newer_version += line.fields["v"] > VERSION
            count.unknown_events += line.event not in KNOWN
            count.dropped_by_writers += line.get("count") or 0 if line.event == "dropped" else 0
            reading.lines.append(line)
    return reading


def _looked_at(text: str | bytes, file: str, count: FileCount, options: Options) -> Line | None:
    """The event of a line, if it is one that was asked for."""
    count.lines += 1
    line = parsed(text, file)
    if line is None:
        count.bad += 1
    elif (wanted := _wanted(line, options)) is None:
        count.left_out += 1
        return None
    else:
        return wanted
    return line


def _wanted(line: Line, options: Options) -> Line | None:
    """A line, if it was asked for; one of version 2 with those of its topics that were."""
    if not _is_wanted(line, options):
        return None
    named = [topic for entry in entries(line) for topic in entry["topics"]]
    if not options.topics or not named:
        return line
    kept = [{**entry, "topics": [x for x in entry["topics"] if x in options.topics]} for entry in entries(line)]
    is_asked = any(entry["topics"] for entry in kept)
    return replace(line, fields={**line.fields, "entries": kept}) if is_asked else None


def entries(line: Line) -> list[dict[str, Any]]:
    """What a line says of topics, in one form for both versions: `topics`, and what goes with each of these lists."""
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


def _is_wanted(line: Line, options: Options) -> bool:
    is_early = options.since_ms is not None and line.wall_ms < options.since_ms
    is_late = options.until_ms is not None and line.wall_ms >= options.until_ms
    # they tell the settings of all that follows
    if (is_early or is_late) and line.event not in {"start", "opened"}:
        return False
    if options.nameservers and line.nameserver not in options.nameservers:
        return False
    # a line without a cluster is about all of them
    return not options.clusters or line.get("cluster") is None or line.get("cluster") in options.clusters


def parsed(text: str | bytes, file: str = "") -> Line | None:
    """The event of a line; None when it is none: torn, no JSON, or without what every line has."""
    try:
        fields = json.loads(text)
        return Line(
            at=microseconds(fields["mono_ms"]),
            seq=_whole(fields["seq"]),
            boot=_text(fields["boot_id"]),
            nameserver=fields.get("nameserver"),
            wall_ms=_whole(fields["ts_ms"]),
            event=_text(fields["event"]),
            fields=_checked(fields),
            file=file,
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, when those that are numbers are numbers, and those that are times or counts are possible ones."""
    if not (0 <= fields["ts_ms"] <= LATEST_WALL_MS and 0 <= (fields.get("count") or 0) <= MOST_COUNT):
        raise ValueError(fields)
    _whole(fields["v"])
    for name in WHOLE & fields.keys():
        if fields[name] is not None:
            _whole(fields[name])
    for name in TIMES & fields.keys():
        if fields[name] is not None:
            microseconds(fields[name])
    return fields


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
