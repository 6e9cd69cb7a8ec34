"""Waits for conditions of real peers."""

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

# A JVM on a busy machine starts in a minute, and a broker's shortest period is another ten seconds.
GUARD_SECONDS: Final = 120.0
# A short interval would take processor time from the JVMs.
_BETWEEN_SECONDS: Final = 0.05

T = TypeVar("T")


def until(ask: Callable[[], T], *, within: float = GUARD_SECONDS) -> T:
    """Return the result of `ask` as soon as the result is true.

    Raises:
        AssertionError: the result stays false for that time.
    """
    deadline = time.monotonic() + within
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"not within {within:g} s, the last answer was {answer!r}"
        threading.Event().wait(_BETWEEN_SECONDS)
    return answer


def until_equal(wanted: object, ask: Callable[[], object]) -> None:
    """Return as soon as `ask` returns the wanted value; after the time limit pytest shows the difference."""
    deadline = time.monotonic() + GUARD_SECONDS
    while (answer := ask()) != wanted and time.monotonic() < deadline:
        threading.Event().wait(_BETWEEN_SECONDS)
    assert answer == wanted
