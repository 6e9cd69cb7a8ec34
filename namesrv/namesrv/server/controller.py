"""Controller of the daemon: starts, runs and stops it."""

import asyncio
import errno
import fcntl
import gc
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from namesrv import version
from namesrv.net.fairness.fair_scheduler import FairScheduler
from namesrv.net.fairness.read_shares import ReadShares
from namesrv.net.listeners import Listeners
from namesrv.net.peer import address_text
from namesrv.net.remoting_server import RemotingServer
from namesrv.observability.surface import HttpAddresses, http_ports
from namesrv.processors.table import dispatcher_of
from namesrv.server import freed_memory
from namesrv.server.arrived_input import ArrivedInput
from namesrv.server.build import build_namesrv, snapshot_path
from namesrv.server.connection_events import ConnectionEvents
from namesrv.server.housekeeping import Housekeeping
from namesrv.server.process_stops import ProcessStops
from namesrv.server.reload import Reloader, has_terminal, warn_if_files_are_few, warn_if_open
from namesrv.server.snapshotter import Snapshotter
from namesrv.server.start_error import StartError, needed
from namesrv.settings.limits import Limits
from namesrv.settings.sources import Loaded
from namesrv.state.sd_notify import ServiceManager
from namesrv_runtime import log, loops
from namesrv_runtime.clock import Clock, SystemClock
from namesrv_runtime.deadline import ExitDeadline
from namesrv_runtime.log import event
from namesrv_runtime.threads import NoThreadError, thread_starts
from namesrv_runtime.write_state import STUCK_SECONDS

logger: Final = logging.getLogger(__name__)

EXIT_OK: Final = 0
# The server could not start, or did not stop in time.
EXIT_FAILED: Final = 1
# EX_SOFTWARE of sysexits: an internal error, with a traceback; systemd restarts the service.
EXIT_BUG: Final = 70
# Time for requests in flight when the server is stopped, before and after its connections are closed; also for threads
# that still run at the end of the process.
_FINISH_SECONDS: Final = 2.0
# Flush time after a second signal: the operator is in a hurry.
_HASTY_FLUSH_SECONDS: Final = 0.5
# Limit for writing the last snapshot, enough for a slow disk.
_SAVE_SECONDS: Final = 3.0
# The event loop waits this long for the interpreter lock while another thread (a TLS handshake, a write of a file)
# computes. With Python's default of 5 ms, TLS handshakes raise the p99 latency of all other peers to 5 ms.
_SWITCH_SECONDS: Final = 0.0005
# Time for all other steps of the stop; after it the process ends at once.
_SPARE_SECONDS: Final = 10.0


class _Stopped(Exception):  # noqa: N818 - no error: it ends the TaskGroup
    """All work of a stop is done, and tasks that still run may be cancelled."""


def run(loaded: Loaded, read_again: Callable[[], Loaded] | None = None) -> int:
    """Run a NameServer until it is stopped; return the process's exit code.

    On SIGHUP the settings are read again if `read_again` is given.
    """
    tune_garbage_collector()
    sys.setswitchinterval(_SWITCH_SECONDS)
    _raise_open_files_limit()
    with ExitDeadline() as deadline, freed_memory.given_back():
        # The threads of the event loop are joined before the loop ends.
        code = loops.run(lambda: _exit_code(loaded, read_again, deadline))
    if code == EXIT_OK:
        event(logger, logging.INFO, "stopped")
    return code


def tune_garbage_collector() -> None:
    """Keep garbage collections short, in a process that only runs a server; objects made so far are never collected."""
    gc.collect()
    gc.freeze()
    # One collection visits at most twelve thousand objects that may survive. A limit of 400,000 would allow collections
    # of 150 ms while ten thousand tasks, with all that they hold, wait. The tables hold untracked values, so a full
    # collection is short; it is rare nevertheless.
    gc.set_threshold(2_000, 4, 4_000)


