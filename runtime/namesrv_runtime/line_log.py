"""Lines written to disk by a thread, so that the loop never waits for the disk.

The loop puts items into a bounded queue; one thread makes lines of them and writes them, another one compresses files
that are closed. When the queue is full, items are counted as dropped. A disk that fails is tried again until it works.
"""

import asyncio
import contextlib
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Queue
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast, final

import msgspec

from namesrv_runtime.line_files import LineFiles, Retention, compress, moments_of_hour
from namesrv_runtime.write_state import WriteState

T = TypeVar("T")

# Two seconds of a hundred thousand heartbeats; an item takes about 200 bytes for each unit of its weight.
DEFAULT_MAX_QUEUED: Final = 200_000
# A line is on disk (for other processes to see) this long after it happened.
FLUSH_SECONDS: Final = 0.2
_RETRY_SECONDS: Final = 1.0
# Weight that is made into lines and written at once: while Python runs here, the loop waits for it. More of it when
# much waits. Of light items it may be four times as much, which takes as long.
_LEAST_CHUNK: Final = 128
_MOST_CHUNK: Final = 1024
_CHUNKS_QUEUED: Final = 32
_LIGHT_SHARE: Final = 0.25
# What the first lines are taken to have, before it is known what lines have here.
_LONG_LINE_BYTES: Final = 4096
# Less than this waits for more.
_FEW: Final = 64
# Between two chunks the interpreter is the loop's alone: a thread that always wants it gets it after every single
# event of the loop, and a burst of lines would make each event wait for a chunk.
_PAUSE_SECONDS: Final = 0.004
# Compression is below everything else, where the system has priorities for threads.
_NICE: Final = 5


@final
class Item(NamedTuple):
    """One thing that happened, and when."""

    # seconds since 1970; decides on the file
    wall: float
    # seconds on the monotonic clock
    monotonic: float
    what: Any
    # what it takes in the queue, where an ordinary line takes 1
    weight: int = 1


# What is put very often may be a plain tuple that begins with its moments as an Item does, and has a weight of 1: its
# encoder knows what else is in it. It takes half the time to make, and half the memory.
Light: TypeAlias = tuple[Any, ...]


class Encoder(Protocol):
    """Makes lines of items; called by the writing thread only."""

    def line(self, item: Item) -> bytes:
        """The line of an item, with its end."""

    def lines(self, items: Sequence[Item | Light]) -> bytes:
        """The lines of some items."""
        return b"".join(map(self.line, cast("Sequence[Item]", items)))

    def opened(self, item: Item) -> bytes:
        """The first line of every file but the first one, which begins with this item."""

    def dropped(self, count: int, item: Item) -> bytes:
        """The line that says that so many lines before this item are missing."""


_encode: Final = msgspec.json.Encoder().encode


def encoded(value: Any) -> bytes:
    """A value in compact JSON, in ASCII: nothing in it acts on a terminal or cannot be written."""
    try:
        spelt = _encode(value)
        if spelt.isascii() and b"\x7f" not in spelt:
            return spelt
    except UnicodeEncodeError:  # half of a surrogate pair
        pass
    return json.dumps(value, separators=(",", ":")).replace("\x7f", "\\u007f").encode("ascii")


Report = Callable[[int, str, dict[str, Any]], None]


