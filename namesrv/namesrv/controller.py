"""How does the daemon start, run and end?"""

import asyncio
import fcntl
import gc
import logging
import os
import signal
import sys
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from namesrv import processors, snapshot
from namesrv.context import LiveSettings, Namesrv
from namesrv.effects import EffectSink
from namesrv.events import EventRing
from namesrv.fast_lane import FastLane
from namesrv.housekeeping import Housekeeping
from namesrv.kvconfig import KVConfig, KVLimits
from namesrv.log import event
from namesrv.notifier import MinBrokerIdNotifier
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.settings import Settings
from namesrv.snapshot import Readiness
from namesrv.snapshotter import Snapshotter
from namesrv.version import version
from namesrv.watchers import RouteWatchers
from namesrv_remoting.aio import loops
from namesrv_remoting.aio.clock import Clock, SystemClock
from namesrv_remoting.aio.dispatch import Dispatcher
from namesrv_remoting.aio.limits import ServerLimits
from namesrv_remoting.aio.server import RemotingServer
from namesrv_remoting.codes import ORDER_TOPIC_CONFIG

logger: Final = logging.getLogger(__name__)

EXIT_OK: Final = 0
EXIT_START_FAILED: Final = 1
# EX_SOFTWARE of sysexits: a bug of ours, with a traceback; systemd restarts the service
EXIT_BUG: Final = 70
# Questions in flight when we are told to stop are given this long.
_FINISH_SECONDS: Final = 2.0


class StartError(Exception):
    """The daemon cannot start; the message is for the operator."""


class _Stopped(Exception):  # noqa: N818 - no error: it ends the TaskGroup
    """Everything was done; what still runs may be cancelled."""


def run(settings: Settings) -> int:
    """Run a NameServer until it is told to stop; the process's exit code."""
    # the process is ours here, and its collector with it
    _settle_garbage_collector()
    try:
        loops.run(lambda: NamesrvController(settings).run())
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

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._stop_asked = asyncio.Event()
        # (host, port) of every listening socket, once there are any
        self.addresses: list[tuple[str, int]] = []
        # set when it listens
        self.listening = asyncio.Event()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            StartError: it cannot start.
            BaseExceptionGroup: a bug ended it.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        await self.serve()

    async def serve(self) -> None:
        """Serve until `ask_to_stop`, then leave in good order."""
        data_dir = self._settings.data_dir
        lock = _lock_data_dir(data_dir)
        try:
            self.namesrv = namesrv = self._build(data_dir)
            housekeeping = Housekeeping(namesrv)
            snapshotter = Snapshotter(namesrv, data_dir / "snapshot.json")
            failed: Exception | None = None
            try:
                async with asyncio.TaskGroup() as tasks:
                    await self._start(tasks, housekeeping, snapshotter)
                    await self._stop_asked.wait()
                    await self._leave(snapshotter)
                    raise _Stopped
            except* _Stopped:
                pass
            except* StartError as group:
                # a TaskGroup wraps what ends it, and this is no bug
                failed = group.exceptions[0]
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

    # -- building -----------------------------------------------------------------------------------------------------

    def _build(self, data_dir: Path) -> Namesrv:
        settings, clock = self._settings, self._clock
        live = LiveSettings.of(settings)
        limits = KVLimits(
            max_value_bytes=settings.kv_max_value_bytes,
            max_keys_per_namespace=settings.kv_max_keys_per_namespace,
            max_namespaces=settings.kv_max_namespaces,
        )
        try:
            kv = KVConfig.load(data_dir / "kvConfig.json", limits)
        except OSError as error:
            raise StartError(f"KV configuration: {error}") from error
        was_there = (data_dir / "snapshot.json").exists()
        last = snapshot.load(data_dir / "snapshot.json")
        notifier = MinBrokerIdNotifier()
        sink = EffectSink(notifier)
        manager = RouteInfoManager(clock, live, sink, lambda connection_id: connection_id in namesrv.server.connections)
        manager.touch_listeners = sink.subscribers
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
        )
        manager.tables.wiped.update(wiped.broker_name for wiped in (last.wiped if last else ()))
        namesrv.fast_lane = FastLane(manager, lambda topic: kv.get(ORDER_TOPIC_CONFIG, topic), namesrv.boot_id)
        sink.namesrv = notifier.namesrv = namesrv
        return namesrv

    async def _start(self, tasks: asyncio.TaskGroup, housekeeping: Housekeeping, snapshotter: Snapshotter) -> None:
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
            limits=_limits(settings),
            fast_lane=namesrv.fast_lane,
        )
        try:
            self.addresses = await namesrv.server.listen(settings.listen_hosts, settings.listen_port)
        except OSError as error:
            raise StartError(
                f"cannot listen on {settings.listen_host}:{settings.listen_port}: {error.strerror}"
            ) from error
        housekeeping.check_readiness()
        spawn(housekeeping.run())
        spawn(snapshotter.run())
        event(
            logger,
            logging.INFO,
            "listening",
            addresses=[f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses],
            version=version(),
            boot_id=namesrv.boot_id,
            data_dir=settings.data_dir,
            ready=namesrv.fast_lane.is_ready,
        )
        if not namesrv.fast_lane.is_ready:
            event(logger, logging.INFO, "waiting", reason=namesrv.readiness.reason(self._clock.monotonic()))
        self.listening.set()

    # -- leaving ------------------------------------------------------------------------------------------------------

    async def _leave(self, snapshotter: Snapshotter) -> None:
        namesrv = self.namesrv
        server = namesrv.server
        namesrv.is_draining = True
        server.stop_accepting()
        # before anybody is sent away: these are the brokers to expect next time
        await snapshotter.tick(0.0)
        namesrv.watchers.wake(None)
        if not await server.drain(_FINISH_SECONDS):
            event(logger, logging.WARNING, "drain_unfinished", seconds=_FINISH_SECONDS)
        # clients first, so that brokers know longest
        connections = sorted(server.connections.values(), key=lambda connection: connection.is_broker)
        if connections:
            event(logger, logging.INFO, "draining", connections=len(connections), seconds=self._settings.drain_seconds)
        await server.close_connections(connections, self._settings.drain_seconds)
        await server.drain(_FINISH_SECONDS)
        server.abort_all()
        event(logger, logging.INFO, "stopped")


def _limits(settings: Settings) -> ServerLimits:
    return ServerLimits(
        max_frame_bytes=settings.max_frame_bytes,
        max_header_bytes=settings.max_header_bytes,
        max_connections=settings.max_connections,
        max_connections_per_ip=settings.max_connections_per_ip,
        max_in_flight=settings.max_in_flight_per_connection,
        write_buffer_bytes=settings.write_buffer_bytes,
        first_frame_seconds=settings.first_frame_timeout_seconds,
        whole_frame_seconds=settings.whole_frame_timeout_seconds,
        idle_seconds=settings.idle_timeout_seconds,
        tcp_user_timeout_seconds=settings.tcp_user_timeout_seconds,
        proxy_protocol=settings.proxy_protocol == "optional",
    )


def _lock_data_dir(data_dir: Path) -> int:
    """Make the data directory ours: two servers in one would overwrite each other's files."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(f"data directory {data_dir}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StartError(f"data directory {data_dir} is in use by another namesrv") from error
    return lock


def _settle_garbage_collector() -> None:
    """Keep the cycle collector from stopping the loop.

    What was loaded until now stays for ever and is not looked at again. The tables hold untracked values, so that a
    full collection is short; it is asked for rarely all the same.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
