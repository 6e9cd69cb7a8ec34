"""The observers of a client: the application's listeners, the snapshot file and the heartbeat log."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from namesrv_client.heartbeat_log import CLOSE_SECONDS, ClientLog
from namesrv_client.routes.cache import KnownRoutes
from namesrv_client.routes.route import RouteChange, RouteListeners
from namesrv_client.routes.snapshot import RouteSnapshot
from namesrv_client.settings import ClientSettings
from namesrv_runtime.clock import Clock


class ClientObservers:
    """Passes each change of a route on; snapshot and log exist if the settings have a path for them."""

    def __init__(
        self, settings: ClientSettings, clock: Clock, cache: KnownRoutes, chosen_server: Callable[[], str | None]
    ) -> None:
        self.listeners = RouteListeners()
        self._snapshot: RouteSnapshot | None = None
        if (path := settings.snapshot_file) is not None:
            self._snapshot = RouteSnapshot(Path(path), clock, cache, settings.zone_name or None)
        self._log: ClientLog | None = None
        if (directory := settings.heartbeat_log_dir) is not None:
            self._log = ClientLog(Path(directory), settings.client_name, clock, cache.point, chosen_server)

    def __repr__(self) -> str:
        return f"<ClientObservers [{self.listeners!r} | {self._snapshot!r} | {self._log!r}]>"

    async def start(self) -> None:
        """Start the log, and load the routes of the snapshot into the cache."""
        if self._log is not None:
            # Before the first wait: a cancelled start closes the log, and only a started log can be closed.
            self._log.start()
        if self._snapshot is not None:
            await self._snapshot.restore()

    def background_coroutines(self) -> list[Coroutine[Any, Any, None]]:
        """The coroutines that have to run as long as the client runs."""
        return [part.run() for part in (self._log, self._snapshot) if part is not None]

    async def close(self) -> None:
        """End the iterators, save the snapshot, and write the rest of the log."""
        self.listeners.end()
        if self._snapshot is not None:
            await self._snapshot.close(CLOSE_SECONDS)
        if self._log is not None:
            await self._log.close(CLOSE_SECONDS)

    def route_changed(self, change: RouteChange) -> None:
        """Pass on a change."""
        if self._snapshot is not None:
            self._snapshot.changed()
        if self._log is not None:
            self._log.changed(change)
        self.listeners.notify(change)

    def route_forgotten(self) -> None:
        """Note that the application has dropped a cached route, which is no change."""
        if self._snapshot is not None:
            self._snapshot.changed()

    def send_reported(self, broker: str, isolated_ms: int, *, failed: bool) -> None:
        """Note the result of a send, and for how many milliseconds the broker gets no messages."""
        if self._log is not None:
            self._log.reported(broker, isolated_ms, failed=failed)
