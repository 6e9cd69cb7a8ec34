"""The log of one NameServer, chunk by chunk."""

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from tools.heartbeat_logs.boots import Boot, boots
from tools.heartbeat_logs.files import Files
from tools.heartbeat_logs.heartbeats import BrokerLines, Chunk
from tools.heartbeat_logs.lines import Event, numbered, settings_fields, tail
from tools.heartbeat_logs.routes import Routes
from tools.heartbeat_logs.settings import HOUR, Settings
from tools.heartbeat_logs.truth import removal_record
from tools.heartbeat_logs.world import World

# Lines per chunk: enough for speed, few enough for memory.
CHUNK_LINES: Final = 50_000


def nameserver_name(number: int) -> str:
    """The name of a server."""
    return f"ns-{number + 1}"


def write_log(settings: Settings, world: World, nameserver: int, directory: Path) -> tuple[int, list[dict[str, Any]]]:
    """Write the log of one server; returns the number of lines, and the removals for the truth."""
    count, removals = 0, list[dict[str, Any]]()
    runs = boots(settings, nameserver)
    for boot in runs:
        name = nameserver_name(nameserver)
        with Files(directory, boot, name) as files:
            log = _BootLog(settings, world, boot, name)
            for lines in log.chunks(files):
                files.write(lines)
                count += len(lines)
            if not boot.is_stopped:
                files.tear(leave_open=boot is runs[-1])
        removals += [removal_record(boot, name, removal) for removal in log.routes.removals]
    return count, removals


class _BootLog:
    """The lines of one boot, chunk by chunk."""

    def __init__(self, settings: Settings, world: World, boot: Boot, name: str) -> None:
        removals: dict[int, int] = {}
        self._settings = settings
        self._boot = boot
        self._name = name
        self._broker_lines = [BrokerLines(settings, boot, broker, removals) for broker in world.brokers]
        self.routes = Routes(settings, boot, world)
        self._random = Random(f"faults of {settings.seed}/{boot.boot_id}")
        self._seq = 0
        # Events for a later chunk, and lines to be written a second time.
        self._carried: list[Event] = []
        self._again: list[str] = []

    def chunks(self, files: Files) -> Iterator[list[str]]:
        """The lines, chunk by chunk; the file of a chunk is open before the chunk is returned."""
        begin = self._boot.start
        span = HOUR // max(1, round(self._settings.lines_per_second * 3600 / self._settings.nameservers / CHUNK_LINES))
        while begin < self._boot.end:
            hour = begin // HOUR * HOUR
            until = min(hour + ((begin - hour) // span + 1) * span, hour + HOUR, self._boot.end)
            yield self._chunk(begin, until, is_new=files.begin(begin))
            begin = until

    def _chunk(self, begin: int, until: int, *, is_new: bool) -> list[str]:
        chunk = Chunk(until)
        for of_broker in self._broker_lines:
            of_broker.add(begin, chunk)
        self.routes.add(chunk)
        late_lines = [
            (late.line, tail("late", late_ms=late.length / 1000))
            for late in self._boot.lates
            if begin <= late.line < until
        ]
        events = sorted([*self._carried, *chunk.events, *late_lines])
        events, self._carried = events[: bisect_left(events, (until,))], events[bisect_left(events, (until,)) :]
        opening = self._opening(begin) if is_new else []
        reordered = self._reordered(events)
        if until == self._boot.end and self._boot.is_stopped:
            reordered.append((until, tail("stop", version="0.1.0", dropped=0)))
        lines = self._lines([*opening, *reordered])
        self._seq += len(lines)
        return self._with_duplicates(lines, len(opening))

    def _opening(self, begin: int) -> list[Event]:
        fields = settings_fields(self._settings)
        if begin == self._boot.start:
            return [(begin, tail("start", **fields))]
        late = sum(late.length for late in self._boot.lates if late.line < begin)
        return [(begin, tail("opened", **fields, late_ms=late / 1000))]

    def _reordered(self, events: list[Event]) -> list[Event]:
        """The events, with some pairs of neighbours swapped."""
        pairs = range(0, len(events) - 1, 2)
        for first in self._random.sample(pairs, int(self._settings.out_of_order * len(pairs))):
            events[first], events[first + 1] = events[first + 1], events[first]
        return events

    def _lines(self, events: list[Event]) -> list[str]:
        """The numbered lines, with the wall clock as of each line."""
        lines: list[str] = []
        step, begin = 0, 0
        for at, length in self._boot.clock_steps:
            end = max(begin, next((number for number, event in enumerate(events) if event[0] >= at), len(events)))
            lines += numbered(self._boot, self._name, events[begin:end], self._seq + 1 + begin, step // 1000)
            begin, step = end, step + length
        rest = events[begin:]
        return lines + numbered(self._boot, self._name, rest, self._seq + 1 + begin, step // 1000)

    def _with_duplicates(self, lines: list[str], opening: int) -> list[str]:
        if not self._settings.duplicates:
            return lines
        again, self._again = self._again, [x for x in lines if self._random.random() < self._settings.duplicates]
        return [*lines[:opening], *again, *lines[opening:]]
