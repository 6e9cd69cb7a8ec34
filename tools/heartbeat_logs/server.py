"""The log of one NameServer, chunk by chunk."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
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
        # Broker -> its last heartbeat before this chunk, and the number of that line.
        self._last_seqs: dict[int, tuple[int, int]] = {}
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
        evictions = [change.eviction for change in chunk.changes if change.eviction is not None]
        marked = [(eviction.at, eviction.before_seq + eviction.after_seq) for eviction in evictions]
        late_lines = [
            (late.line, tail("late", late_ms=late.length / 1000))
            for late in self._boot.lates
            if begin <= late.line < until
        ]
        events = sorted([*self._carried, *chunk.events, *marked, *late_lines])
        events, self._carried = events[: bisect_left(events, (until,))], events[bisect_left(events, (until,)) :]
        opening = self._opening(begin) if is_new else []
        self._number_evictions(events, evictions, self._seq + 1 + len(opening))
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

    def _number_evictions(self, events: list[Event], evictions: Sequence[Any], first_seq: int) -> None:
        """Insert the number of the last heartbeat of each evicted broker, and keep the numbers of the other brokers."""
        self._moved = self._moves(len(events))
        for eviction in evictions:
            broker = eviction.broker
            seq = self._seq_of(events, first_seq, eviction.last_ok, broker.addr)
            if seq is None:
                known = self._last_seqs.get(broker.index)
                seq = known[1] if known is not None and known[0] == eviction.last_ok else None
            text = eviction.before_seq + eviction.after_seq
            where = bisect_left(events, (eviction.at, text))
            complete = f"{eviction.before_seq}{'null' if seq is None else seq}{eviction.after_seq}"
            if where < len(events) and events[where] == (eviction.at, text):
                events[where] = (eviction.at, complete)
            else:
                self._carried[self._carried.index((eviction.at, text))] = (eviction.at, complete)
        for of_broker in self._broker_lines:
            if of_broker.last_ok is not None:
                seq = self._seq_of(events, first_seq, of_broker.last_ok, of_broker.broker.addr)
                if seq is not None:
                    self._last_seqs[of_broker.broker.index] = of_broker.last_ok, seq

    def _seq_of(self, events: list[Event], first_seq: int, at: int, addr: str) -> int | None:
        where = bisect_left(events, (at,))
        while where < len(events) and events[where][0] == at:
            if f'"broker_addr":"{addr}"' in events[where][1] and '"kind":' in events[where][1]:
                return first_seq + self._moved.get(where, where)
            where += 1
        return None

    def _moves(self, count: int) -> dict[int, int]:
        """Old position -> new position, for pairs of neighbouring lines that are swapped."""
        rate = self._settings.out_of_order
        firsts = (
            sorted(self._random.sample(range(0, count - 1, 2), int(rate * count / 2))) if rate and count > 1 else []
        )
        return {**{first: first + 1 for first in firsts}, **{first + 1: first for first in firsts}}

    def _reordered(self, events: list[Event]) -> list[Event]:
        return [events[self._moved.get(number, number)] for number in range(len(events))] if self._moved else events

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
