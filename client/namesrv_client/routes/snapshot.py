"""Routes on disk: the file that a process leaves to the next, and when it is written."""

import asyncio
import json
import logging
import os
import stat
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from namesrv_client.routes.cache import RouteCache
from namesrv_client.routes.route import Route
from namesrv_remoting.bodies.dialects import JSON
from namesrv_remoting.bodies.route import read_route
from namesrv_remoting.errors import RemotingError
from namesrv_runtime.clock import Clock
from namesrv_runtime.durable_file import unseal, write_sealed

logger: Final = logging.getLogger("namesrv_client.snapshot")

VERSION: Final = 1
# after a change, together with whatever else has changed by then
_SAVE_SECONDS: Final = 5.0
# routes that do not change are confirmed all the time, and the file says when: so old it may be
_CONFIRM_SECONDS: Final = 300.0


class RouteSnapshotError(ValueError):
    """The file is damaged, somebody else's, or of another version; the message says what."""


class RouteSnapshot:
    """The file of one client, and its routes in the cache."""

    def __init__(self, path: Path, clock: Clock, cache: RouteCache) -> None:
        self._path = path
        self._clock = clock
        self._cache = cache
        # routes differ from those in the file
        self._is_changed = False
        self._saved_at = clock.monotonic()
        # Held while writing: one that was cancelled still runs in its thread, and must not overwrite the one after it.
        self._writing = threading.Lock()
        # why it could not be written the last time
        self._error: str | None = None

    def __repr__(self) -> str:
        return f"<RouteSnapshot [{self._path} | {'changed' if self._is_changed else 'saved'}]>"

    def changed(self) -> None:
        """Routes differ from those in the file."""
        self._is_changed = True

    async def restore(self) -> None:
        """Take what the last process left; whatever is wrong with it costs a warning."""
        try:
            self._cache.restore(await asyncio.to_thread(self.read))
        except RouteSnapshotError as error:
            logger.warning("route snapshot not used: %s", error)

    async def run(self) -> None:
        """Save 5 s after a change, and every 5 minutes, until cancelled."""
        while True:
            await self._clock.sleep(_SAVE_SECONDS)
            if self._is_changed or self._clock.monotonic() - self._saved_at >= _CONFIRM_SECONDS:
                await self.save()

    async def save(self) -> None:
        """Save now, unless nothing is known; a failure costs a warning, and it is tried again in 5 s."""
        if not len(self._cache):
            return
        self._is_changed = False
        self._saved_at = self._clock.monotonic()
        try:
            await asyncio.to_thread(self.write, self._cache.existing())
        except OSError as error:
            self._is_changed = True
            if str(error) != self._error:
                logger.warning("route snapshot not written: %s", error)
            self._error = str(error)
        else:
            self._error = None

    def write(self, routes: Iterable[Route]) -> None:
        """Write all routes, those that many topics share once; blocks until they are on disk. Raises OSError."""
        age_to_wall = self._clock.wall() - self._clock.monotonic()
        numbers: dict[int, int] = {}
        spelt: list[Any] = []
        topics: dict[str, tuple[int, float]] = {}
        for route in routes:
            number = numbers.setdefault(id(route.data), len(spelt))
            if number == len(spelt):
                spelt.append(json.loads(JSON.encode(route.data)))
            topics[route.topic] = (number, round(route.confirmed_at + age_to_wall, 3))
        with self._writing:
            write_sealed(self._path, {"version": VERSION, "routes": spelt, "topics": topics})

    def read(self) -> list[Route]:
        """The routes in the file, none if there is no file. Raises RouteSnapshotError."""
        try:
            content = unseal(self._bytes(), VERSION)
            spelt = [read_route(json.dumps(entry).encode()) for entry in content["routes"]]
            wall, now = self._clock.wall(), self._clock.monotonic()
            return [
                # a wall clock that was set back makes nothing younger than it is
                Route(topic, spelt[number], "disk", now - max(0.0, wall - confirmed_wall), None, self._clock)
                for topic, (number, confirmed_wall) in content["topics"].items()
            ]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, RemotingError) as error:
            raise RouteSnapshotError(f"{self._path} cannot be read: {error}") from error

    def _bytes(self) -> bytes:
        # not blocking: a FIFO in its place would never be opened
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("not a file")
            if status.st_uid != os.geteuid():
                raise ValueError(f"it belongs to user {status.st_uid}")
            if (mode := stat.S_IMODE(status.st_mode)) & (stat.S_IWGRP | stat.S_IWOTH):
                raise ValueError(f"others can write to it: mode {mode:o}")
            return file.read()
