"""Context shared by the daemon's parts."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from namesrv.access.audit import AuditLog
from namesrv.access.guard import AccessGuard
from namesrv.access.quotas import RequestLimiter
from namesrv.certificates import Certificates
from namesrv.counters import Counters
from namesrv.encoded_routes import EncodedRoutes
from namesrv.fast_path import FastPath
from namesrv.heartbeat_log.log import HeartbeatLog
from namesrv.kv import KVConfig
from namesrv.net.budget import MemoryBudget
from namesrv.net.protocol import ServerConnection
from namesrv.net.steps import Turns
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.routeinfo.records import RouteOptions
from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from namesrv.state.events import EventRing
from namesrv.state.sd_notify import ServiceManager
from namesrv.state.snapshot import Readiness
from namesrv.state.watchers import RouteWatchers
from namesrv_runtime.clock import Clock
from namesrv_runtime.write_state import WriteState

Spawn = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


@dataclass(slots=True)
class LiveSettings(RouteOptions):
    """The settings that can be changed while the server runs (318), and nothing else."""

    return_order_topic_config_to_broker: bool = True
    enable_topic_list: bool = True
    enable_all_topic_list: bool = True

    @classmethod
    def of(cls, settings: Settings) -> "LiveSettings":
        """As they are at start."""
        return cls(**{item.name: getattr(settings, item.name) for item in fields(cls)})


@dataclass(slots=True)
class Namesrv:
    """One running NameServer: its state and what reaches it, built by the controller."""

    settings: Settings
    live: LiveSettings
    limits: Limits
    clock: Clock
    kv: KVConfig
    manager: RouteInfoManager
    answers: EncodedRoutes
    fast_path: FastPath
    # None: no access file, and everybody may do everything
    guard: AccessGuard | None
    # connection id -> connection; all that were let in and are not gone
    connections: dict[int, ServerConnection]
    # of requests, and of brokers whose connection has ended
    turns: Turns
    # what peers may hold of the memory
    budget: MemoryBudget
    # how new connections are met, where TLS is on
    certificates: Certificates
    watchers: RouteWatchers
    events: EventRing
    readiness: Readiness
    # what has happened so far, for metrics
    counters: Counters
    # None: switched off
    heartbeat_log: HeartbeatLog | None
    audit: AuditLog | None
    limiter: RequestLimiter
    service_manager: ServiceManager
    # identifies this run of the server; a restarted one has another
    boot_id: str
    # starts work that must not hold up a request, owned by the daemon's TaskGroup
    spawn: Spawn
    started_wall: float
    started_monotonic: float
    # (host, port) of every listening socket, once there are any
    addresses: list[tuple[str, int]] = field(default_factory=list)
    # setting -> where its value came from
    origins: dict[str, str] = field(default_factory=dict)
    is_draining: bool = False

    @property
    def is_listening(self) -> bool:
        """Whether brokers and clients can connect."""
        return bool(self.addresses)

    def is_open_to_everybody(self) -> bool:
        """Whether peers may do what they like that have shown neither a key nor a certificate."""
        settings = self.settings
        shows_certificates = settings.tls_mode == "enforcing" and settings.tls_client_auth == "require"
        return not shows_certificates and (self.guard is None or not self.guard.enforces)

    def may_be_administered(self) -> bool:
        """Whether settings may be changed over the wire by those whose request got this far."""
        return self.settings.admin_enabled or (self.guard is not None and self.guard.enforces)

    def writes(self) -> dict[str, WriteState]:
        """How writing each file goes; serving depends on none of them."""
        writes = {"snapshot": self.counters.snapshot_writes, "kv": self.kv.writes}
        if self.heartbeat_log is not None:
            writes["heartbeat_log"] = self.heartbeat_log.writes
        if self.audit is not None:
            writes["audit"], writes["audit_registrations"] = (log.writes for log in self.audit.logs)
        return writes

    def effective_settings(self) -> dict[str, Any]:
        """All settings as they are now: some may have been changed over the wire."""
        return {**dict(self.settings), **asdict(self.live)}

    def uptime(self) -> float:
        """Seconds since the start, whatever happened to the wall clock."""
        return self.clock.monotonic() - self.started_monotonic

    def is_ready(self) -> bool:
        """Whether route questions may be answered."""
        return self.readiness.is_ready(self.clock.monotonic())

    def is_ready_without_brokers(self) -> bool:
        """Whether the server answers although it has no broker and the last run had some: an alert."""
        return self.is_ready() and self.readiness.expects_brokers and not self.manager.tables.broker_live_table
