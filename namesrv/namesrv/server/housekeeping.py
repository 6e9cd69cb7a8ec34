"""Housekeeping: the work that is due once a second, and the handling of opened and closed connections.

The scan runs here. An error in the scan ends the process: the daemon must never run on with a scan that died silently.
"""

import asyncio
import logging
from typing import Final

from namesrv.context import Namesrv, Spawn
from namesrv.net.fair_scheduler import FairScheduler
from namesrv.net.protocol import ServerConnection
from namesrv.net.read_shares import ReadShares
from namesrv.periodic import Periodic
from namesrv.routeinfo.liveness import LONGEST_TICK_SECONDS, stopped_seconds
from namesrv.state.expected_back import RECONNECTION_SECONDS
from namesrv.state.sd_notify import ServiceManager
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# Iterations of the event loop before brokers are judged, each of which reads all readable sockets: one to accept a
# connection, two until it is read, one to read it, two for a request to the dispatcher, and as many in reserve. Where
# input waits for the share of its network, a round of all waiting networks takes the place of an iteration.
_DRAIN_PASSES: Final = 12
# Further iterations for a request that waits for fair scheduling.
_CARRYING_OUT_PASSES: Final = 4
# A loop with slow iterations or rounds was busy, not stopped, and has read its sockets all the time: it needs no
# reserve, and waits for no further round.
_BUSY_DRAIN_PASSES: Final = 6
_BUSY_DRAIN_SECONDS: Final = 0.5
# An idle loop drains its sockets in less time. Registrations may have arrived during a longer computation, so the
# sockets are drained once more before brokers of a closed connection are removed: only once, since a busy loop may be
# slow all the time.
_QUICK_DRAIN_SECONDS: Final = 0.02
# After a stop of at least so long, peers may have timed out and closed their connections.
_STOP_SECONDS: Final = 1.0
# A newcomer that waits longer than this for a step of its TLS handshake is worth a line in the log.
_HANDSHAKE_WAIT_SECONDS: Final = 1.0
# Reasons for closing a connection that are normal for a healthy but quiet peer.
_EXPECTED: Final = frozenset({"idle", "silent"})


