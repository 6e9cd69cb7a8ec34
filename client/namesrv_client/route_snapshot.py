"""How do routes survive the process, for one that starts while every NameServer is down?

One JSON file, written atomically with a checksum, readable by its owner only. A file of another owner, one that others
may write, and one that is damaged are not used: routes decide where messages go.
"""

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from namesrv_client.decode import route_from_json
from namesrv_client.route_cache import SavedRoute
from namesrv_remoting.bodies.route import TopicRouteData, route_to_json
from namesrv_remoting.errors import RemotingError
from namesrv_runtime.clock import Clock
from namesrv_runtime.sealed_file import unseal, write_sealed

VERSION: Final = 1


class RouteSnapshotError(ValueError):
    """The file cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class RouteSnapshot:
    """The file of one client."""

    path: Path
    clock: Clock

    def save(self, routes: Iterable[SavedRoute]) -> None:
        """Write all routes; blocks until they are on disk.

        Raises:
            OSError: they could not be written, and the file is as it was.
        """
        write_sealed(self.path, self._content(routes))

    def _content(self, routes: Iterable[SavedRoute]) -> dict[str, Any]:
        """Routes that many topics share, as most do, are written once."""
        age_to_wall = self.clock.wall() - self.clock.monotonic()
        numbers: dict[int, int] = {}
        spelt: list[Any] = []
        topics: dict[str, tuple[int, float]] = {}
        for topic, data, confirmed_at in routes:
            number = numbers.setdefault(id(data), len(spelt))
            if number == len(spelt):
                spelt.append(json.loads(route_to_json(data)))
            topics[topic] = (number, round(confirmed_at + age_to_wall, 3))
        return {"version": VERSION, "routes": spelt, "topics": topics}

    def load(self) -> list[SavedRoute]:
        """The routes in the file, none if there is no file.

        Raises:
            RouteSnapshotError: it is damaged, somebody else's, or of another version.
        """
        try:
            data = self._read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RouteSnapshotError(f"{self.path}: {error.strerror}") from error
        return self._decoded(data)

    def _read(self) -> bytes:
        # not blocking: a FIFO in its place would never be opened
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise RouteSnapshotError(f"{self.path} is not a file")
            if status.st_uid != os.geteuid():
                raise RouteSnapshotError(f"{self.path} belongs to user {status.st_uid}")
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise RouteSnapshotError(f"{self.path} can be written by others: mode {stat.S_IMODE(status.st_mode):o}")
            return file.read()

    def _decoded(self, data: bytes) -> list[SavedRoute]:
        try:
            return self._routes(unseal(data, VERSION))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, RemotingError) as error:
            raise RouteSnapshotError(f"{self.path} cannot be read: {error}") from error

    def _routes(self, content: dict[str, Any]) -> list[SavedRoute]:
        spelt: list[TopicRouteData] = [route_from_json(json.dumps(entry).encode()) for entry in content["routes"]]
        wall, now = self.clock.wall(), self.clock.monotonic()
        return [
            # a wall clock that was set back makes nothing younger than it is
            SavedRoute(topic, spelt[number], now - max(0.0, wall - confirmed_wall))
            for topic, (number, confirmed_wall) in content["topics"].items()
        ]
