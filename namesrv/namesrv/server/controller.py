"""How does the daemon start, run and end?"""

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from namesrv import processors
from namesrv.context import LiveSettings, Namesrv
from namesrv.fast_lane import FastLane
from namesrv.heartbeat_log.log import HeartbeatLog
from namesrv.kv.store import KVConfig
from namesrv.observability.surface import Surface
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.server import snapshot
from namesrv.server.effects import EffectSink
from namesrv.server.events import EventRing
from namesrv.server.housekeeping import Housekeeping
from namesrv.server.notifier import MinBrokerIdNotifier
from namesrv.server.process import StartError, lock_data_dir, settle_garbage_collector
from namesrv.server.reload import Reloader, has_terminal
from namesrv.server.sd_notify import ServiceManager
from namesrv.server.snapshot import Readiness
from namesrv.server.snapshotter import Snapshotter
from namesrv.server.watchers import RouteWatchers
from namesrv.settings.limits import kv_limits, server_limits
from namesrv.settings.model import Settings
from namesrv.settings.sources import Loaded
from namesrv.version import version
from namesrv_remoting.aio.dispatch import Dispatcher
from namesrv_remoting.aio.peer import address_text
from namesrv_remoting.aio.server import RemotingServer
from namesrv_remoting.codes import ORDER_TOPIC_CONFIG
from namesrv_runtime import loops
from namesrv_runtime.clock import Clock, SystemClock
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

EXIT_OK: Final = 0
EXIT_START_FAILED: Final = 1
# EX_SOFTWARE of sysexits: a bug of ours, with a traceback; systemd restarts the service
EXIT_BUG: Final = 70
# Questions in flight when we are told to stop are given this long.
_FINISH_SECONDS: Final = 2.0
# for whatever else leaving takes: a last snapshot on a slow disk
_SPARE_SECONDS: Final = 10.0


class _Stopped(Exception):  # noqa: N818 - no error: it ends the TaskGroup
    """Everything was done; what still runs may be cancelled."""


def run(settings: Settings, read_again: Callable[[], Loaded] | None = None) -> int:
    """Run a NameServer until it is told to stop; the process's exit code.

    On SIGHUP the settings are read again, if it is known how.
    """
    # the process is ours here, and its collector with it
    settle_garbage_collector()
    try:
        loops.run(lambda: NamesrvController(settings).run(read_again))
    except StartError as error:
        event(logger, logging.ERROR, "start_failed", error=error)
        return EXIT_START_FAILED
    except BaseExceptionGroup as group:
        for bug in group.exceptions:
            event(logger, logging.CRITICAL, "crashed", exc_info=bug)
        traceback.print_exception(group, file=sys.stderr)
        return EXIT_BUG
    except Exception as error:  # noqa: BLE001 - the last place that can say what ended the process
        event(logger, logging.CRITICAL, "crashed", exc_info=error)
        return EXIT_BUG
    return EXIT_OK


