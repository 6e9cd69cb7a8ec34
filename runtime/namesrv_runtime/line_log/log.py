"""A log whose lines are written by threads, so that the event loop never waits for the disk.

The loop puts items into a bounded queue (`LineQueue`). One thread turns them into lines and writes the lines
(`LineWriter`), another one compresses closed files (`LineArchive`). When the queue is full, items are counted as
dropped.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from namesrv_runtime.line_log.archive import LineArchive, Report
from namesrv_runtime.line_log.files import LineFiles, Retention
from namesrv_runtime.line_log.queue import DEFAULT_MAX_QUEUED, Item, Light, LineQueue
from namesrv_runtime.line_log.writer import FLUSH_SECONDS, Encoder, LineWriter
from namesrv_runtime.threads import thread_starts
from namesrv_runtime.write_state import WriteState


class LineLog:
    """A log that threads write; the loop only calls `put`."""

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
        self._queue = LineQueue(max_queued)
        # puts an item; called directly, because there may be a hundred thousand heartbeats a second
        self.put: Callable[[Item | Light], None] = self._queue.put
        self._files = files
        closing = threading.Event()

        def report_named(level: int, event: str, fields: dict[str, Any]) -> None:
            report(level, f"{name}_{event}", fields)

        self._archive = LineArchive(
            files,
            report_named,
            closing=closing,
            max_uncompressed=max_uncompressed,
            on_compressed=on_compressed,
        )
        self._writer = LineWriter(self._queue, files, encoder, report_named, closing=closing, archive=self._archive)
        # done when both threads have ended, or when one has raised an unexpected error
        self._ended: asyncio.Future[None]

    @property
    def writes(self) -> WriteState:
        """The state of writing the files."""
        return self._writer.writes

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

    def start(self) -> None:
        """Start the threads; `run` raises their unexpected errors on the running loop. Raises NoThreadError."""
        self._ended = asyncio.get_running_loop().create_future()
        for name, work in (("write_lines", self._writer.run), ("archive_lines", self._archive.run)):
            with thread_starts():
                threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True).start()

    async def run(self) -> None:
        """Return when the log is closed, or raise the error that ended a thread."""
        await asyncio.shield(self._ended)

    async def close(self, seconds: float) -> bool:
        """Write the queued items and close the file; False if that took too long."""
        self._writer.stop(deadline=time.monotonic() + seconds)
        try:
            # The loop waits a little longer than the thread, which has the same deadline.
            async with asyncio.timeout(seconds + 2 * FLUSH_SECONDS):
                await asyncio.shield(self._ended)
        except TimeoutError:
            return False
        return self.queued == 0

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do the work of one thread; report to the loop when the last thread ends, or one fails."""
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
