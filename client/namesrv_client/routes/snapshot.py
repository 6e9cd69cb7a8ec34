"""The route snapshot: a file with the routes of a client, for its next start while all servers are down."""

import json
import logging
import os
import stat
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from namesrv_client.routes.cache import KnownRoutes
from namesrv_client.routes.route import Route
from namesrv_remoting.bodies.dialects import JSON
from namesrv_remoting.bodies.route import read_route
from namesrv_remoting.errors import RemotingError
from namesrv_runtime.clock import Clock, timeout_on
from namesrv_runtime.durable_file import unseal, write_sealed
from namesrv_runtime.threads import NoThreadError, in_thread

logger: Final = logging.getLogger("namesrv_client.snapshot")

VERSION: Final = 1
# the longest delay after a change, so that one write covers several changes
_SAVE_SECONDS: Final = 5.0
# The file holds the times of confirmation, too; without changes it is written this often.
_CONFIRM_SECONDS: Final = 300.0


class RouteSnapshotError(ValueError):
    """The file is unreadable, damaged, of another version or zone, or writable by others; the message says which."""


class RouteSnapshot:
    """Reads and writes the snapshot file of one client."""

    def __init__(self, path: Path, clock: Clock, cache: KnownRoutes, zone_name: str | None = None) -> None:
        self._path = path
        self._zone_name = zone_name
        self._clock = clock
        self._cache = cache
        # True if the cached routes differ from those in the file
        self._is_changed = False
        self._saved_at = clock.monotonic()
        # Held while writing: a cancelled write still runs in its thread, and must not overwrite a later file.
        self._writing = threading.Lock()
        # the error of the last write, if it failed
        self._error: str | None = None

    def __repr__(self) -> str:
        return f"<RouteSnapshot [{self._path} | {'changed' if self._is_changed else 'saved'}]>"

    def changed(self) -> None:
        """Note that the cached routes differ from those in the file."""
        self._is_changed = True

    async def restore(self) -> None:
        """Load the routes of the file into the cache; an unusable file is logged as a warning."""
        try:
            self._cache.restore(await in_thread(self.read))
        except (RouteSnapshotError, NoThreadError) as error:
            logger.warning("route snapshot not used: %s", error)

    async def run(self) -> None:
        """Save within 5 s of a change, and every 5 minutes, until cancelled."""
        while True:
            await self._clock.sleep(_SAVE_SECONDS)
            if self._is_changed or self._clock.monotonic() - self._saved_at >= _CONFIRM_SECONDS:
                await self.save()

    async def save(self) -> None:
        """Save now, unless the cache is empty and has not changed.

        `run` repeats a failed save after 5 s; each new reason is a warning.
        """
        if not len(self._cache) and not self._is_changed:
            return
        self._is_changed = False
        self._saved_at = self._clock.monotonic()
        try:
            await in_thread(self.write, self._cache.existing())
        except OSError as error:
            self._is_changed = True
            if str(error) != self._error:
                logger.warning("route snapshot not written: %s", error)
            self._error = str(error)
        else:
            self._error = None

    async def close(self, seconds: float) -> None:
        """Save for the last time; a disk that takes longer is logged as a warning."""
        try:
            async with timeout_on(self._clock, seconds):
                await self.save()
        except TimeoutError:
            logger.warning("route snapshot not written within %g s", seconds)

    def write(self, routes: Iterable[Route]) -> None:
        """Write all routes, a shared route only once; blocks until the file is on disk. Raises OSError."""
        wall = self._clock.wall()
        age_to_wall = wall - self._clock.monotonic()
        numbers: dict[int, int] = {}
        encoded: list[Any] = []
        topics: dict[str, tuple[int, float]] = {}
        for route in routes:
            number = numbers.setdefault(id(route.data), len(encoded))
            if number == len(encoded):
                encoded.append(json.loads(JSON.encode(route.data)))
            topics[route.topic] = (number, round(route.confirmed_at + age_to_wall, 3))
        with self._writing:
            content = {"version": VERSION, "written": round(wall, 3), "zone": self._zone_name}
            write_sealed(self._path, {**content, "routes": encoded, "topics": topics})

    def read(self) -> list[Route]:
        """The routes in the file; an empty list without a file. Raises RouteSnapshotError."""
        try:
            content = unseal(self._bytes(), VERSION)
            # Files of earlier versions have neither the zone nor the time of the write.
            if (zone := content.get("zone", self._zone_name)) != self._zone_name:
                raise ValueError(f"it is for zone {zone}, not {self._zone_name}")
            decoded = [read_route(json.dumps(entry).encode()) for entry in content["routes"]]
            # After the wall clock was set back, a route is at least as old as it was when the file was written.
            wall, now = max(self._clock.wall(), content.get("written", 0.0)), self._clock.monotonic()
            return [
                Route(topic, decoded[number], "disk", now - max(0.0, wall - confirmed_wall), None, self._clock)
                for topic, (number, confirmed_wall) in content["topics"].items()
            ]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, RemotingError) as error:
            raise RouteSnapshotError(f"{self._path} cannot be read: {error}") from error

    def _bytes(self) -> bytes:
        with open(self._path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("not a file")
            if status.st_uid != os.geteuid():
                raise ValueError(f"it belongs to user {status.st_uid}")
            if (mode := stat.S_IMODE(status.st_mode)) & (stat.S_IWGRP | stat.S_IWOTH):
                raise ValueError(f"others can write to it: mode {mode:o}")
            return file.read()


def _open_without_waiting(path: str, flags: int) -> int:
    # The opening of a FIFO at this path would block for ever.
    return os.open(path, flags | os.O_NONBLOCK)
