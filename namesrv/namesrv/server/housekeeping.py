"""Housekeeping: the work that is due about once a second.

The scan runs here. An error in the scan ends the process: the daemon must never run on with a scan that died silently.
"""

import logging
from typing import Final

from namesrv.context import Namesrv
from namesrv.periodic import Periodic
from namesrv.routeinfo.tables.liveness import LONGEST_TICK_SECONDS
from namesrv.server.arrived_input import ArrivedInput
from namesrv.server.process_stops import ProcessStops
from namesrv.state.sd_notify import ServiceManager
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# A newcomer that waits longer than this for a step of its TLS handshake is worth a line in the log.
_HANDSHAKE_WAIT_SECONDS: Final = 1.0


class Housekeeping:
    """The periodic work of one NameServer."""

    def __init__(
        self,
        namesrv: Namesrv,
        arrived_input: ArrivedInput,
        process_stops: ProcessStops,
        service_manager: ServiceManager,
    ) -> None:
        self._namesrv = namesrv
        self._arrived_input = arrived_input
        self._process_stops = process_stops
        self._service_manager = service_manager
        self._next_scan = namesrv.clock.monotonic() + namesrv.settings.current.scan_interval_seconds
        # Files whose writes were stuck at the last tick.
        self._stuck: set[str] = set()

    async def run(self) -> None:
        """Tick until cancelled."""
        await Periodic(self._namesrv.clock, self._process_stops.tick_seconds, self.tick).run()

    async def tick(self, lateness_seconds: float) -> None:
        """Perform one tick: first lateness, then readiness, then the scan if it is due."""
        namesrv = self._namesrv
        stopped = self._process_stops.tick(lateness_seconds)
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
        if now + self._process_stops.tick_seconds / 2 >= self._next_scan:
            interval = namesrv.settings.current.scan_interval_seconds
            self._next_scan = max(self._next_scan, now - self._process_stops.tick_seconds) + interval
            as_of = namesrv.manager.now()
            if namesrv.manager.is_anyone_overdue(as_of):
                await self._arrived_input.handle()
            # A server that drains disconnects clients first, and then brokers, which are expected at its next boot.
            # Clients that are still connected get no routes of silent brokers.
            keeps_disconnected = namesrv.boot.is_draining and not self._has_clients()
            await namesrv.manager.evict_silent(as_of=as_of, keeps_disconnected=keeps_disconnected)
            namesrv.counters.scans.observe(namesrv.clock.monotonic() - now)

    def _has_clients(self) -> bool:
        """True while a connection that is not a broker's is open."""
        connections = self._namesrv.slots.connections.values()
        return any(connection.is_open and not connection.peer.is_broker for connection in connections)

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
            namesrv.boot.expected_back.waited_in_vain()
            event(logger, logging.ERROR, "ready_without_brokers", reason=reason)
