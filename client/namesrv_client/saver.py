"""When are the routes written to disk?"""

import asyncio
import logging
import threading
from collections.abc import Iterable
from typing import Final

from namesrv_client.route_cache import RouteCache, SavedRoute
from namesrv_client.route_snapshot import RouteSnapshot, RouteSnapshotError
from namesrv_client.settings import ClientSettings
from namesrv_runtime.clock import Clock

logger: Final = logging.getLogger(__name__)

# after a change, together with whatever else has changed by then
_SAVE_SECONDS: Final = 5.0
# routes that do not change are confirmed all the time, and the file says when: so old it may be
_CONFIRM_SECONDS: Final = 300.0


class RouteSaver:
    """Keeps the snapshot of one client up to date."""

    def __init__(self, settings: ClientSettings, clock: Clock, cache: RouteCache) -> None:
        if settings.snapshot_file is None:
            raise ValueError("no snapshot_file")
        self._snapshot = RouteSnapshot(settings.snapshot_file, clock)
        self._clock = clock
        self._cache = cache
        # routes differ from those in the file
        self.is_changed = False
        self._saved_at = clock.monotonic()
        # Held while writing: one that was cancelled still runs in its thread, and must not overwrite the one after it.
        self._writing = threading.Lock()
        # why it could not be written the last time
        self._error: str | None = None

    def __repr__(self) -> str:
        return f"<RouteSaver [{self._snapshot.path} | {'changed' if self.is_changed else 'saved'}]>"

    async def restore(self) -> None:
        """Take what the last process left; whatever is wrong with it costs a warning."""
        try:
            self._cache.restore(await asyncio.to_thread(self._snapshot.load))
        except RouteSnapshotError as error:
            logger.warning("route snapshot not used: %s", error)

    async def run(self) -> None:
        """Save 5 s after a change, and every 5 minutes, until cancelled."""
        while True:
            await self._clock.sleep(_SAVE_SECONDS)
            if self.is_changed or self._clock.monotonic() - self._saved_at >= _CONFIRM_SECONDS:
                await self._save()

    async def save_last(self) -> None:
        """Save once more, unless nothing is known."""
        if len(self._cache):
            await self._save()

    async def _save(self) -> None:
        self.is_changed = False
        self._saved_at = self._clock.monotonic()
        try:
            await asyncio.to_thread(self._write, self._cache.saved())
        except OSError as error:
            # tried again in 5 s; said once
            self.is_changed = True
            if str(error) != self._error:
                logger.warning("route snapshot not written: %s", error)
            self._error = str(error)
        else:
            self._error = None

    def _write(self, routes: Iterable[SavedRoute]) -> None:
        with self._writing:
            self._snapshot.save(routes)
