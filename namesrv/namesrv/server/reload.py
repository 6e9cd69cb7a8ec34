"""Reload of the settings on SIGHUP.

The settings are read again from their sources at the start: the same flags, environment and files. One invalid setting
refuses the whole reload. Settings that can change in a running server are applied; all others are logged as needing a
restart.
"""

import asyncio
import logging
import os
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from namesrv.access.audit_lines import SettingChanged
from namesrv.context import Namesrv
from namesrv.net.peer import address_text
from namesrv.revocation import revoke_registrations
from namesrv.settings.catalog import SETTINGS
from namesrv.settings.certificate import Certificate
from namesrv.settings.limits import NAME_SERVERS_CONNECTIONS
from namesrv.settings.live import LIVE
from namesrv.settings.model import Settings
from namesrv.settings.sources import Loaded, SettingsError
from namesrv.state.sd_notify import ServiceManager
from namesrv_remoting.address_views import AddressViews
from namesrv_remoting.addresses import is_loopback
from namesrv_remoting.aio.tls import TlsError
from namesrv_remoting.zones import read_zone_fallback
from namesrv_runtime import log
from namesrv_runtime.log import event
from namesrv_runtime.threads import NoThreadError, in_thread

logger: Final = logging.getLogger(__name__)

# Open files besides the connections: 32 HTTP connections at most, listening sockets, logs, snapshots.
_OTHER_FILES: Final = 100


@dataclass(slots=True)
class Reloader:
    """Reloads the settings on request, one reload at a time."""

    namesrv: Namesrv
    read: Callable[[], Loaded]

    async def run(self, requested: asyncio.Event, service_manager: ServiceManager) -> None:
        """Reload on each request, until cancelled; requests that come before a reload begins share it."""
        while True:
            await requested.wait()
            requested.clear()
            service_manager.reloading()
            try:
                await self.reload()
            finally:
                service_manager.ready(self.namesrv.boot.readiness_text())

    async def reload(self) -> None:
        """Read the settings and apply the changes, or log their errors."""
        try:
            # The files may be on a slow disk.
            loaded = await in_thread(self.read)
        except SettingsError as error:
            self._refuse(error.problems)
            return
        except NoThreadError as error:
            self._refuse([str(error)])
            return
        https = self.namesrv.settings.current.http_tls
        try:
            # The certificates are reloaded even if the settings name the same files, since their contents may have
            # changed.
            certificate = await in_thread(Certificate.read, loaded.settings.model_copy(update={"http_tls": https}))
            self.namesrv.certificates.check(loaded.settings, certificate)
        except (TlsError, NoThreadError) as error:
            keeps_https = https and not loaded.settings.http_tls
            self._refuse([f"http-tls stays true until a restart: {error}" if keeps_https else str(error)])
            return
        self.namesrv.counters.is_reload_refused = False
        for warning in loaded.warnings:
            event(logger, logging.WARNING, "settings_warning", warning=warning)
        running, wanted = self.namesrv.settings.effective(), dict(loaded.settings)
        different = [name for name in SETTINGS if running[name] != wanted[name]]
        # The lines are logged before the changes: another log level could suppress them.
        for name in different:
            change = {"setting": name, "old": running[name], "new": wanted[name], "origin": loaded.origins[name]}
            needs_restart = SETTINGS[name].changed_by == "restart"
            event(logger, logging.WARNING, "setting_needs_restart" if needs_restart else "setting_changed", **change)
        changed = {name: wanted[name] for name in different if SETTINGS[name].changed_by != "restart"}
        kept = set(different) - changed.keys()
        self.namesrv.settings.origins |= {name: origin for name, origin in loaded.origins.items() if name not in kept}
        was_open = self.namesrv.is_open_to_everybody()
        apply(self.namesrv, changed)
        if self.namesrv.access.audit is not None:
            lines = (SettingChanged(name, running[name], value) for name, value in changed.items())
            self.namesrv.access.audit.settings_changed(*lines, cause="SIGHUP")
        await self._follow_access_file(loaded)
        self._follow_address_views(loaded)
        self.namesrv.certificates.use(self.namesrv.settings.current, certificate)
        if not was_open:
            warn_if_open(self.namesrv)
        if "max_connections" in changed:
            warn_if_files_are_few(self.namesrv.settings.current)
        event(logger, logging.INFO, "reloaded", changed=len(changed), need_restart=len(different) - len(changed))

    async def _follow_access_file(self, loaded: Loaded) -> None:
        namesrv, guard = self.namesrv, self.namesrv.access.guard
        if guard is None:
            return
        file, enforces = guard.file, namesrv.settings.current.access_mode == "enforce"
        # Another path, or an empty one, needs a restart; the access mode is applied in any case.
        if loaded.access is not None and loaded.settings.access == namesrv.settings.current.access:
            file = loaded.access
        if file != guard.file:
            event(logger, logging.WARNING, "access_file_changed", accounts=len(file.accounts))
            if namesrv.access.audit is not None:
                namesrv.access.audit.access_file_changed(guard.file, file)
        elif enforces is guard.enforces:
            return
        guard.follow(file, enforces=enforces)
        # End all waiting watches, since they were admitted under the old rules: clients repeat the request.
        namesrv.routes.watchers.wake(None)
        if enforces:
            await revoke_registrations(namesrv, file)

    def _refuse(self, problems: Sequence[str]) -> None:
        self.namesrv.counters.is_reload_refused = True
        event(logger, logging.ERROR, "reload_refused", problems=problems)

    def _follow_address_views(self, loaded: Loaded) -> None:
        views, file = self.namesrv.routes.views, loaded.address_views or AddressViews()
        if file == views.file:
            return
        views.follow(file)
        event(logger, logging.WARNING, "address_views_changed", views=[view.name for view in views.file.views])
        # Clients get the new addresses when they watch routes, or request the changes since a revision.
        self.namesrv.manager.routes_may_differ()


def warn_if_open(namesrv: Namesrv) -> None:
    """Warn if peers on other machines may send any request without authentication."""
    addresses = [address_text(address) for address in namesrv.boot.addresses if not is_loopback(address[0])]
    if addresses and namesrv.is_open_to_everybody():
        hint = "anyone who reaches them may register and remove brokers; see --access"
        event(logger, logging.WARNING, "open_to_the_network", addresses=addresses, hint=hint)


def warn_if_files_are_few(settings: Settings) -> None:
    """Warn if the limit of open files is below max_connections: at that limit no peer could connect."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.max_connections + _OTHER_FILES
    if settings.name_servers_listen:
        needed += NAME_SERVERS_CONNECTIONS
    if limit != resource.RLIM_INFINITY and limit < needed:
        hint = f"raise the limit (ulimit -Hn; LimitNOFILE= of systemd) to {needed}, or lower --max-connections"
        event(logger, logging.WARNING, "open_files_limit_too_low", limit=limit, needed=needed, hint=hint)


def apply(namesrv: Namesrv, changed: Mapping[str, object]) -> None:
    """Apply validated changes to the running server; no step can fail half-way."""
    if not changed:
        return
    namesrv.settings.follow(changed)
    settings = namesrv.settings.current
    if changed.keys() & LIVE:
        namesrv.manager.routes_may_differ()
    if "zone_fallback" in changed:
        namesrv.routes.encoded.inputs.follow_zones(read_zone_fallback(settings.zone_fallback))
        namesrv.manager.routes_may_differ()
    if changed.keys() & {"log_level", "log_format"}:
        log.configure(settings.log_level, settings.log_format)


def has_terminal() -> bool:
    """True if this process belongs to an existing terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
