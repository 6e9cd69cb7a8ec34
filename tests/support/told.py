"""An application's functions that are told of its NameServers."""

import threading
from collections.abc import Callable
from typing import Final

_WORDS: Final = ("connected", "disconnected", "ready", "servers_changed")


class Told:
    """Callbacks that remember what they were told, and then fail if they are to."""

    def __init__(self, *, failing: bool = False) -> None:
        self.what: list[tuple[str, ...]] = []
        self.threads: set[str] = set()
        self._is_failing = failing
        self.callbacks = {f"on_{word}": self._callback(word) for word in _WORDS}

    def _callback(self, word: str) -> Callable[..., None]:
        def told(*arguments: object) -> None:
            self.what.append((word, *map(str, arguments)))
            self.threads.add(threading.current_thread().name)
            if self._is_failing:
                raise RuntimeError(word)

        return told

    def taken(self) -> list[tuple[str, ...]]:
        """What was told since the last look; of reasons nothing."""
        found, self.what = self.what, []
        return [one[:2] for one in found]
