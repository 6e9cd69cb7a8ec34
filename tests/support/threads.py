"""A process that can start no further thread, as in a container at its limit of processes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# more than the address space of a process
_STACK_BYTES = 1 << 62


@contextmanager
def without_new_threads() -> Iterator[None]:
    """Within the block, starting a thread fails."""
    usual = threading.stack_size(_STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(usual)
