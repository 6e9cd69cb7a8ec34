"""Gives free memory back to the operating system.

glibc keeps free memory that lies between blocks in use, and each burst of requests leaves more of it: without
`malloc_trim`, an idle server would hold twice the memory that it needs, and grow for hours.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# malloc_trim takes half a millisecond, and memory that is used again has to be requested from the system again.
EVERY_SECONDS: Final = 15.0
# malloc_trim takes at most a thousandth of the time: threads that allocate wait meanwhile, and with tens of thousands
# of free blocks one call takes tens of milliseconds.
_PAUSE_SHARE: Final = 1000


@contextmanager
def given_back(every_seconds: float = EVERY_SECONDS) -> Iterator[None]:
    """Give free memory back from time to time until the block ends, in a thread; Python code runs meanwhile."""
    ended = threading.Event()

    def work() -> None:
        # malloc_trim is looked up after the first pause, to keep the start short.
        if ended.wait(every_seconds) or (trim := _malloc_trim()) is None:
            return
        pause_seconds = 0.0
        while not ended.wait(pause_seconds):
            began = time.thread_time()
            trim(0)
            pause_seconds = max(every_seconds, _PAUSE_SHARE * (time.thread_time() - began))

    thread = threading.Thread(target=work, name="give_back_memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def _malloc_trim() -> Callable[[int], int] | None:
    """The `malloc_trim` of glibc; None with another C library, or without ctypes."""
    try:
        import ctypes  # noqa: PLC0415  # keeps the start short
    except ImportError:  # Python was built without libffi
        return None
    function: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return function
