"""An application's functions that are told of its NameServers."""

import threading
from collections.abc import Callable
from typing import Final

_WORDS: Final = ("connected", "disconnected", "ready", "servers_changed")


class Told:
    """Callbacks that remember what they were told, and then fail."""

    def __init__(self) -> None:
        self.what: list[tuple[str, ...]] = []
        self.threads: set[str] = set()
        self.callbacks = {f"on_{word}": self._callback(word) for word in _WORDS}

    def _callback(self, word: str) -> Callable[..., None]:
        def told(*arguments: object) -> None:
            self.what.append((word, *map(str, arguments)))
            self.threads.add(threading.current_thread().name)
            raise RuntimeError(word)

        return told

    def taken(self) -> list[tuple[str, ...]]:
        """What was told since the last look; of reasons nothing."""
        found, self.what = self.what, []
        return [one[:2] for one in found]
