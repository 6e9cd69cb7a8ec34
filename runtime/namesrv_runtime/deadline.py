"""Ends the process at its shutdown deadline, even when a thread hangs.

Python joins all threads before it exits, and the event loop joins those of its executor: a thread that hangs on a disk
or on a pipe without a writer would keep the process alive for ever.
"""

import logging
import os
import sys
import threading
from contextlib import suppress
from typing import Final, Self

from namesrv_runtime import log
from namesrv_runtime.threads import NoThreadError, thread_starts

logger: Final = logging.getLogger(__name__)


class ExitDeadline:
    """Ends this process at a deadline that can be moved, unless this context has been left by then."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def move(self, seconds: float, code: int) -> None:
        """Replace the deadline: end the process in `seconds` with this exit code.

        A process that can start no thread has no deadline: a stop must not fail for that.
        """
        self.__exit__()
        self._timer = threading.Timer(seconds, _end, (code,))
        self._timer.daemon = True
        with suppress(NoThreadError), thread_starts():
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
