"""Building of a server: makes all parts of one boot, and connects them."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from namesrv.access.audit import AuditLog
from namesrv.access.control import AccessControl
from namesrv.access.guard import AccessGuard
from namesrv.access.quotas import RequestLimiter
from namesrv.certificates import Certificates
from namesrv.context import Namesrv, Spawn
from namesrv.counters import Counters
from namesrv.encoded_routes import EncodedRoutes
from namesrv.fast_path import FastPath
from namesrv.heartbeat_log.log import HeartbeatLog
from namesrv.kv import KVConfig
from namesrv.net.fairness.budget import MemoryBudget
from namesrv.net.protocol import ServerConnection
from namesrv.net.slots import ConnectionSlots
from namesrv.peer_views import PeerViews
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.routeinfo.routes import RouteInputs
from namesrv.routeinfo.tables.effects import Effect
from namesrv.routeinfo.tables.liveness import LivenessClock, WaitClock
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv.routeinfo.tables.write_removal import WriteRemoval
from namesrv.served_routes import ServedRoutes
from namesrv.server.effects import EffectSink
from namesrv.server.start_error import needed
from namesrv.settings.limits import Limits
from namesrv.settings.live import LiveSettings
from namesrv.settings.model import Settings
from namesrv.settings.running import RunningSettings
from namesrv.settings.sources import Loaded
from namesrv.state import snapshot
from namesrv.state.boot import Boot
from namesrv.state.events import EventRing
from namesrv.state.expected_back import RECONNECTION_SECONDS, BrokersExpectedBack
from namesrv.state.lost_routes import LostRoutes
from namesrv.state.snapshot import Readiness, Snapshot
from namesrv.state.watchers import RouteWatchers
from namesrv_remoting.address_views import AddressViews
from namesrv_remoting.codes import ORDER_TOPIC_CONFIG
from namesrv_remoting.zones import read_zone_fallback
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import LimitedLog


def snapshot_path(settings: Settings) -> Path:
    """The file of the snapshot of expected brokers."""
    return settings.data_dir / "snapshot.json"


def build_namesrv(loaded: Loaded, limits: Limits, clock: Clock, spawn: Spawn) -> Namesrv:
    """Build a server that does not listen yet. Raises StartError for a file that cannot be used."""
    settings = loaded.settings
    running = RunningSettings(settings, LiveSettings.of(settings), limits, dict(loaded.origins))
    boot_id = secrets.token_hex(8)
    tables, counters, events, limited_log = RouteTables(), Counters(), EventRing(clock), LimitedLog()
    connections: dict[int, ServerConnection] = {}

    # The files that every start needs.
    access = _access_control(loaded, limits, boot_id, clock, tables)
    kv = _kv_config(settings, limits, access.audit)
    with needed("TLS"):
        certificates = Certificates(settings, clock)

    # The last boot, and the brokers that are expected after it.
    last = snapshot.load(snapshot_path(settings))
    liveness = LivenessClock(clock.monotonic, settings.scan_interval_seconds)
    if last is not None:
        _restore_write_removals(tables, last, liveness.now(), settings.broker_expiry_seconds)
    boot = _boot(boot_id, last, running, clock, tables)
    heartbeat_log = None
    if settings.heartbeat_log_path is not None:
        heartbeat_log = HeartbeatLog(settings, limits.retention, boot_id, clock=clock, tables=tables, liveness=liveness)

    # Routes, as peers get them.
    zones = read_zone_fallback(settings.zone_fallback)
    inputs = RouteInputs(tables, running.live, lambda topic: kv.get(ORDER_TOPIC_CONFIG, topic), zones)
    encoded_routes = EncodedRoutes(inputs, boot_id)
    views = PeerViews(loaded.address_views or AddressViews(), encoded_routes, connections)
    routes = ServedRoutes(encoded_routes, views, RouteWatchers(), LostRoutes(clock))

    # The tables with all their changes, and the receivers of the effects.
    sink = EffectSink(
        clock=clock,
        tables=tables,
        connections=connections,
        views=views,
        boot=boot,
        watchers=routes.watchers,
        events=events,
        log=limited_log,
        spawn=spawn,
        observers=list(_observers(counters, routes, boot, heartbeat_log, access)),
    )
    manager = RouteInfoManager(
        tables,
        liveness,
        running.live,
        limits.tables,
        sink=sink,
        is_connected=connections.__contains__,
        network_of=lambda number: connections[number].peer.network if number in connections else "",
        forget_responses=encoded_routes.clear,
        on_late_heartbeat=counters.late_heartbeats.observe,
        on_touch=None if heartbeat_log is None else heartbeat_log.touched,
        on_publish=None if heartbeat_log is None else heartbeat_log.routes_published,
        policy=limits.takeover,
        quotas=limits.quotas,
    )

    open_classes = None if access.guard is None else access.guard.open_classes
    return Namesrv(
        settings=running,
        clock=clock,
        boot=boot,
        kv=kv,
        manager=manager,
        routes=routes,
        fast_path=FastPath(manager, encoded_routes, views=views, open_classes=open_classes, log=heartbeat_log),
        access=access,
        slots=ConnectionSlots(limits.server, _memory_budget(settings, limits, tables), connections),
        certificates=certificates,
        events=events,
        counters=counters,
        heartbeat_log=heartbeat_log,
        limited_log=limited_log,
    )


def _access_control(loaded: Loaded, limits: Limits, boot_id: str, clock: Clock, tables: RouteTables) -> AccessControl:
    settings = loaded.settings
    audit = guard = None
    if settings.audit_log_path is not None:
        audit = AuditLog(settings, limits.audit_retention, boot_id, clock)
    on_refused = None if audit is None else audit.refused_request
    if loaded.access is not None:
        enforces = settings.access_mode == "enforce"
        guard = AccessGuard(loaded.access, enforces=enforces, clock=clock, tables=tables, on_refused=on_refused)
    return AccessControl(guard, RequestLimiter(quotas=limits.requests, clock=clock, on_refused=on_refused), audit)


def _kv_config(settings: Settings, limits: Limits, audit: AuditLog | None) -> KVConfig:
    path = settings.data_dir / "kvConfig.json"
    with needed(f"KV configuration {path}"):
        return KVConfig.load(path, limits.kv, *([] if audit is None else [audit.kv_changed]))


def _restore_write_removals(tables: RouteTables, last: Snapshot, now: float, expiry_seconds: float) -> None:
    """Remove the write permissions that were removed before the restart.

    A permission whose removal had no end returns after the default expiry, unless a broker of its group registers
    before: the snapshot has no expiries of live brokers.
    """
    tables.write_removed.update((name, WriteRemoval(now + expiry_seconds)) for _, name in last.wiped)
    for end in last.wiped_ends:
        tables.write_removed[end.broker_name] = end.restored(now, RECONNECTION_SECONDS)


def _boot(boot_id: str, last: Snapshot | None, running: RunningSettings, clock: Clock, tables: RouteTables) -> Boot:
    """The boot, which expects the brokers of the last snapshot."""
    wait_clock = WaitClock(clock.monotonic)
    readiness = Readiness(
        last.brokers if last else (),
        running.current.wait_for_service_seconds,
        wait_clock.now(),
        expects_unknown=last is not None and last.is_incomplete,
    )
    expected_back = BrokersExpectedBack(wait_clock.now, running.limits.tables, tables.broker_live_table)
    return Boot(boot_id, clock, wait_clock, readiness, expected_back)


def _observers(
    counters: Counters, routes: ServedRoutes, boot: Boot, heartbeat_log: HeartbeatLog | None, access: AccessControl
) -> Iterator[Callable[[Effect], None]]:
    """The receivers of all effects."""
    yield counters
    yield routes.lost.observe
    yield boot.expected_back.observe
    if heartbeat_log is not None:
        yield heartbeat_log
    if access.audit is not None:
        yield access.audit
    if access.guard is not None:
        yield access.guard.observe


def _memory_budget(settings: Settings, limits: Limits, tables: RouteTables) -> MemoryBudget:
    # The share holds a large frame with its decoded form, unless that exceeds an eighth of the memory.
    least_share_bytes = min(2 * limits.server.max_frame_bytes, settings.max_memory_bytes // 8)
    return MemoryBudget(settings.max_memory_bytes, tables.estimated_bytes, least_share_bytes=least_share_bytes)
