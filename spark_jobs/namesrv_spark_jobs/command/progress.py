"""What does a person at a terminal see while the report is made?"""

import io
import os
import sys
import threading
import time
from types import TracebackType
from typing import Final, Self, TextIO

_FRAMES: Final = "|/-\\"
_TICK_SECONDS: Final = 0.2
_WIPE: Final = "\r\x1b[K"


class Progress:
    """One line that is written over, on a terminal only; call it with what is being done now."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream if stream is not None else _standard_error()
        self._is_ours = self._stream is not stream and self._stream is not sys.stderr
        self._quiet = quiet
        # a line that is written over makes sense only where someone looks
        self._live = not quiet and self._stream.isatty()
        # guards `_doing` and the stream against the ticking thread
        self._lock = threading.Lock()
        self._doing = ""
        self._started = time.monotonic()
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self._live:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._live:
            self._ticker.join()
            self._write(_WIPE)
        if self._is_ours:
            self._stream.close()

    def __call__(self, doing: str) -> None:
        """Say what is being done now."""
        with self._lock:
            self._doing = doing

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._started

    def line(self, text: str) -> None:
        """A line that stays, on a terminal and elsewhere; nothing when quiet."""
        if not self._quiet:
            self._write(f"{_WIPE if self._live else ''}{text}\n")

    def _tick(self) -> None:
        turn = 0
        while not self._over.wait(_TICK_SECONDS):
            turn += 1
            frame = _FRAMES[turn % len(_FRAMES)]
            self._write(f"{_WIPE}{frame} {self._doing} ({self.seconds:.0f} s)")

    def _write(self, text: str) -> None:
        with self._lock:
            self._stream.write(text)
            self._stream.flush()


def _standard_error() -> TextIO:
    """Standard error as it is now: while Java starts, it leads through a filter that waits for whole lines."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="backslashreplace")
    except (OSError, io.UnsupportedOperation):
        return sys.stderr
