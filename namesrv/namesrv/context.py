"""The context that the daemon's parts share."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from namesrv.access.control import AccessControl
from namesrv.certificates import Certificates
from namesrv.counters import Counters
from namesrv.fast_path import FastPath
from namesrv.heartbeat_log.log import HeartbeatLog
from namesrv.kv import KVConfig
from namesrv.net.slots import ConnectionSlots
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.served_routes import ServedRoutes
from namesrv.settings.running import RunningSettings
from namesrv.state.boot import Boot
from namesrv.state.events import EventRing
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import LimitedLog
from namesrv_runtime.write_state import WriteState

# Starts background work that must not delay a request; the daemon's TaskGroup owns it.
Spawn = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


@dataclass(slots=True)
class Namesrv:
    """One running NameServer: its state and its services, built by `build_namesrv`."""

    settings: RunningSettings
    clock: Clock
    boot: Boot
    kv: KVConfig
    manager: RouteInfoManager
    routes: ServedRoutes
    fast_path: FastPath
    access: AccessControl
    # The open connections, and the memory that peers may use.
    slots: ConnectionSlots
    # The certificates for new connections, where TLS is on.
    certificates: Certificates
    events: EventRing
    # Counters of past events, for metrics.
    counters: Counters
    # None if the heartbeat log is switched off.
    heartbeat_log: HeartbeatLog | None
    # Log lines that peers cause, at most twenty a second of each kind.
    limited_log: LimitedLog

    def is_open_to_everybody(self) -> bool:
        """True if peers without a key or certificate may send any request."""
        settings = self.settings.current
        shows_certificates = settings.tls_mode == "enforcing" and settings.tls_client_auth == "require"
        return not shows_certificates and not self.access.enforces

    def may_be_administered(self) -> bool:
        """True if peers whose request was admitted may change settings over the wire."""
        return self.settings.current.admin_enabled or self.access.enforces

    def writes(self) -> dict[str, WriteState]:
        """Return the state of writing each file; serving depends on none of these files."""
        writes = {"snapshot": self.counters.snapshot_writes, "kv": self.kv.writes}
        if self.heartbeat_log is not None:
            writes["heartbeat_log"] = self.heartbeat_log.lines.writes
        if (audit := self.access.audit) is not None:
            writes["audit"], writes["audit_registrations"] = (log.writes for log in audit.logs)
        return writes

    def memory_bytes(self) -> int:
        """Return the bytes that count towards `max_memory_bytes`: the tables, and what peers hold."""
        return self.manager.tables.estimated_bytes() + self.slots.budget.used_bytes

    def is_ready_without_brokers(self) -> bool:
        """True if the server answers without any broker, though the previous boot had some: an alert."""
        return (
            self.boot.is_ready() and self.boot.readiness.expects_brokers and not self.manager.tables.broker_live_table
        )
