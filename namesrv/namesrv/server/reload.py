"""Reload of the settings on SIGHUP.

The settings are read again from where they came at the start: the same flags, environment and files. All of them are
valid, or nothing changes. What can change in a running server does; what cannot is named, and needs a restart.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from namesrv.context import LiveSettings, Namesrv
from namesrv.settings.catalog import SETTINGS
from namesrv.settings.model import Settings
from namesrv.settings.sources import Loaded, SettingsError
from namesrv_remoting.aio.server import RemotingServer
from namesrv_runtime import log
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

_LIVE: Final = frozenset(item.name for item in fields(LiveSettings))
# Where the server is, what it waits for, and what shapes how long routes stay stale: the heartbeat log says at its
# start what those are, and the report believes it.
_NEED_RESTART: Final = frozenset(
    {
        "listen_host",
        "listen_port",
        "http_listen",
        "data_dir",
        "nameserver_name",
        "max_memory_bytes",
        "scan_interval_seconds",
        "broker_expiry_seconds",
        "evict_on_disconnect",
        "wait_for_service_seconds",
        "heartbeat_log_dir",
    }
)
RELOADABLE: Final = SETTINGS.keys() - _NEED_RESTART


@dataclass(frozen=True, slots=True)
class Change:
    """A setting whose value has changed."""

    name: str
    old: object
    new: object

    @property
    def can_reload(self) -> bool:
        """Whether it takes effect in a running server."""
        return self.name in RELOADABLE


def changes_between(running: Mapping[str, object], wanted: Settings) -> list[Change]:
    """Every setting that differs from the running server's, in the order of the declaration."""
    return [
        Change(name, running[name], getattr(wanted, name))
        for name in SETTINGS
        if running[name] != getattr(wanted, name)
    ]


class Reloader:
    """Reloads on request, one at a time."""

    def __init__(self, namesrv: Namesrv, server: RemotingServer, read: Callable[[], Loaded]) -> None:
        self._namesrv = namesrv
        self._server = server
        self._read = read

    async def run(self, asked: asyncio.Event) -> None:
        """Reload on each request, until cancelled; requests that come before a reload begins share it."""
        while True:
            await asked.wait()
            asked.clear()
            namesrv = self._namesrv
            namesrv.service_manager.reloading()
            try:
                await self.reload()
            finally:
                namesrv.service_manager.ready(namesrv.readiness.reason(namesrv.clock.monotonic()))

    async def reload(self) -> None:
        """Read the settings and apply what has changed, or say what is wrong with them."""
        try:
            # files may be on a disk that is slow
            loaded = await asyncio.to_thread(self._read)
        except SettingsError as error:
            event(logger, logging.ERROR, "reload_refused", problems=error.problems)
            return
        for warning in loaded.warnings:
            event(logger, logging.WARNING, "settings_doubted", warning=warning)
        changes = changes_between(self._namesrv.effective_settings(), loaded.settings)
        # logged first: another level may keep these lines out of the log
        for change in changes:
            name = "setting_changed" if change.can_reload else "setting_needs_restart"
            setting, origin = change.name, loaded.origins[change.name]
            event(logger, logging.WARNING, name, setting=setting, old=change.old, new=change.new, origin=origin)
        changed = {change.name: change.new for change in changes if change.can_reload}
        apply(self._namesrv, self._server, changed)
        event(logger, logging.INFO, "reloaded", changed=len(changed), need_restart=len(changes) - len(changed))


def apply(namesrv: Namesrv, server: RemotingServer, changed: Mapping[str, object]) -> None:
    """Let the server run with other values, which are valid; nothing here can fail half-way."""
    if not changed:
        return
    settings = namesrv.settings = namesrv.settings.model_copy(update=dict(changed))
    namesrv.limits.follow(settings)
    server.dispatcher.max_frame_bytes = settings.max_frame_bytes
    if live := changed.keys() & _LIVE:
        for name in live:
            setattr(namesrv.live, name, changed[name])
        namesrv.manager.routes_may_differ()
    if changed.keys() & {"log_level", "log_format"}:
        log.configure(settings.log_level, settings.log_format)


def has_terminal() -> bool:
    """Whether this process belongs to a terminal that is there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
