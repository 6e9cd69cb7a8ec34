"""Collects all that a process prints, and waits until it has printed something."""

import threading
from collections.abc import Callable
from typing import IO, Generic, TypeVar

_T = TypeVar("_T")


class Heard(Generic[_T]):
    """What was said so far on a pipe, line by line, each as `parse` has it. It ends with the pipe."""

    def __init__(self, pipe: IO[str] | None, parse: Callable[[str], _T]) -> None:
        assert pipe is not None
        self.all: list[_T] = []
        self._pipe = pipe
        self._parse = parse
        self._has_news = threading.Condition()
        self._is_silent = False
        # reads all the time: a full pipe would stop the process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._pipe:
            said = self._parse(line.rstrip("\n"))
            with self._has_news:
                self.all.append(said)
                self._has_news.notify_all()
        with self._has_news:
            self._is_silent = True
            self._has_news.notify_all()

    def wait_until(self, condition: Callable[[], object], within: float) -> bool:
        """Whether a condition on what was said is so in time; False also when nothing more will be said."""
        with self._has_news:
            self._has_news.wait_for(lambda: self._is_silent or condition(), within)
            return bool(condition())

    def to_the_end(self, within: float) -> None:
        """Return once the pipe has ended and all of it is there."""
        self._reader.join(within)
