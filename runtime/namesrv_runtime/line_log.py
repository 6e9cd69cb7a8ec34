"""A log whose lines are written by a thread, so that the event loop never waits for the disk.

The loop puts items into a bounded queue; one thread turns them into lines and writes the lines, another thread
compresses closed files. When the queue is full, items are counted as dropped. A failed write is repeated until it
succeeds.
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
# A line is visible to other processes this long after its event.
FLUSH_SECONDS: Final = 0.2
_RETRY_SECONDS: Final = 1.0
# A chunk is the weight that is encoded and written at once; the loop waits while this thread runs Python. Chunks grow
# with the queue. Light items count a quarter, because encoding them takes a quarter of the time.
_LEAST_CHUNK: Final = 128
_MOST_CHUNK: Final = 1024
_CHUNKS_QUEUED: Final = 32
_LIGHT_SHARE: Final = 0.25
# The assumed length of a line until the real length is known.
_LONG_LINE_BYTES: Final = 4096
# With fewer queued items than this, the thread waits for more.
_FEW: Final = 64
# The pause between two chunks leaves the interpreter to the loop. Without the pause, this thread would get the
# interpreter after each event of the loop, and every event would wait for a chunk.
_PAUSE_SECONDS: Final = 0.004
# Compression gets the lowest priority, on systems that have priorities for threads.
_NICE: Final = 5


@final
class Item(NamedTuple):
    """One event and its time."""

    # seconds since 1970; this time decides which file gets the line
    wall: float
    # seconds on the monotonic clock
    monotonic: float
    what: Any
    # share of the queue's limit that the item takes; an ordinary line takes 1
    weight: int = 1


# A very frequent item may be a plain tuple that begins with the same two times as an Item and has a weight of 1; its
# encoder knows the rest. A plain tuple takes half the time to make and half the memory.
Light: TypeAlias = tuple[Any, ...]


class Encoder(Protocol):
    """Turns items into lines; only the writing thread calls it."""

    def line(self, item: Item) -> bytes:
        """The line of an item, with its line end."""

    def lines(self, items: Sequence[Item | Light]) -> bytes:
        """The lines of several items."""
        return b"".join(map(self.line, cast("Sequence[Item]", items)))

    def opened(self, item: Item) -> bytes:
        """The first line of each further file, whose first item is `item`."""

    def dropped(self, count: int, item: Item) -> bytes:
        """The line that reports that `count` lines before this item are missing."""


_encode: Final = msgspec.json.Encoder().encode


def encoded(value: Any) -> bytes:
    """A value in compact ASCII JSON, free of control characters that a terminal would act on."""
    try:
        spelt = _encode(value)
        if spelt.isascii() and b"\x7f" not in spelt:
            return spelt
    except UnicodeEncodeError:  # half of a surrogate pair
        pass
    return json.dumps(value, separators=(",", ":")).replace("\x7f", "\\u007f").encode("ascii")


Report = Callable[[int, str, dict[str, Any]], None]


class LineLog:
    """A log that a thread writes; the loop only calls `put`."""

    def __init__(  # noqa: PLR0913 - keyword arguments: callbacks and limits
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
        # lines that were lost since the start
        self.dropped = 0
        self.retention = retention
        self.writes = WriteState()
        self._files = files
        self._encoder = encoder
        # reports problems: level, event (which begins with the log's name), fields
        self._report: Report = lambda level, event, fields: report(level, f"{name}_{event}", fields)
        self._max_queued = max_queued
        self._items: deque[Item | Light] = deque()
        # weight put and weight taken so far; each number is changed by one thread only
        self._put = 0
        self._taken = 0
        # average length of the lines in the last chunk
        self._line_bytes = _LONG_LINE_BYTES
        # dropped items that no `dropped` line reports yet
        self._unreported = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._is_failing = False
        # the first line of the current file while it is not written yet
        self._opening = b""
        self._is_archived = False
        self._is_clock_step_reported = False
        # called in the compressing thread for each compressed file, with an event that is set when the log closes; may
        # raise OSError
        self._on_compressed = on_compressed
        # closed files that wait for compression; when the queue is full, the writing thread waits
        self._archive: Queue[Path | None] = Queue(max_uncompressed)
        # done when both threads have ended, or when one has raised an unexpected error
        self._ended: asyncio.Future[None]

    @property
    def queued(self) -> int:
        """The weight of the items that wait to be written."""
        return self._put - self._taken

    # -- the loop's side ----------------------------------------------------------------------------------------------

    def put(self, item: Item | Light) -> None:
        """Queue an item for the writing thread; drop and count it when the queue is full."""
        weight = item.weight if type(item) is Item else 1
        if self._put - self._taken + weight > self._max_queued:
            self.dropped += 1
            self._unreported += 1
            return
        if self._unreported:
            self._items.append(Item(item[0], item[1], _Dropped(self._unreported), 0))
            self._unreported = 0
        self._put += weight
        self._items.append(item)

    def start(self) -> None:
        """Start the threads; `run` raises their unexpected errors on the running loop."""
        self._ended = asyncio.get_running_loop().create_future()
        for work in (self._write_all, self._archive_all):
            threading.Thread(target=self._guarded, args=(work,), name=work.__name__, daemon=True).start()

    async def run(self) -> None:
        """Return when the log is closed, or raise the error that ended a thread."""
        await asyncio.shield(self._ended)

    async def close(self, seconds: float) -> bool:
        """Write the queued items and close the file; False if that took too long."""
        self._deadline = time.monotonic() + seconds
        self._closing.set()
        self._wake.set()
        try:
            # The loop waits a little longer than the thread, which has the same deadline.
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
            # A new file begins before the lines are made: the sequence number of its first line precedes theirs.
            if self._files.is_due(first[0]) and not self._persist(self._begin_file, first):
                return
            chunk, weight = self._next_chunk(*moments_of_hour(first[0]))
            lines = self._lines(chunk)
            self._line_bytes = 1 + len(lines) // len(chunk)
            if not self._persist(self._files.write, lines):
                self.dropped += len(chunk)
            self._taken += weight
            if self.queued < _FEW and not self._closing.is_set():
                # Waking up for a few lines costs more than making them.
                return
            self._closing.wait(_PAUSE_SECONDS)

    def _next_chunk(self, begin: float, end: float) -> tuple[list[Item | Light], int]:
        """The next items between these times that fit into the file, or one for dropped items; and their weight."""
        items = self._items
        chunk: list[Item | Light] = []
        weight, cost = 0, 0.0
        most = min(max(self.queued // _CHUNKS_QUEUED, _LEAST_CHUNK), _MOST_CHUNK)
        # The number of lines is limited so that a file exceeds its size by little.
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
            # The line is made only now, when the file exists, because the line takes a sequence number.
            self._opening = self._encoder.opened(Item(wall, monotonic, None)) if is_later else b""
        self._files.write(self._opening)
        self._opening = b""

    def _archive_file(self) -> None:
        path = self._files.end()
        if path is not None:
            self._archive.put(path)

    def _persist(self, action: Callable[[T], None], what: T) -> bool:
        """Repeat a disk operation until it succeeds; False if the log's closing deadline came first."""
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
                    self._report(logging.INFO, "write_recovered", {"dropped": self.dropped})
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
            # The next start of the process tries again; readers can read the uncompressed file until then.
            self._report(logging.WARNING, "not_compressed", {"path": path, "error": error})
            return
        # A process that is stopping does not wait for this callback.
        if self._on_compressed is not None and not self._closing.is_set():
            try:
                self._on_compressed(compressed, self._closing)
            except OSError as error:
                self._report(logging.WARNING, "not_compacted", {"path": compressed, "error": error})

    def _remove_old(self) -> None:
        # CLOCK_BOOTTIME, where it exists, goes on while the machine sleeps: waking up then looks like no clock step.
        steady = time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
        try:
            removed, has_clock_step = self._files.remove_old(time.time(), steady, self.retention)
        except OSError as error:
            self._report(logging.WARNING, "not_removed", {"error": error})
            return
        if removed:
            self._report(logging.INFO, "removed", {"files": len(removed)})
        if has_clock_step and not self._is_clock_step_reported:
            self._report(logging.WARNING, "clock_step_detected", {"kept_days": self.retention.keep_days})
        self._is_clock_step_reported = has_clock_step


class _Dropped(NamedTuple):
    lines: int
