"""Floods: connections that all send as fast as the server reads, and are replaced when it closes them."""

import itertools
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from benchmarks.abuse.attacker import Attacker

_AT_ONCE: Final = 256 * 1024
_LOOK_SECONDS: Final = 0.05


@dataclass(slots=True)
class Flow:
    """One connection of a flood, and what it sends: chunks, one after the other, until there are no more."""

    peer: socket.socket
    # of one frame or record
    unit_bytes: int
    chunks: Iterator[memoryview]
    # whether it reads what the server sends, and throws it away
    is_reading: bool = False
    # between two chunks
    pause_seconds: float = 0.0
    # the rest of the chunk that is being sent
    left: memoryview = field(default_factory=lambda: memoryview(b""))
    # when the next chunk is sent, on the monotonic clock
    due: float = 0.0


# Opens one connection of a flood: (attacker, number of the connection, number of its address). None: it was refused.
Opening = Callable[[Attacker, int, int], Flow | None]


class Flows:
    """The connections of one flood against one server."""

    def __init__(self, attacker: Attacker, count: int, opening: Opening, reopening: Opening, *, sources: int) -> None:
        """Open them; nothing is sent yet."""
        self._attacker = attacker
        self._reopening = reopening
        self._sources = sources
        self._buffer = bytearray(_AT_ONCE)
        found = [opening(attacker, number, number % sources) for number in range(count)]
        # those between two chunks
        self._waiting = [flow for flow in found if flow is not None]

    def send(self) -> None:
        """Send until the attacker's time is up; a connection that has ended is closed, and another one opened."""
        count = len(self._waiting)
        numbers = itertools.count(count)
        with selectors.DefaultSelector() as selector:
            while not self._attacker.is_over:
                self._register_due(selector)
                for key, events in selector.select(_LOOK_SECONDS):
                    self._go_on(selector, key.data, events)
                missing = count - len(selector.get_map()) - len(self._waiting)
                for number in itertools.islice(numbers, missing):
                    if (flow := self._reopening(self._attacker, number, number % self._sources)) is not None:
                        self._waiting.append(flow)

    def _register_due(self, selector: selectors.BaseSelector) -> None:
        now = time.monotonic()
        for flow in self._waiting:
            if flow.due <= now:
                flow.peer.setblocking(False)  # noqa: FBT003 - its only parameter
                reading = selectors.EVENT_READ if flow.is_reading else 0
                selector.register(flow.peer, selectors.EVENT_WRITE | reading, flow)
        self._waiting = [flow for flow in self._waiting if flow.due > now]

    def _go_on(self, selector: selectors.BaseSelector, flow: Flow, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and not flow.peer.recv_into(self._buffer):
                raise ConnectionResetError
            if events & selectors.EVENT_WRITE:
                self._send(flow)
        except BlockingIOError:
            pass
        except (OSError, StopIteration) as ended:
            self._attacker.closed += isinstance(ended, OSError)
            selector.unregister(flow.peer)
            self._attacker.disconnect(flow.peer)
        else:
            if flow.pause_seconds and not flow.left:
                selector.unregister(flow.peer)
                flow.due = time.monotonic() + flow.pause_seconds
                self._waiting.append(flow)

    def _send(self, flow: Flow) -> None:
        if not flow.left:
            flow.left = next(flow.chunks)
        size = flow.peer.send(flow.left[:_AT_ONCE])
        self._attacker.count(size, size // flow.unit_bytes)
        flow.left = flow.left[size:]
