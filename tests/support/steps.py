"""Runs work that yields between its chunks to its end."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def finished(work: Generator[None, None, T]) -> T:
    """The result of the work."""
    return steps_and_result(work)[1]


def steps_and_result(work: Generator[None, None, T]) -> tuple[int, T]:
    """Number of yields, and the result."""
    yields = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return yields, done.value
        yields += 1
