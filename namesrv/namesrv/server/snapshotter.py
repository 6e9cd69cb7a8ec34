"""Writes the snapshot of expected brokers whenever it is due."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from namesrv.context import Namesrv
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables.write_removal import RemovalEnd, removal_ends
from namesrv.state import snapshot
from namesrv.state.snapshot import ExpectedBroker, Snapshot
from namesrv_runtime.log import event
from namesrv_runtime.threads import in_thread

logger: Final = logging.getLogger(__name__)

# A crash loses the changes since the last snapshot; a snapshot of a hundred brokers has a few kilobytes.
INTERVAL_SECONDS: Final = 5.0
# The interval while the file names no brokers: a boot that expects none would answer at once, with empty tables.
FIRST_INTERVAL_SECONDS: Final = 1.0


class Snapshotter:
    """Writes the snapshot whenever its contents have changed, and at the end."""

    def __init__(self, namesrv: Namesrv, path: Path) -> None:
        self._namesrv = namesrv
        self._path = path
        # The state that the file has: the version of its brokers and removed write permissions (`membership` of the
        # manager), the disconnected brokers, `may_lack_silent`, and the ends of removed write permissions, whose
        # seconds shrink at every tick.
        self._saved: tuple[int, tuple[ExpectedBroker, ...], bool, tuple[RemovalEnd, ...]] = (
            namesrv.manager.membership,
            (),
            False,
            (),
        )
        # True if the file names brokers, or the next boot waits for unknown ones.
        self._expects_brokers = namesrv.boot.readiness.expects_brokers
        with suppress(FileNotFoundError):
            namesrv.counters.snapshot_bytes = path.stat().st_size
        # One write runs at a time: of two writes, the older could be the last to replace the file.
        self._writing = asyncio.Lock()

    async def run(self) -> NoReturn:
        """Check for changes every few seconds until cancelled."""
        while True:
            await self._namesrv.clock.sleep(INTERVAL_SECONDS if self._expects_brokers else FIRST_INTERVAL_SECONDS)
            await self.tick()

    async def tick(self) -> None:
        """Write changed contents; a failed write is logged once, and tried again at the next tick."""
        async with self._writing:
            brokers = self._namesrv.boot.expected_back
            disconnected = brokers.expected()
            manager = self._namesrv.manager
            ends = removal_ends(manager.tables.write_removed, manager.now())
            contents = manager.membership, disconnected, brokers.may_lack_silent, ends
            counters, now = self._namesrv.counters, self._namesrv.clock.monotonic()
            if contents != self._saved:
                had_failed = counters.snapshot_writes.has_failed
                try:
                    # A write for which no thread can start fails as well.
                    with counters.snapshot_writes.writing():
                        current = await self._current(disconnected, ends)
                        counters.snapshot_bytes = await in_thread(snapshot.save, self._path, current)
                except OSError as error:
                    if not had_failed:
                        event(logger, logging.ERROR, "snapshot_not_written", path=self._path, error=error)
                    return
                if had_failed:
                    event(logger, logging.INFO, "snapshot_write_recovered", path=self._path)
                self._saved, self._expects_brokers = contents, bool(current.brokers) or current.is_incomplete
                event(logger, logging.DEBUG, "snapshot_written", path=self._path, brokers=len(current.brokers))
            counters.snapshot_current_at = now

    async def _current(self, disconnected: Sequence[ExpectedBroker], ends: tuple[RemovalEnd, ...]) -> Snapshot:
        """Return the brokers of this moment: the live, the disconnected, and the expected ones that are still missing.

        A copy of the table takes less than a millisecond; the list of five thousand brokers, which a thread makes from
        the copy, takes ten.
        """
        namesrv = self._namesrv
        saved_ms = int(namesrv.clock.wall() * 1000)
        live = namesrv.manager.tables.broker_live_table.copy()
        readiness, is_waiting = namesrv.boot.readiness, not namesrv.boot.is_ready()
        missing = readiness.missing if is_waiting else ()
        write_removed = tuple((None, name) for name in sorted(namesrv.manager.tables.write_removed))
        brokers = await in_thread(_expected, live, (*disconnected, *missing))
        return Snapshot(
            saved_ms=saved_ms,
            boot_id=namesrv.boot.id,
            brokers=brokers,
            wiped=write_removed,
            wiped_ends=ends,
            is_incomplete=(is_waiting and readiness.expects_unknown) or namesrv.boot.expected_back.may_lack_silent,
        )


def _expected(
    live: Mapping[BrokerAddrInfo, BrokerLiveInfo], missing: Collection[ExpectedBroker]
) -> tuple[ExpectedBroker, ...]:
    """The brokers that the next boot expects, in the order of their registration; each is in the snapshot once."""
    known = (ExpectedBroker.of(key, entry) for key, entry in live.items())
    brokers = {broker.identity: broker for broker in known}
    for broker in missing:
        brokers.setdefault(broker.identity, broker)
    return tuple(brokers.values())
