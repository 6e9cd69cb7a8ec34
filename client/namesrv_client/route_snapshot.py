"""How do routes survive the process, for one that starts while every NameServer is down?

One JSON file, written atomically with a checksum, readable by its owner only. A file of another owner, or one that is
damaged, is not used: routes decide where messages go.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from namesrv_client.decode import route_from_json
from namesrv_client.route import Route
from namesrv_remoting.aio.clock import Clock
from namesrv_remoting.bodies.route import route_to_json
from namesrv_remoting.durable_file import write_atomically
from namesrv_remoting.errors import RemotingError

VERSION = 1


class RouteSnapshotError(ValueError):
    """The file cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class RouteSnapshot:
    """The file of one client."""

    path: Path
    clock: Clock

    def save(self, routes: Mapping[str, Route]) -> None:
        """Write all routes; blocks until they are on disk.

        Raises:
            OSError: they could not be written, and the file is as it was.
        """
        wall, now = self.clock.wall(), self.clock.monotonic()
        content = {
            "version": VERSION,
            "routes": {
                topic: {
                    "confirmed_wall": wall - (now - route.confirmed_at),
                    "data": json.loads(route_to_json(route.data)),
                }
                for topic, route in sorted(routes.items())
                if route.confirmed_absent_since is None and route.source != "default"
            },
        }
        text = json.dumps(content, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        write_atomically(self.path, json.dumps({"sha256": digest, "content": text}).encode(), mode=0o600)

    def load(self) -> list[Route]:
        """The routes in the file, none if there is no file.

        Raises:
            RouteSnapshotError: it is damaged, somebody else's, or of another version.
        """
        try:
            with self.path.open("rb") as file:
                owner = os.fstat(file.fileno()).st_uid
                data = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RouteSnapshotError(f"{self.path}: {error.strerror}") from error
        if owner != os.geteuid():
            raise RouteSnapshotError(f"{self.path} belongs to user {owner}")
        return list(self._decoded(data))

    def _decoded(self, data: bytes) -> Iterable[Route]:
        wall, now = self.clock.wall(), self.clock.monotonic()
        try:
            envelope: dict[str, Any] = json.loads(data)
            text = envelope["content"]
            if hashlib.sha256(text.encode()).hexdigest() != envelope["sha256"]:
                raise RouteSnapshotError(f"{self.path}: the checksum is wrong")
            content = json.loads(text)
            if content["version"] != VERSION:
                raise RouteSnapshotError(f"{self.path}: version {content['version']} is not {VERSION}")
            return [
                Route(
                    topic,
                    route_from_json(json.dumps(entry["data"]).encode()),
                    "disk",
                    now - max(0.0, wall - float(entry["confirmed_wall"])),
                    None,
                    self.clock,
                )
                for topic, entry in content["routes"].items()
            ]
        except RouteSnapshotError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RemotingError) as error:
            raise RouteSnapshotError(f"{self.path} is damaged: {error}") from error
