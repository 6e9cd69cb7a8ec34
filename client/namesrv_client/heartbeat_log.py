"""The client's half of the heartbeat log (docs/heartbeat-log.md): which routes it learned, and which sends failed."""

import logging
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from namesrv_client.routes.cache import SyncPoint
from namesrv_client.routes.route import RouteChange
from namesrv_runtime.clock import Clock
from namesrv_runtime.line_files import LineFiles, Retention
from namesrv_runtime.line_log import Encoder, Item, LineLog, encoded

logger: Final = logging.getLogger("namesrv_client.heartbeat_log")

SCHEMA_VERSION: Final = 2
# An application should not have to think of it.
KEEP_DAYS: Final = 7.0
MAX_BYTES: Final = 256 * 1024 * 1024
CLOSE_SECONDS: Final = 2.0


class ClientLines(Encoder):
    """Makes the lines of one client."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id
        self._seq = 0

    def line(self, item: Item) -> bytes:
        """The line of an item, whose fields are ready."""
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
        """Nothing: what a client writes is not shaped by settings."""
        return b""

    def dropped(self, count: int, item: Item) -> bytes:
        """The line that says how many are missing."""
        self._seq += count
        return self.line(Item(item.wall, item.monotonic, ("dropped", None, {"count": count})))


class ClientLog(LineLog):
    """The log of one client. Events may be told from any thread."""

    def __init__(
        self, directory: Path, client: str, clock: Clock, point: SyncPoint, chosen: Callable[[], str | None]
    ) -> None:
        boot_id = secrets.token_hex(8)
        files = LineFiles(directory, client, boot_id)
        super().__init__(files, ClientLines(boot_id), Retention(KEEP_DAYS, MAX_BYTES), report=_report)
        self._clock = clock
        self._client = client
        self._point = point
        self._chosen = chosen
        # senders report from threads of their own
        self._lock = threading.Lock()

    def changed(self, change: RouteChange) -> None:
        """A route is another one than before."""
        groups = () if change.new is None else sorted(change.new.data.broker_datas, key=lambda group: group.broker_name)
        self._note(
            "refreshed",
            topic=change.topic,
            revision=self._point.revision,
            server_boot_id=self._point.run,
            brokers=[group.logged() for group in groups],
        )

    def reported(self, broker_name: str, for_ms: int, *, failed: bool) -> None:
        """A send was reported: it failed, or the broker is left alone for a while."""
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
