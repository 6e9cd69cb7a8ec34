"""Work in steps, done at once."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def finished(work: Generator[None, None, T]) -> T:
    """What comes of it in the end."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
