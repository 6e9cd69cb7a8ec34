"""The client's part of the heartbeat log (docs/heartbeat-log.md): route changes that it received, and failed sends."""

import logging
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from namesrv_client.routes.route import RouteChange
from namesrv_client.routes.sync_point import SyncPoint
from namesrv_runtime.clock import Clock
from namesrv_runtime.line_log.files import LineFiles, Retention
from namesrv_runtime.line_log.log import LineLog
from namesrv_runtime.line_log.queue import Item
from namesrv_runtime.line_log.writer import Encoder, encoded

logger: Final = logging.getLogger("namesrv_client.heartbeat_log")

SCHEMA_VERSION: Final = 2
# Limits that keep the log small in every application, without settings.
KEEP_DAYS: Final = 7.0
MAX_BYTES: Final = 256 * 1024 * 1024
CLOSE_SECONDS: Final = 2.0


class ClientLines(Encoder):
    """Encodes the lines of one client."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id
        self._seq = 0

    def line(self, item: Item) -> bytes:
        """The line of an item."""
        self._seq += 1
        event, nameserver, fields = item.what
        line = {
            "v": SCHEMA_VERSION,
            "seq": self._seq,
            "ts_ms": round(item.wall * 1000),
            "mono_ms": round(item.monotonic * 1000, 3),
            "nameserver": nameserver,
            "boot_id": self._boot_id,
            "event": event,
            **fields,
        }
        return encoded(line) + b"\n"

    def opened(self, item: Item) -> bytes:  # noqa: ARG002 - a client has nothing to repeat
        """Return no bytes, because a client's log does not depend on settings."""
        return b""

    def dropped(self, count: int, item: Item) -> bytes:
        """The line that reports the number of missing lines."""
        self._seq += count
        return self.line(Item(item.wall, item.monotonic, ("dropped", None, {"count": count})))


class ClientLog(LineLog):
    """The log of one client. Any thread may report events."""

    def __init__(
        self, directory: Path, client: str, clock: Clock, point: SyncPoint, chosen: Callable[[], str | None]
    ) -> None:
        boot_id = secrets.token_hex(8)
        files = LineFiles(directory, client, boot_id, Retention(KEEP_DAYS, MAX_BYTES))
        super().__init__(files, ClientLines(boot_id), report=_report)
        self._clock = clock
        self._client = client
        self._point = point
        self._chosen = chosen
        # guards `put`, because senders report from threads of their own
        self._lock = threading.Lock()

    def changed(self, change: RouteChange) -> None:
        """Log a changed route."""
        groups = () if change.new is None else sorted(change.new.data.broker_datas, key=lambda group: group.broker_name)
        self._note(
            "refreshed",
            topic=change.topic,
            revision=self._point.revision,
            server_boot_id=self._point.boot_id,
            brokers=[group.logged() for group in groups],
        )

    def reported(self, broker_name: str, for_ms: int, *, failed: bool) -> None:
        """Log a failed send, and a broker that gets no messages for `for_ms`."""
        if failed:
            self._note("send_failed", broker_name=broker_name, topic=None)
        if for_ms:
            self._note("isolated", broker_name=broker_name, for_ms=for_ms)

    def _note(self, event: str, **fields: Any) -> None:
        what = (event, self._chosen(), {"client": self._client, **fields})
        with self._lock:
            self.put(Item(self._clock.wall(), self._clock.monotonic(), what))


def _report(level: int, name: str, fields: dict[str, Any]) -> None:
    logger.log(level, "%s: %s", name, ", ".join(f"{key} {value}" for key, value in fields.items()))
