"""The end of a process in time, whatever its threads wait for.

Python joins threads before it ends, and the loop joins its own: one that hangs in a disk or in a pipe that nobody
writes would keep the process for ever.
"""

import logging
import os
import sys
import threading
from typing import Final, Self

from namesrv_runtime import log

logger: Final = logging.getLogger(__name__)


class ExitDeadline:
    """Ends this process at a moment that can be moved, unless this context is left by then."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def move(self, seconds: float, code: int) -> None:
        """End the process so many seconds from now with this exit code, instead of any earlier deadline."""
        self.__exit__()
        self._timer = threading.Timer(seconds, _end, (code,))
        self._timer.daemon = True
        self._timer.start()


def _end(code: int) -> None:
    frames = sys._current_frames()  # noqa: SLF001 - documented, and the one way to see where a thread is
    hanging = [
        f"{thread.name} in {frames[thread.ident].f_code.co_filename}:{frames[thread.ident].f_lineno}"
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread() and thread.ident in frames
    ]
    log.event(logger, logging.WARNING, "threads_left_behind", threads=hanging)
    log.event(logger, logging.INFO, "stopped")
    log.flush(log.FLUSH_SECONDS)
    os._exit(code)
