"""Compression of a log's closed files, by a thread of low priority that also removes old files."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any, Final

from namesrv_runtime.line_log.files import LineFiles, compress

# The nice value of the thread that compresses, on systems that have priorities for threads.
_NICE: Final = 5

# reports a problem: level, event, fields
Report = Callable[[int, str, dict[str, Any]], None]


class LineArchive:
    """Compresses closed files in the order in which the log closed them, and removes files beyond the retention."""

    def __init__(
        self,
        files: LineFiles,
        report: Report,
        *,
        closing: threading.Event,
        max_uncompressed: int,
        on_compressed: Callable[[Path, threading.Event], None] | None,
    ) -> None:
        # True when the last closed file is compressed
        self.is_complete = False
        self._files = files
        self._report = report
        # set when the log closes
        self._closing = closing
        # called for each compressed file, with `closing`, so that it can give up; may raise OSError
        self._on_compressed = on_compressed
        # closed files that wait for compression; when the queue is full, the writing thread waits
        self._closed: Queue[Path | None] = Queue(max_uncompressed)
        self._is_clock_step_reported = False

    def add(self, path: Path | None) -> None:
        """Queue a closed file for compression; None after the last one."""
        self._closed.put(path)

    def run(self) -> None:
        """Compress files until the last one; for a thread of its own."""
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        for path in self._files.left_open():
            self._compress(path)
        self._remove_old()
        while (closed := self._closed.get()) is not None:
            self._compress(closed)
            self._remove_old()
        self.is_complete = True

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
            removed, has_clock_step = self._files.remove_old(time.time(), steady)
        except OSError as error:
            self._report(logging.WARNING, "not_removed", {"error": error})
            return
        if removed:
            self._report(logging.INFO, "removed", {"files": len(removed)})
        if has_clock_step and not self._is_clock_step_reported:
            self._report(logging.WARNING, "clock_step_detected", {"kept_days": self._files.retention.keep_days})
        self._is_clock_step_reported = has_clock_step
