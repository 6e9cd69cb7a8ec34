"""Work in steps, done at once."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def finished(work: Generator[None, None, T]) -> T:
    """What comes of it in the end."""
    return steps_and_result(work)[1]


def steps_and_result(work: Generator[None, None, T]) -> tuple[int, T]:
    """How often the work let others run, and what comes of it."""
    yields = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return yields, done.value
        yields += 1
