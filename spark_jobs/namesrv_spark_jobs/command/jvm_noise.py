"""What does Java say at each start that nobody needs to know? It is left out; all else goes through."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_STDERR: Final = 2
# Spark's launcher asks for a module that is not final yet, and Java says so
_NOISE: Final = (b"WARNING: Using incubator modules",)


@contextmanager
def without_noise() -> Iterator[None]:
    """What a process that is started inside says on standard error comes through a filter, as long as it lives."""
    theirs = os.dup(_STDERR)
    reading, writing = os.pipe()
    os.dup2(writing, _STDERR)
    os.close(writing)
    threading.Thread(target=_pass_on, args=(reading, theirs), name="java-stderr", daemon=True).start()
    try:
        yield
    finally:
        # our own words go straight to where they went before
        os.dup2(theirs, _STDERR)


def _pass_on(reading: int, target: int) -> None:
    with os.fdopen(reading, "rb") as lines, os.fdopen(target, "wb", buffering=0) as shown:
        for line in lines:
            if not line.startswith(_NOISE):
                shown.write(line)
