"""Waits for what a real peer does in its own time."""

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

# A JVM on a busy machine starts in a minute, and a broker's shortest period is another ten seconds.
GUARD_SECONDS: Final = 120.0
# Asking costs the CPU that the JVMs need.
_BETWEEN_SECONDS: Final = 0.05

T = TypeVar("T")


def until(ask: Callable[[], T], *, within: float = GUARD_SECONDS) -> T:
    """What `ask` returns, as soon as it is true.

    Raises:
        AssertionError: it is not in that time.
    """
    deadline = time.monotonic() + within
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"not within {within:g} s, the last answer was {answer!r}"
        threading.Event().wait(_BETWEEN_SECONDS)
    return answer


def until_equal(wanted: object, ask: Callable[[], object]) -> None:
    """Return as soon as `ask` returns what is wanted; at the end of the time pytest shows how they differ."""
    deadline = time.monotonic() + GUARD_SECONDS
    while (answer := ask()) != wanted and time.monotonic() < deadline:
        threading.Event().wait(_BETWEEN_SECONDS)
    assert wanted == answer