class Housekeeping:
    """The periodic work of one NameServer, and the listener of its connections."""

    def __init__(
        self,
        namesrv: Namesrv,
        scheduler: FairScheduler,
        read_shares: ReadShares,
        service_manager: ServiceManager,
        spawn: Spawn,
    ) -> None:
        self._namesrv = namesrv
        # Fair scheduling of requests, and of brokers whose connection has closed.
        self._scheduler = scheduler
        self._read_shares = read_shares
        self._service_manager = service_manager
        self._spawn = spawn
        interval = namesrv.settings.current.scan_interval_seconds
        self._tick_seconds = interval / max(1, round(interval / LONGEST_TICK_SECONDS))
        self._next_scan = namesrv.clock.monotonic() + interval
        self._last_tick = namesrv.clock.monotonic()
        # Time from which closed connections count again after a stop of this process.
        self._closes_count_at = namesrv.clock.monotonic()
        # Processor time of this process at the last tick.
        self._busy_seconds = namesrv.clock.busy()
        # Files whose writes were stuck at the last tick.
        self._stuck: set[str] = set()

    async def run(self) -> None:
        """Tick until cancelled."""
        await Periodic(self._namesrv.clock, self._tick_seconds, self.tick).run()

    async def tick(self, lateness_seconds: float) -> None:
        """Perform one tick: first lateness, then readiness, then the scan if it is due."""
        namesrv = self._namesrv
        self._note_stop()
        self._last_tick = namesrv.clock.monotonic()
        before, self._busy_seconds = self._busy_seconds, namesrv.clock.busy()
        stopped = stopped_seconds(lateness_seconds, self._busy_seconds - before)
        namesrv.boot.wait_clock.tick(stopped)
        granted = namesrv.manager.was_stopped(stopped)
        if lateness_seconds > LONGEST_TICK_SECONDS:
            seconds = round(lateness_seconds, 3)
            event(logger, logging.WARNING, "event_loop_lagged", seconds=seconds, stopped=round(granted, 3))
        namesrv.counters.last_tick = namesrv.clock.monotonic()
        self._service_manager.alive()
        self.check_readiness()
        namesrv.limited_log.tick()
        self._look_for_stuck_writes()
        self._look_for_late_handshakes()
        namesrv.access.tick()
        if namesrv.heartbeat_log is not None:
            await namesrv.heartbeat_log.tick()
        now = namesrv.clock.monotonic()
        # A tick may come slightly early.
        if now + self._tick_seconds / 2 >= self._next_scan:
            interval = namesrv.settings.current.scan_interval_seconds
            self._next_scan = max(self._next_scan, now - self._tick_seconds) + interval
            as_of = namesrv.manager.now()
            if namesrv.manager.is_anyone_overdue(as_of):
                await self._drain_sockets()
            # A server that drains disconnects clients first, and then brokers, which are expected at its next boot.
            # Clients that are still connected get no routes of silent brokers.
            keeps_disconnected = namesrv.boot.is_draining and not self._has_clients()
            await namesrv.manager.evict_silent(as_of=as_of, keeps_disconnected=keeps_disconnected)
            namesrv.counters.scans.observe(namesrv.clock.monotonic() - now)

    def _has_clients(self) -> bool:
        """True while a connection that is not a broker's is open."""
        connections = self._namesrv.slots.connections.values()
        return any(connection.is_open and not connection.peer.is_broker for connection in connections)

    def _note_stop(self) -> None:
        """Ignore closed connections for a while if this process was stopped since the last tick."""
        clock = self._namesrv.clock
        lateness = clock.monotonic() - self._last_tick - self._tick_seconds
        if stopped_seconds(lateness, clock.busy() - self._busy_seconds) >= _STOP_SECONDS:
            self._closes_count_at = clock.monotonic() + RECONNECTION_SECONDS

    def _look_for_stuck_writes(self) -> None:
        """Log writes that hang and writes that recover; a write that fails logs its own error."""
        for name, state in self._namesrv.writes().items():
            seconds = state.stuck_seconds()
            if seconds and name not in self._stuck:
                event(logger, logging.ERROR, "write_stuck", file=name, seconds=round(seconds, 1))
                self._stuck.add(name)
            elif not seconds and name in self._stuck:
                event(logger, logging.INFO, "write_recovered", file=name)
                self._stuck.discard(name)

    def _look_for_late_handshakes(self) -> None:
        """Log, once a tick, that newcomers wait for their TLS handshakes."""
        threads = self._namesrv.certificates.tls.threads
        if (seconds := threads.longest_wait_seconds()) > _HANDSHAKE_WAIT_SECONDS:
            event(logger, logging.WARNING, "tls_handshakes_late", waiting=len(threads), seconds=round(seconds, 1))

    async def _drain_sockets(self) -> None:
        """Read all arrived bytes, so that no broker is evicted whose heartbeat waits in a socket."""
        clock = self._namesrv.clock
        ends = clock.monotonic() + _BUSY_DRAIN_SECONDS
        passes = 0
        while passes < (_DRAIN_PASSES if clock.monotonic() <= ends else _BUSY_DRAIN_PASSES):
            await asyncio.sleep(0)
            if not self._read_shares.left_in_round or clock.monotonic() > ends:
                passes += 1
        # Some requests wait for fair scheduling to begin, and then need iterations until they are handled.
        for _ in range(2):
            if self._scheduler:
                await self._scheduler.begin()
                for _ in range(_CARRYING_OUT_PASSES):
                    await asyncio.sleep(0)

    def check_readiness(self) -> None:
        """Start to answer route requests once the server is ready."""
        namesrv = self._namesrv
        if namesrv.fast_path.is_ready or not namesrv.boot.is_ready():
            return
        namesrv.fast_path.start_to_answer()
        readiness = namesrv.boot.readiness
        namesrv.manager.stop_waiting_for_brokers(is_any_missing=bool(readiness.missing) or readiness.expects_unknown)
        reason = namesrv.boot.readiness_text()
        self._service_manager.status(reason)
        event(logger, logging.INFO, "ready", reason=reason)
        if namesrv.is_ready_without_brokers():
            # Clients get no routes now.
            event(logger, logging.ERROR, "ready_without_brokers", reason=reason)

    def may_be_idle(self, connection: ServerConnection) -> bool:
        """True for connections over which a broker is registered."""
        return connection.id in self._namesrv.manager.tables.connections.brokers_on

    def connection_opened(self, connection: ServerConnection) -> None:
        """Log an admitted connection."""
        event(logger, logging.DEBUG, "connection_opened", connection=connection.id, peer=connection.peer.address)

    def connection_closed(self, connection: ServerConnection, reason: str) -> None:
        """Start the eviction of the brokers of a closed connection, but for brokers that another connection takes over.

        Without `evict_on_disconnect`, and while the server is stopping, the brokers stay.
        """
        namesrv = self._namesrv
        event(
            logger,
            logging.DEBUG,
            "connection_closed",
            connection=connection.id,
            peer=connection.peer.address,
            reason=reason,
        )
        if namesrv.heartbeat_log is not None:
            namesrv.heartbeat_log.gone(connection)
        if namesrv.settings.current.evict_on_disconnect and not namesrv.boot.is_draining:
            self._spawn(self._remove_disconnected(connection.id))
        else:
            namesrv.manager.leave_connection(connection.id)

    async def _remove_disconnected(self, connection_id: int) -> None:
        """Remove the brokers of a closed connection.

        If this process was stopped, however shortly, the brokers may have registered over new connections: these are
        read first. After a longer stop the brokers' own timeouts may have closed the connection, and the brokers stay
        until they had time to register again. A broker that was seen over another open connection moves there at once.
        """
        # This task may run before the tick that notices the same stop. A later stop does not count: the connection had
        # closed before.
        self._note_stop()
        manager, clock = self._namesrv.manager, self._namesrv.clock
        manager.leave_connection(connection_id)
        while connection_id in manager.tables.connections.brokers_on:
            began = clock.monotonic()
            await self._drain_sockets()
            await self._scheduler.begin()
            if clock.monotonic() - began > _QUICK_DRAIN_SECONDS:
                await self._drain_sockets()
            early = self._closes_count_at - clock.monotonic()
            if early <= 0:
                await manager.connection_closed(connection_id)
                break
            await clock.sleep(early)

    def connection_refused(self, connection: ServerConnection, error: RemoteProtocolError) -> None:
        """Count and log a refused peer, or a frame that was refused for lack of memory."""
        self._namesrv.counters.refusals[connection.peer.serialize_type, error.reason] += 1
        if error.reason in _EXPECTED:
            event(logger, logging.DEBUG, "connection_timed_out", peer=connection.peer.address, reason=error.reason)
            return
        if self._namesrv.access.audit is not None:
            self._namesrv.access.audit.refused_connection(connection, error)
        self._namesrv.limited_log.event(
            logger,
            logging.WARNING,
            "connection_refused",
            rest="connections_refused",
            peer=connection.peer.address,
            proxied=connection.peer.proxied,
            reason=error.reason,
            error=str(error),
        )
