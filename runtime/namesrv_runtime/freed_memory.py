"""Gives memory that is free back to the system.

glibc keeps what lies between blocks in use, and each burst leaves some more: without this, a server at rest would hold
twice the memory that it needs, and grow for hours.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# It takes half a millisecond, and what is used again has to be had anew from the system: not often, then.
EVERY_SECONDS: Final = 15.0
# A second of it is a thousand seconds away from the next: whoever needs memory waits meanwhile, and where tens of
# thousands of pieces are free it takes tens of milliseconds.
_PAUSE_SHARE: Final = 1000


@contextmanager
def given_back(every_seconds: float = EVERY_SECONDS) -> Iterator[None]:
    """Give it back now and then until the block ends, in a thread beside the loop: Python runs meanwhile."""
    ended = threading.Event()

    def work() -> None:
        # looked for after the first pause: start-up counts
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
    """The function that does it; None where the C library is not glibc, or not to be had."""
    try:
        import ctypes  # noqa: PLC0415  # start-up counts
    except ImportError:  # Python was built without libffi
        return None
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found
