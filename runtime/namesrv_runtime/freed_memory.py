"""Gives memory that is free back to the system.

glibc keeps what lies between blocks in use, and each burst leaves some more: without this, a server at rest would hold
twice the memory that it needs, and grow for hours.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# It takes half a millisecond, and what is used again has to be had anew from the system: not often, then.
EVERY_SECONDS: Final = 15.0


def malloc_trim() -> Callable[[int], int] | None:
    """The function that does it; None where the C library is not glibc."""
    import ctypes  # noqa: PLC0415  # start-up counts

    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found


@contextmanager
def given_back(every_seconds: float = EVERY_SECONDS) -> Iterator[None]:
    """Give it back now and then until the block ends, in a thread beside the loop: Python runs meanwhile."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(every_seconds):
            if (trim := malloc_trim()) is None:
                return
            trim(0)

    thread = threading.Thread(target=work, name="give_back_memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