class NamesrvController:
    """One NameServer from start to end: `run` for a process, `start` and `stop` for a test."""

    def __init__(
        self, settings: Settings, clock: Clock | None = None, service_manager: ServiceManager | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._service_manager = service_manager or ServiceManager()
        self._stop_asked = asyncio.Event()
        # what SIGHUP asks for
        self._reload_asked = asyncio.Event()
        self._read_again: Callable[[], Loaded] | None = None
        # (host, port) of every listening socket, once there are any
        self.addresses: list[tuple[str, int]] = []
        # the same for HTTP; none when it is off
        self.http_addresses: list[tuple[str, int]] = []
        # set when it listens
        self.listening = asyncio.Event()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self, read_again: Callable[[], Loaded] | None) -> None:
        """Serve until SIGTERM or SIGINT; reload on SIGHUP, if it is known from where.

        Raises:
            StartError: it cannot start.
            BaseExceptionGroup: a bug ended it.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        if read_again is not None:
            self._read_again = read_again
            loop.add_signal_handler(signal.SIGHUP, self._hung_up, has_terminal())
        self._service_manager = ServiceManager.of(os.environ)
        try:
            await self.serve()
        finally:
            self._service_manager.close()

    async def serve(self) -> None:
        """Serve until `ask_to_stop`, then leave in good order."""
        data_dir = self._settings.data_dir
        lock = lock_data_dir(data_dir)
        try:
            self.namesrv = namesrv = self._build(data_dir)
            housekeeping = Housekeeping(namesrv)
            snapshotter = Snapshotter(namesrv, data_dir / "snapshot.json")
            surface = Surface(namesrv, self._observers)
            failed: Exception | None = None
            try:
                async with asyncio.TaskGroup() as tasks:
                    await self._start(tasks, housekeeping, snapshotter, surface)
                    await self._stop_asked.wait()
                    await self._leave(snapshotter)
                    # a TaskGroup that ends takes no more tasks
                    surface.close()
                    raise _Stopped
            except* _Stopped:
                pass
            except* StartError as group:
                # a TaskGroup wraps what ends it, and this is no bug
                failed = group.exceptions[0]
            finally:
                surface.close()
            if failed is not None:
                raise failed
        finally:
            os.close(lock)

    def ask_to_stop(self) -> None:
        """Leave in good order."""
        self._stop_asked.set()

    def _signalled(self, number: signal.Signals) -> None:
        if self._stop_asked.is_set():
            event(logger, logging.WARNING, "stopped_at_once", signal=number.name)
            os._exit(128 + number)
        event(logger, logging.INFO, "stopping", signal=number.name)
        self.ask_to_stop()

    def _hung_up(self, had_terminal: bool) -> None:  # noqa: FBT001 - a signal handler's arguments have no names
        if had_terminal and not has_terminal():
            # the window that it ran in was closed: nobody is left who could end it
            self._signalled(signal.SIGHUP)
        else:
            self._reload_asked.set()

    # -- building -----------------------------------------------------------------------------------------------------

    def _build(self, data_dir: Path) -> Namesrv:
        settings, clock = self._settings, self._clock
        live = LiveSettings.of(settings)
        try:
            kv = KVConfig.load(data_dir / "kvConfig.json", kv_limits(settings))
        except OSError as error:
            raise StartError(f"KV configuration: {error}") from error
        was_there = (data_dir / "snapshot.json").exists()
        last = snapshot.load(data_dir / "snapshot.json")
        notifier = MinBrokerIdNotifier()
        sink = EffectSink(notifier)
        manager = RouteInfoManager(clock, live, sink, lambda connection_id: connection_id in namesrv.server.connections)
        manager.touch_listeners = sink.subscribers
        self._observers = sink.observers
        namesrv = Namesrv(
            settings=settings,
            live=live,
            clock=clock,
            kv=kv,
            manager=manager,
            watchers=RouteWatchers(),
            events=EventRing(),
            readiness=Readiness(
                last.brokers if last else (),
                settings.wait_for_service_seconds,
                clock.monotonic(),
                is_lost=was_there and last is None,
            ),
            started_wall=clock.wall(),
            started_monotonic=clock.monotonic(),
            service_manager=self._service_manager,
        )
        manager.tables.wiped.update(wiped.broker_name for wiped in (last.wiped if last else ()))
        namesrv.fast_lane = FastLane(manager, lambda topic: kv.get(ORDER_TOPIC_CONFIG, topic), namesrv.boot_id)
        sink.namesrv = notifier.namesrv = namesrv
        log_directory = settings.heartbeat_log_path
        if log_directory is not None:
            namesrv.heartbeat_log = HeartbeatLog(settings, log_directory, namesrv.boot_id, clock, manager)
            namesrv.heartbeat_log.listen(sink.observers, namesrv.fast_lane)
        return namesrv

    async def _start(
        self, tasks: asyncio.TaskGroup, housekeeping: Housekeeping, snapshotter: Snapshotter, surface: Surface
    ) -> None:
        namesrv, settings = self.namesrv, self._settings

        def spawn(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
            return tasks.create_task(work)

        namesrv.spawn = spawn
        dispatcher = Dispatcher(
            processors.handlers(namesrv),
            concurrent=processors.CONCURRENT,
            native_ext={"boot_id": namesrv.boot_id},
            max_frame_bytes=settings.max_frame_bytes,
        )
        namesrv.server = RemotingServer(
            dispatcher,
            housekeeping,
            clock=self._clock,
            tasks=tasks,
            limits=server_limits(settings),
            fast_lane=namesrv.fast_lane,
        )
        try:
            self.http_addresses = await surface.listen()
        except OSError as error:
            raise StartError(
                f"cannot listen on {settings.http_listen} for HTTP: {error.strerror} "
                "(--http-listen ADDRESS:PORT takes another port, and an empty value none)"
            ) from error
        try:
            self.addresses = await namesrv.server.listen(settings.listen_hosts, settings.listen_port)
        except OSError as error:
            raise StartError(
                f"cannot listen on {settings.listen_host}:{settings.listen_port}: {error.strerror}"
            ) from error
        namesrv.is_listening = True
        if namesrv.heartbeat_log is not None:
            namesrv.heartbeat_log.start()
            spawn(namesrv.heartbeat_log.run())
        housekeeping.check_readiness()
        spawn(housekeeping.run())
        spawn(snapshotter.run())
        event(
            logger,
            logging.INFO,
            "listening",
            addresses=[address_text(address) for address in self.addresses],
            http=[address_text(address) for address in self.http_addresses],
            version=version(),
            boot_id=namesrv.boot_id,
            data_dir=settings.data_dir,
            ready=namesrv.fast_lane.is_ready,
        )
        reason = namesrv.readiness.reason(self._clock.monotonic())
        if not namesrv.fast_lane.is_ready:
            event(logger, logging.INFO, "waiting", reason=reason)
        namesrv.service_manager.ready(reason)
        if self._read_again is not None:
            spawn(Reloader(namesrv, self._read_again).run(self._reload_asked))
        self.listening.set()

    # -- leaving ------------------------------------------------------------------------------------------------------

    async def _leave(self, snapshotter: Snapshotter) -> None:
        namesrv = self.namesrv
        server = namesrv.server
        namesrv.is_draining = True
        drain_seconds = namesrv.settings.drain_seconds
        namesrv.service_manager.stopping("draining", 2 * _FINISH_SECONDS + drain_seconds + _SPARE_SECONDS)
        server.stop_accepting()
        # before anybody is sent away: these are the brokers to expect next time
        await snapshotter.tick(0.0)
        namesrv.watchers.wake(None)
        if not await server.drain(_FINISH_SECONDS):
            event(logger, logging.WARNING, "drain_unfinished", seconds=_FINISH_SECONDS)
        # clients first, so that brokers know longest
        connections = sorted(server.connections.values(), key=lambda connection: connection.is_broker)
        if connections:
            event(logger, logging.INFO, "draining", connections=len(connections), seconds=drain_seconds)
        await server.close_connections(connections, drain_seconds)
        await server.drain(_FINISH_SECONDS)
        server.abort_all()
        if namesrv.heartbeat_log is not None:
            await namesrv.heartbeat_log.close()
        event(logger, logging.INFO, "stopped")
