"""The thread that writes a log's queued items as lines; it repeats a failed write until that succeeds."""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from namesrv_runtime.line_log.archive import LineArchive, Report
from namesrv_runtime.line_log.files import LineFiles, moments_of_hour
from namesrv_runtime.line_log.queue import Dropped, Item, Light, LineQueue
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


class LineWriter:
    """Writes the items of a queue to files; `run` belongs into a thread of its own."""

    def __init__(  # noqa: PLR0913 - the parts of a log
        self,
        queue: LineQueue,
        files: LineFiles,
        encoder: Encoder,
        report: Report,
        *,
        closing: threading.Event,
        archive: LineArchive,
    ) -> None:
        self.writes = WriteState()
        # the monotonic time at which failing writes are given up, once `closing` is set
        self._deadline = float("inf")
        self._queue = queue
        self._files = files
        self._encoder = encoder
        # reports failed writes
        self._report = report
        # set when the log closes
        self._closing = closing
        # gets each file that has its last line
        self._archive = archive
        # average length of the lines in the last chunk
        self._line_bytes = _LONG_LINE_BYTES
        # the first line of the current file while it is not written yet
        self._opening = b""

    def stop(self, deadline: float) -> None:
        """Let `run` end when the queue is empty, or at this monotonic time if writes fail until then."""
        self._deadline = deadline
        self._closing.set()

    def run(self) -> None:
        """Write items until the log closes and the queue is empty, or the deadline has passed."""
        while not self._closing.wait(FLUSH_SECONDS):
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
                    fields = {"directory": self._files.directory, "error": error, "queued": self._queue.weight}
                    self._report(logging.ERROR, "not_written", fields)
                if self._closing.wait(_RETRY_SECONDS):
                    if time.monotonic() > self._deadline:
                        return False
                    time.sleep(FLUSH_SECONDS)
            else:
                if had_failed:
                    self._report(logging.INFO, "write_recovered", {"dropped": self._queue.dropped})
                return True
