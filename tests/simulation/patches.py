"""Replacements of clocks, random numbers and threads by those of the simulated world."""

import asyncio
import os
import random
import secrets
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from namesrv.net import protocol
from namesrv_runtime.line_log import archive, log, writer
from tests.simulation.disk import replaced_attributes, simulated_disks
from tests.simulation.network import SimulatedSocket
from tests.simulation.threads import Threading
from tests.simulation.world import World


class _Poll:
    """A replacement of poll(2) for simulated sockets."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._registered: list[int] = []

    def register(self, descriptor: int, events: int) -> None:
        self._registered.append(descriptor)

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        ends = self._world.network.ends
        return [(each, select.POLLIN) for each in self._registered if each in ends and ends[each].has_unread]


class _Select:
    """A replacement of the module select, as far as our code uses it."""

    POLLIN = select.POLLIN

    def __init__(self, world: World) -> None:
        self._world = world

    def poll(self) -> _Poll:
        return _Poll(self._world)


@contextmanager
def simulated_surroundings(world: World) -> Iterator[None]:
    """Within the block, the world provides time, and the seed provides random numbers."""
    chosen = world.random("process")

    def monotonic() -> float:
        return world.now if world.running is None else world.running.monotonic()

    def wall() -> float:
        return world.now if world.running is None else world.running.wall()

    def token(size: int = 32) -> bytes:
        return chosen.randbytes(size)

    threads = Threading(world)
    state = random.getstate()
    random.seed(f"{world.seed} module")
    replaced: list[tuple[Any, str, Any]] = [
        (time, "monotonic", monotonic),
        (time, "perf_counter", monotonic),
        (time, "process_time", lambda: 0.0),
        (time, "thread_time", lambda: 0.0),
        (time, "time", wall),
        (time, "clock_gettime", lambda _: monotonic()),
        (time, "sleep", threads.sleep),
        (log, "threading", threads),
        (archive, "threading", threads),
        (archive, "Queue", threads.Queue),
        # A fifth of the real frequency.
        (log, "FLUSH_SECONDS", 1.0),
        (writer, "FLUSH_SECONDS", 1.0),
        (secrets, "token_hex", lambda size=32: token(size).hex()),
        (secrets, "token_bytes", token),
        (os, "getpid", lambda: 1),
        (protocol, "select", _Select(world)),
        (socket, "fromfd", lambda descriptor, *_: SimulatedSocket(descriptor, ("", 0))),
    ]
    try:
        with replaced_attributes(replaced), tasks_unlisted(), simulated_disks(world):
            yield
    finally:
        random.setstate(state)


@contextmanager
def tasks_unlisted() -> Iterator[None]:
    """Keep asyncio from listing all tasks of all loops: each simulated loop has its own list."""
    tasks: Any = asyncio.tasks._all_tasks  # type: ignore[attr-defined]  # not in the stubs
    tasks.add = lambda _: None
    try:
        yield
    finally:
        del tasks.add
