"""A log whose lines are written by a thread, so that the event loop never waits for the disk.

The loop puts items into a bounded queue; one thread turns them into lines and writes the lines, another thread
compresses closed files. When the queue is full, items are counted as dropped. A failed write is repeated until it
succeeds.
"""

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from namesrv_runtime.line_archive import LineArchive, Report
from namesrv_runtime.line_files import LineFiles, Retention, moments_of_hour
from namesrv_runtime.line_queue import DEFAULT_MAX_QUEUED, Dropped, Item, Light, LineQueue
from namesrv_runtime.threads import thread_starts
from namesrv_runtime.write_state import WriteState

T = TypeVar("T")

# A line is visible to other processes about this long after its event, unless many lines are queued.
FLUSH_SECONDS: Final = 0.2
_RETRY_SECONDS: Final = 1.0
# The assumed length of a line until the real length is known.
_LONG_LINE_BYTES: Final = 4096
# With less queued weight than this, the thread waits for more.
_FEW: Final = 64
# The pause between two chunks leaves the interpreter to the loop. Without the pause, this thread would get the
# interpreter after each event of the loop, and every event would wait for a chunk.
_PAUSE_SECONDS: Final = 0.001


class Encoder(Protocol):
    """Turns items into lines; only the writing thread calls it."""

    def line(self, item: Item) -> bytes:
        """The line of an item, with its line end."""

    def lines(self, items: Sequence[Item | Light]) -> bytes:
        """The lines of several items."""
        return b"".join(map(self.line, cast("Sequence[Item]", items)))

    def opened(self, item: Item) -> bytes:
        """The first line of each further file; `item` has the times of the file's first item, and nothing else."""

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


class LineLog:
    """A log that a thread writes; the loop only calls `put`."""

    def __init__(  # noqa: PLR0913 - keyword arguments: callbacks and limits
        self,
        files: LineFiles,
        encoder: Encoder,
        *,
        report: Report,
        name: str = "heartbeat_log",
        max_queued: int = DEFAULT_MAX_QUEUED,
        max_uncompressed: int = 0,
        on_compressed: Callable[[Path, threading.Event], None] | None = None,
    ) -> None:
        self.writes = WriteState()
        # reports problems; the event begins with the log's name
        self._report: Report = lambda level, event, fields: report(level, f"{name}_{event}", fields)
        self._queue = LineQueue(max_queued)
        # puts an item; called directly, because there may be a hundred thousand heartbeats a second
        self.put: Callable[[Item | Light], None] = self._queue.put
        self._closing = threading.Event()
        self._archive = LineArchive(
            files,
            self._report,
            closing=self._closing,
            max_uncompressed=max_uncompressed,
            on_compressed=on_compressed,
        )
        self._files = files
        self._encoder = encoder
        # average length of the lines in the last chunk
        self._line_bytes = _LONG_LINE_BYTES
        # the first line of the current file while it is not written yet
        self._opening = b""
        self._wake = threading.Event()
        # the time at which the writing thread gives up failing writes, after `_closing` is set
        self._deadline = float("inf")
        # done when both threads have ended, or when one has raised an unexpected error
        self._ended: asyncio.Future[None]

    @property
    def queued(self) -> int:
        """The weight of the items that wait to be written."""
        return self._queue.weight

    @property
    def dropped(self) -> int:
        """Number of lines that were lost since the start."""
        return self._queue.dropped

    @property
    def retention(self) -> Retention:
        """How much of the log is kept."""
        return self._files.retention

    # -- the loop's side ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads; `run` raises their unexpected errors on the running loop. Raises NoThreadError."""
        self._ended = asyncio.get_running_loop().create_future()
        for name, work in (("write_lines", self._write_all), ("archive_lines", self._archive.run)):
            with thread_starts():
                threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True).start()

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
        return self.queued == 0

    # -- the writing thread -------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        bug: BaseException | None = None
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the loop raises it
            bug = error
        if bug is not None or self._archive.is_complete:
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
        self._end_file()
        self._archive.add(None)

    def _write_queued(self) -> None:
        queue = self._queue
        while (first := queue.first) is not None:
            # A new file begins before the lines are made: the sequence number of its first line precedes theirs.
            if self._files.is_due(first[0]) and not self._persist(self._begin_file, first):
                return
            # The number of lines is limited so that a file exceeds its size by little.
            most_lines = 1 + self._files.room // self._line_bytes
            chunk, weight = queue.take(*moments_of_hour(first[0]), most_lines)
            lines = self._lines(chunk)
            self._line_bytes = 1 + len(lines) // len(chunk)
            if not self._persist(self._files.write, lines):
                return
            queue.written(weight)
            if queue.weight < _FEW and not self._closing.is_set():
                # Waking up for a few lines costs more than making them.
                return
            self._closing.wait(_PAUSE_SECONDS)

    def _lines(self, chunk: Sequence[Item | Light]) -> bytes:
        first = chunk[0]
        if type(first) is Item and type(first.what) is Dropped:
            return self._encoder.dropped(first.what.lines, first)
        return self._encoder.lines(chunk)

    def _begin_file(self, item: Item | Light) -> None:
        wall, monotonic, *_ = item
        if self._files.is_due(wall):
            self._end_file()
            is_later = self._files.count > 0
            self._files.begin(wall)
            # The line is made only now, when the file exists, because the line takes a sequence number.
            self._opening = self._encoder.opened(Item(wall, monotonic, None)) if is_later else b""
        self._files.write(self._opening)
        self._opening = b""

    def _end_file(self) -> None:
        path = self._files.end()
        if path is not None:
            self._archive.add(path)

    def _persist(self, action: Callable[[T], None], what: T) -> bool:
        """Repeat a disk operation until it succeeds; False if the log's closing deadline came first."""
        while True:
            had_failed = self.writes.has_failed
            try:
                with self.writes.writing():
                    action(what)
            except OSError as error:
                if not had_failed:
                    fields = {"directory": self._files.directory, "error": error, "queued": self.queued}
                    self._report(logging.ERROR, "not_written", fields)
                if self._closing.wait(_RETRY_SECONDS):
                    if time.monotonic() > self._deadline:
                        return False
                    time.sleep(FLUSH_SECONDS)
            else:
                if had_failed:
                    self._report(logging.INFO, "write_recovered", {"dropped": self.dropped})
                return True
