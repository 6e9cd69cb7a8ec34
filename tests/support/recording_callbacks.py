"""Callbacks for agents and clients that record their calls."""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

_EVENTS: Final = ("connected", "disconnected", "ready", "servers_changed")


class RecordingCallbacks:
    """Callbacks that record every call and then raise an error.

    `on_connected` raises a CancelledError, as a callback that reads the result of a cancelled task does.
    """

    def __init__(self) -> None:
        # (event, its arguments as text) of each call
        self.calls: list[tuple[str, ...]] = []
        self.threads: set[str] = set()
        # the keyword arguments of an agent or a client
        self.options = {f"on_{event}": self._callback(event) for event in _EVENTS}

    def _callback(self, event: str) -> Callable[..., None]:
        def callback(*arguments: object) -> None:
            self.calls.append((event, *map(str, arguments)))
            self.threads.add(threading.current_thread().name)
            raise asyncio.CancelledError(event) if event == "connected" else RuntimeError(event)

        return callback

    def take(self) -> list[tuple[str, ...]]:
        """The calls since the last `take`: the event and its first argument, without the reason of a disconnect."""
        calls, self.calls = self.calls, []
        return [call[:2] for call in calls]