class LineLog:
    """A log that a thread writes; `put` is all that the loop does for it."""

    def __init__(  # noqa: PLR0913 - by keyword: whom it tells what, and how much may wait
        self,
        files: LineFiles,
        encoder: Encoder,
        retention: Retention,
        *,
        report: Report,
        name: str = "heartbeat_log",
        max_queued: int = DEFAULT_MAX_QUEUED,
        max_uncompressed: int = 0,
        on_compressed: Callable[[Path, threading.Event], None] | None = None,
    ) -> None:
        # lines that were lost, since the start
        self.dropped = 0
        self.retention = retention
        self.writes = WriteState()
        self._files = files
        self._encoder = encoder
        # tells of trouble: level, event (which begins with the log's name), fields
        self._report: Report = lambda level, event, fields: report(level, f"{name}_{event}", fields)
        self._max_queued = max_queued
        self._items: deque[Item | Light] = deque()
        # weight put and taken so far: each is written by one side only
        self._put = 0
        self._taken = 0
        # of the lines that were made last
        self._line_bytes = _LONG_LINE_BYTES
        # dropped, and not told in the log yet
        self._untold = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._is_failing = False
        # the first line of a file that does not have it yet
        self._opening = b""
        self._is_archived = False
        self._is_clock_doubted = False
        # called for each file once it is compressed, in the compressing thread, with what is set when there is no more
        # time; may raise OSError
        self._on_compressed = on_compressed
        # closed files; where their number is bounded, writing waits for compression
        self._archive: Queue[Path | None] = Queue(max_uncompressed)
        # done when both threads have ended, or one with a bug
        self._ended: asyncio.Future[None]

    @property
    def queued(self) -> int:
        """The weight of what waits to be written."""
        return self._put - self._taken

    # -- the loop's side ----------------------------------------------------------------------------------------------

    def put(self, item: Item | Light) -> None:
        """Have an item written, unless the queue is full."""
        weight = item.weight if type(item) is Item else 1
        if self._put - self._taken + weight > self._max_queued:
            self.dropped += 1
            self._untold += 1
            return
        if self._untold:
            self._items.append(Item(item[0], item[1], _Dropped(self._untold), 0))
            self._untold = 0
        self._put += weight
        self._items.append(item)

    def start(self) -> None:
        """Start writing; the running loop is told of bugs by `run`."""
        self._ended = asyncio.get_running_loop().create_future()
        for work in (self._write_all, self._archive_all):
            threading.Thread(target=self._guarded, args=(work,), name=work.__name__, daemon=True).start()

    async def run(self) -> None:
        """Return when the log is closed, or raise the bug that ended a thread."""
        await asyncio.shield(self._ended)

    async def close(self, seconds: float) -> bool:
        """Write what is queued and close the file; False when that took too long."""
        self._deadline = time.monotonic() + seconds
        self._closing.set()
        self._wake.set()
        try:
            # a little more: the thread has the same deadline
            async with asyncio.timeout(seconds + 2 * FLUSH_SECONDS):
                await asyncio.shield(self._ended)
        except TimeoutError:
            return False
        return not self._items

    # -- the writing thread -------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        bug: BaseException | None = None
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the loop raises it
            bug = error
        if bug is not None or self._is_archived:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._ended.get_loop().call_soon_threadsafe(self._end, bug)

    def _end(self, bug: BaseException | None) -> None:
        if self._ended.done():
            return
        if bug is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(bug)

    def _write_all(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(FLUSH_SECONDS)
            self._write_queued()
        self._write_queued()
        self._archive_file()
        self._archive.put(None)

    def _write_queued(self) -> None:
        items = self._items
        while items:
            first = items[0]
            # before lines are made: their numbers come after that of the new file's first line
            if self._files.is_due(first[0]) and not self._persist(self._begin_file, first):
                return
            chunk, weight = self._next_chunk(*moments_of_hour(first[0]))
            lines = self._lines(chunk)
            self._line_bytes = 1 + len(lines) // len(chunk)
            if not self._persist(self._files.write, lines):
                self.dropped += len(chunk)
            self._taken += weight
            if self.queued < _FEW and not self._closing.is_set():
                # to wake up for a few lines costs more than to make them
                return
            self._closing.wait(_PAUSE_SECONDS)

    def _next_chunk(self, begin: float, end: float) -> tuple[list[Item | Light], int]:
        """Items of these moments that the file has room for, or one that tells of lost ones; and what they weigh."""
        items = self._items
        chunk: list[Item | Light] = []
        weight, cost = 0, 0.0
        most = min(max(self.queued // _CHUNKS_QUEUED, _LEAST_CHUNK), _MOST_CHUNK)
        # so that a file gets little more than it has room for
        most_lines = 1 + self._files.room // self._line_bytes
        while items and cost < most and len(chunk) < most_lines:
            item = items[0]
            if not begin <= item[0] < end:
                break
            if type(item) is Item:
                if type(item.what) is _Dropped:
                    return (chunk, weight) if chunk else ([items.popleft()], 0)
                weight += item.weight
                cost += item.weight
            else:
                weight += 1
                cost += _LIGHT_SHARE
            chunk.append(items.popleft())
        return chunk, weight

    def _lines(self, chunk: Sequence[Item | Light]) -> bytes:
        first = chunk[0]
        if type(first) is Item and type(first.what) is _Dropped:
            return self._encoder.dropped(first.what.lines, first)
        return self._encoder.lines(chunk)

    def _begin_file(self, item: Item | Light) -> None:
        wall, monotonic, *_ = item
        if self._files.is_due(wall):
            self._archive_file()
            is_later = self._files.count > 0
            self._files.begin(wall)
            # only now, when there is a file: it counts as a line
            self._opening = self._encoder.opened(Item(wall, monotonic, None)) if is_later else b""
        self._files.write(self._opening)
        self._opening = b""

    def _archive_file(self) -> None:
        path = self._files.end()
        if path is not None:
            self._archive.put(path)

    def _persist(self, action: Callable[[T], None], what: T) -> bool:
        """Have the disk do it, however long that takes; False when the end came first."""
        while True:
            try:
                with self.writes.writing():
                    action(what)
            except OSError as error:
                if not self._is_failing:
                    self._is_failing = True
                    fields = {"directory": self._files.directory, "error": error, "queued": self.queued}
                    self._report(logging.ERROR, "not_written", fields)
                if self._closing.wait(_RETRY_SECONDS):
                    if time.monotonic() > self._deadline:
                        return False
                    time.sleep(FLUSH_SECONDS)
            else:
                if self._is_failing:
                    self._is_failing = False
                    self._report(logging.INFO, "written_again", {"dropped": self.dropped})
                return True

    # -- the compressing thread ---------------------------------------------------------------------------------------

    def _archive_all(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        closed = list(self._files.left_open())
        while True:
            for path in closed:
                self._compress(path)
            self._remove_old()
            path_or_end = self._archive.get()
            if path_or_end is None:
                self._is_archived = True
                return
            closed = [path_or_end]

    def _compress(self, path: Path) -> None:
        try:
            compressed = compress(path)
        except OSError as error:
            # the next start tries again; until then it is read as it is
            self._report(logging.WARNING, "not_compressed", {"path": path, "error": error})
            return
        # who leaves is not kept
        if self._on_compressed is not None and not self._closing.is_set():
            try:
                self._on_compressed(compressed, self._closing)
            except OSError as error:
                self._report(logging.WARNING, "not_compacted", {"path": compressed, "error": error})

    def _remove_old(self) -> None:
        # where there is a clock that goes on while the machine sleeps: to wake up is no step of the wall clock
        steady = time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
        try:
            removed, is_clock_doubted = self._files.remove_old(time.time(), steady, self.retention)
        except OSError as error:
            self._report(logging.WARNING, "not_removed", {"error": error})
            return
        if removed:
            self._report(logging.INFO, "removed", {"files": len(removed)})
        if is_clock_doubted and not self._is_clock_doubted:
            self._report(logging.WARNING, "clock_doubted", {"kept_days": self.retention.keep_days})
        self._is_clock_doubted = is_clock_doubted


class _Dropped(NamedTuple):
    lines: int
