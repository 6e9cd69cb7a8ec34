"""Writes the snapshot of expected brokers whenever it is due."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from namesrv.context import Namesrv
from namesrv.state import snapshot
from namesrv.state.snapshot import ExpectedBroker, Snapshot
from namesrv_runtime.log import event
from namesrv_runtime.periodic import Periodic

logger: Final = logging.getLogger(__name__)

# A crash loses the changes since the last snapshot; a snapshot of a hundred brokers has a few kilobytes.
INTERVAL_SECONDS: Final = 5.0


class Snapshotter:
    """Writes the snapshot whenever the set of brokers has changed, and at the end."""

    def __init__(self, namesrv: Namesrv, path: Path) -> None:
        self._namesrv = namesrv
        self._path = path
        # The manager's `membership` when the file was written.
        self._saved = namesrv.manager.membership
        self._failing = False
        with suppress(FileNotFoundError):
            namesrv.counters.snapshot_bytes = path.stat().st_size
        # One write runs at a time: of two writes, the older could be the last to replace the file.
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Check for changes every few seconds until cancelled."""
        await Periodic(self._namesrv.clock, INTERVAL_SECONDS, self.tick).run()

    async def tick(self, lateness_seconds: float) -> None:  # noqa: ARG002 - writing late is fine
        """Write the snapshot if brokers changed; a full disk costs a warning and a new attempt."""
        async with self._writing:
            membership = self._namesrv.manager.membership
            counters, now = self._namesrv.counters, self._namesrv.clock.monotonic()
            if membership != self._saved:
                current = self._current()
                try:
                    counters.snapshot_bytes = await asyncio.to_thread(self._save, current)
                except OSError as error:
                    if not self._failing:
                        event(logger, logging.ERROR, "snapshot_not_written", path=self._path, error=error)
                    self._failing = True
                    return
                if self._failing:
                    event(logger, logging.INFO, "snapshot_write_recovered", path=self._path)
                self._failing = False
                self._saved = membership
                event(logger, logging.DEBUG, "snapshot_written", path=self._path, brokers=len(current.brokers))
            counters.snapshot_current_at = now

    def _save(self, current: Snapshot) -> int:
        with self._namesrv.counters.snapshot_writes.writing():
            return snapshot.save(self._path, current)

    def _current(self) -> Snapshot:
        """Return the live brokers, and the expected brokers that are still missing."""
        namesrv = self._namesrv
        tables = namesrv.manager.tables
        brokers = {
            (key.cluster_name, live.broker_name, live.broker_id): ExpectedBroker(
                key.cluster_name, live.broker_name, live.broker_id, key.broker_addr
            )
            for key, live in tables.broker_live_table.items()
        }
        if not namesrv.is_ready():
            for missing in namesrv.readiness.missing:
                brokers.setdefault((missing.cluster, missing.broker_name, missing.broker_id), missing)
        return Snapshot(
            saved_ms=int(namesrv.clock.wall() * 1000),
            boot_id=namesrv.boot_id,
            brokers=tuple(brokers[key] for key in sorted(brokers)),
            wiped=tuple((None, name) for name in sorted(tables.write_removed)),
        )