def _raise_open_files_limit() -> None:
    """Raise the soft limit as far as allowed, as the JVM does: the soft limit exists for users of select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems do not allow an infinite limit.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _exit_code(loaded: Loaded, read_again: Callable[[], Loaded] | None, deadline: ExitDeadline) -> int:
    code = EXIT_BUG
    try:
        await NamesrvController(loaded).run(read_again, deadline)
        code = EXIT_OK
    except* StartError as group:
        event(logger, logging.ERROR, "start_failed", error=str(group.exceptions[0]))
        code = EXIT_FAILED
    except* Exception as group:  # noqa: BLE001 - the last place that can report the error that ended the process
        for bug in group.exceptions:
            event(logger, logging.CRITICAL, "crashed", exc_info=bug)
    finally:
        # Only threads are left to join, and their work is not needed.
        deadline.move(_FINISH_SECONDS, code)
    return code


class NamesrvController:
    """One NameServer from start to end: `run` for a process with signals, else `serve` and `ask_to_stop`."""

    def __init__(self, loaded: Loaded, clock: Clock | None = None, *, limits: Limits | None = None) -> None:
        """Create a server. Without `limits`, the limits of the settings apply."""
        self._loaded = loaded
        self._limits = limits or Limits.of(loaded.settings)
        self._clock = clock or SystemClock()
        # Replaced by the service manager of the environment if the server runs as a process.
        self._service_manager = ServiceManager()
        self._stop_requested = asyncio.Event()
        # Set by SIGHUP to request a reload.
        self._reload_requested = asyncio.Event()
        self._read_again: Callable[[], Loaded] | None = None
        # The addresses of the HTTP ports; empty until the server listens.
        self.http = HttpAddresses([], [])
        # Set once the server listens.
        self.listening = asyncio.Event()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """(host, port) of every listening socket; the server must have been started."""
        return self.namesrv.boot.addresses

    # -- start and end ------------------------------------------------------------------------------------------------

    async def run(self, read_again: Callable[[], Loaded] | None, deadline: ExitDeadline) -> None:
        """Serve until SIGTERM or SIGINT; reload on SIGHUP if `read_again` can read the settings.

        The deadline limits the time of the stop.

        Raises:
            StartError: the server cannot start; the error may be in a group.
            BaseExceptionGroup: a bug ended the server.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number, deadline)
        if read_again is not None:
            self._read_again = read_again
            loop.add_signal_handler(signal.SIGHUP, self._on_sighup, has_terminal(), deadline)
        self._service_manager = ServiceManager.of(os.environ)
        try:
            with _stuck_start_logged(self._loaded.settings.data_dir, self.listening):
                await self.serve()
        finally:
            self._service_manager.close()

    async def serve(self) -> None:
        """Serve until `ask_to_stop`, then stop in order."""
        with _lock(self._loaded.settings.data_dir):
            try:
                async with asyncio.TaskGroup() as tasks:
                    await self._serve(tasks)
                    # A TaskGroup that ends accepts no more tasks.
                    raise _Stopped
            except* _Stopped:
                pass

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        self.namesrv = namesrv = build_namesrv(self._loaded, self._limits, self._clock, tasks.create_task)
        arrived_input = ArrivedInput(self._clock, ReadShares(namesrv.access.limiter.count), FairScheduler())
        process_stops = ProcessStops(self._clock, self._loaded.settings.scan_interval_seconds)
        observer = ConnectionEvents(namesrv, arrived_input, process_stops, tasks.create_task)
        self.server = self._build_server(observer, tasks)
        self.listeners = Listeners(self.server, namesrv.certificates.tls)
        housekeeping = Housekeeping(namesrv, arrived_input, process_stops, self._service_manager)
        snapshotter = Snapshotter(namesrv, snapshot_path(self._loaded.settings))
        async with AsyncExitStack() as stack:
            # The last tick was up to a second before the end, and events since then may have no line.
            stack.callback(namesrv.limited_log.tick)
            stack.callback(namesrv.access.tick)
            await self._start(housekeeping, snapshotter, stack)
            await self._stop_requested.wait()
            await self._stop(snapshotter)

    def ask_to_stop(self) -> None:
        """Request an orderly stop."""
        self._stop_requested.set()

    def _signalled(self, number: signal.Signals, deadline: ExitDeadline) -> None:
        if self._stop_requested.is_set():
            event(logger, logging.WARNING, "stopped_at_once", signal=number.name)
            log.flush(_HASTY_FLUSH_SECONDS)
            os._exit(128 + number)
        event(logger, logging.INFO, "stopping", signal=number.name)
        deadline.move(self._stop_seconds, EXIT_FAILED)
        self.ask_to_stop()

    def _on_sighup(self, had_terminal: bool, deadline: ExitDeadline) -> None:  # noqa: FBT001 - a signal handler's arguments have no names
        if had_terminal and not has_terminal():
            # The terminal window was closed: the operator can no longer stop the server.
            self._signalled(signal.SIGHUP, deadline)
        else:
            self._reload_requested.set()

    def _build_server(self, observer: ConnectionEvents, tasks: asyncio.TaskGroup) -> RemotingServer:
        namesrv = self.namesrv
        return RemotingServer(
            dispatcher_of(namesrv),
            observer,
            clock=self._clock,
            tasks=tasks,
            slots=namesrv.slots,
            fast_path=namesrv.fast_path,
            read_shares=observer.arrived_input.read_shares,
            scheduler=observer.arrived_input.scheduler,
        )

    async def _start(self, housekeeping: Housekeeping, snapshotter: Snapshotter, stack: AsyncExitStack) -> None:
        namesrv, settings = self.namesrv, self._loaded.settings
        spawn = self.server.tasks.create_task
        hint = "(--http-listen and --name-servers-listen take another ADDRESS:PORT, and an empty value none)"
        with needed(hint=hint):
            self.http = await stack.enter_async_context(http_ports(namesrv, self.server, spawn))
        further = settings.further_listeners
        with needed():
            addresses = await self.listeners.open(settings.listen_hosts, settings.listen_port, further)
        spawn(self.server.run())
        namesrv.boot.addresses.extend(addresses)
        for line_log in (namesrv.access.audit, namesrv.heartbeat_log):
            if line_log is not None:
                with needed("cannot write the audit trail or the heartbeat log"):
                    line_log.start()
                spawn(line_log.run())
        housekeeping.check_readiness()
        spawn(housekeeping.run())
        spawn(snapshotter.run())
        spawn(namesrv.kv.run(self._clock))
        spawn(namesrv.certificates.run())
        event(
            logger,
            logging.INFO,
            "listening",
            addresses=[address_text(address) for address in addresses],
            listeners=list(further),
            http=[address_text(address) for address in self.http.pages],
            name_servers_listen=[address_text(address) for address in self.http.name_servers],
            tls=settings.tls_mode,
            version=version(),
            boot_id=namesrv.boot.id,
            data_dir=settings.data_dir.resolve(),
            ready=namesrv.fast_path.is_ready,
        )
        warn_if_open(namesrv)
        warn_if_files_are_few(settings)
        reason = namesrv.boot.readiness_text()
        if not namesrv.fast_path.is_ready:
            event(logger, logging.INFO, "waiting", reason=reason)
        self._service_manager.ready(reason)
        if self._read_again is not None:
            spawn(Reloader(namesrv, self._read_again).run(self._reload_requested, self._service_manager))
        self.listening.set()

    # -- the stop ------------------------------------------------------------------------------------------------------

    @property
    def _stop_seconds(self) -> float:
        return 2 * _FINISH_SECONDS + self.namesrv.settings.current.drain_seconds + _SPARE_SECONDS

    async def _stop(self, snapshotter: Snapshotter) -> None:
        """Refuse new connections, save the snapshot, end watches, answer requests, close connections one by one."""
        namesrv, server = self.namesrv, self.server
        namesrv.boot.is_draining = True
        drain_seconds = namesrv.settings.current.drain_seconds
        self._service_manager.stopping("draining", self._stop_seconds)
        self.listeners.close()
        # The snapshot is saved before connections are closed: its brokers are expected at the next start.
        try:
            async with asyncio.timeout(_SAVE_SECONDS):
                await snapshotter.tick()
        except TimeoutError:
            event(logger, logging.ERROR, "snapshot_not_written", error=f"timed out after {_SAVE_SECONDS:g} s")
        namesrv.routes.watchers.wake(None)
        if not await server.drain(_FINISH_SECONDS):
            event(logger, logging.WARNING, "drain_unfinished", seconds=_FINISH_SECONDS)
        # Connections of clients are closed first, so that brokers stay connected longest.
        connections = sorted(server.connections.values(), key=lambda connection: connection.peer.is_broker)
        if connections:
            event(logger, logging.INFO, "draining", connections=len(connections), seconds=drain_seconds)
        await server.close_connections(connections, drain_seconds)
        await server.drain(_FINISH_SECONDS)
        server.abort_all()
        logs = (namesrv.access.audit, namesrv.heartbeat_log)
        await asyncio.gather(*(each.close() for each in logs if each is not None))


@contextmanager
def _stuck_start_logged(data_dir: Path, listening: asyncio.Event) -> Iterator[None]:
    """Log an error if the server does not listen after some seconds: a disk that hangs blocks the event loop.

    A thread logs it. The path is not resolved, since that could hang as well.
    """

    def log_if_stuck() -> None:
        if not listening.is_set():
            event(logger, logging.ERROR, "start_stuck", data_dir=data_dir.absolute(), seconds=STUCK_SECONDS)

    timer = threading.Timer(STUCK_SECONDS, log_if_stuck)
    timer.daemon = True
    # A process that can start no thread starts without this line.
    with suppress(NoThreadError), thread_starts():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _lock(data_dir: Path) -> Iterator[None]:
    """Lock the data directory: two servers with one directory would overwrite each other's files."""
    with needed(f"data directory {data_dir}"):
        try:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StartError(f"data directory {data_dir} is in use by another namesrv") from error
        yield
    finally:
        os.close(lock)
