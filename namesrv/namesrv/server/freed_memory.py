"""Gives free memory back to the operating system.

glibc keeps free memory that lies between blocks in use, and each burst of requests leaves more of it: without
`malloc_trim`, an idle server would hold twice the memory that it needs, and grow for hours. glibc makes heaps for
threads, whose free ends `malloc_trim` does not return: the process uses a single heap.
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
# The number of M_ARENA_MAX in glibc's malloc.h.
_M_ARENA_MAX: Final = -8


def use_one_heap() -> None:
    """Let all threads allocate from one heap; a thread that has started before this call keeps a heap of its own.

    glibc returns the free end of a thread's heap only if the end is larger than twice the largest block that was ever
    freed.
    """
    if (set_option := _of_glibc("mallopt")) is not None:
        set_option(_M_ARENA_MAX, 1)


@contextmanager
def given_back(every_seconds: float = EVERY_SECONDS) -> Iterator[None]:
    """Give free memory back from time to time until the block ends, in a thread; Python code runs meanwhile."""
    ended = threading.Event()

    def work() -> None:
        # malloc_trim is looked up after the first pause, to keep the start short.
        if ended.wait(every_seconds) or (trim := _of_glibc("malloc_trim")) is None:
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


def _of_glibc(name: str) -> Callable[..., int] | None:
    """A function of glibc; None with another C library or without ctypes."""
    try:
        import ctypes  # noqa: PLC0415  # keeps the start of other commands short
    except (ImportError, MemoryError):  # Python was built without libffi, or the system forbids libffi's callbacks
        return None
    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return function
