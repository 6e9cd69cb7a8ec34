"""The command `namesrv-broker-agent`: the agent as a side-car of a broker in another language."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from namesrv_broker_agent.agent import BrokerAgent
from namesrv_broker_agent.link.state import ServerState
from namesrv_broker_agent.settings import AgentConfig, AgentSettings, ConfigFileError, doubts, read_config
from namesrv_broker_agent.topics import TopicStateError, check_state_file
from namesrv_remoting.aio.tls import TlsError
from namesrv_runtime import log, loops
from namesrv_runtime.clock import SystemClock, timeout_on
from namesrv_runtime.deadline import ExitDeadline
from namesrv_runtime.durable_file import FileStamp, file_stamp
from namesrv_runtime.log import event
from namesrv_runtime.threads import NoThreadError, in_thread

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
# interval at which the file is checked for changes
_RELOAD_SECONDS: Final = 0.25
# at the end, the time for threads that still read a file
_THREADS_SECONDS: Final = 2.0

logger: Final = logging.getLogger("namesrv_agent.sidecar")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="namesrv-broker-agent",
        description="Keeps one broker registered with every NameServer. The file is read again when it changes and on "
        "SIGHUP: topics follow at once, other settings need a restart. SIGTERM unregisters and ends; SIGUSR1 drains "
        "first (no write permission for one poll period of the clients), unless a SIGTERM cuts that short.",
    )
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="agent.toml: the broker, its topics")
    parser.add_argument("--check-config", action="store_true", help="only check the file: exit 0 or 2")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.add_argument(
        "--log-format", default="auto", choices=("auto", "text", "json"), help="auto: text on a terminal, else JSON"
    )
    options = parser.parse_args(argv)
    # The stamp is taken before the file is read, so that a change in between is noticed later.
    stamp = file_stamp(options.config)
    try:
        config = read_config(options.config)
    except ConfigFileError as error:
        sys.stderr.write(f"namesrv-broker-agent: {error}\n")
        return EXIT_USAGE
    if options.check_config:
        return _check(options.config, config.settings)
    log.configure(options.log_level, options.log_format)
    if options.log_level != "debug":
        for logger_name in ("namesrv_agent.connection", "namesrv_agent.registration"):
            # The event `name_server_changed` reports the same, with fields.
            logging.getLogger(logger_name).setLevel(logging.ERROR)
    for warning in doubts(config.settings):
        event(logger, logging.WARNING, "settings_warning", warning=warning)
    try:
        with ExitDeadline() as deadline:
            loops.run(lambda: SideCar(options.config, config, stamp).run(deadline))
        event(logger, logging.INFO, "stopped")
    except (TopicStateError, OSError) as error:
        # The state file is damaged or cannot be written.
        sys.stderr.write(f"namesrv-broker-agent: {error}\n")
        return EXIT_FAILED
    return EXIT_OK


def _check(path: Path, settings: AgentSettings) -> int:
    """Check the files that the settings name, and print the result; return the exit code."""
    try:
        if settings.client_tls is not None:
            settings.client_tls.context()
        if settings.state_file is not None:
            check_state_file(Path(settings.state_file))
    except (TlsError, TopicStateError, OSError) as error:
        sys.stderr.write(f"namesrv-broker-agent: {path}: {error}\n")
        return EXIT_USAGE
    for warning in doubts(settings):
        sys.stderr.write(f"namesrv-broker-agent: {path}: warning: {warning}\n")
    sys.stdout.write("configuration is valid\n")
    return EXIT_OK


class SideCar:
    """The running side-car: an agent, its configuration file and its signals."""

    def __init__(self, path: Path, config: AgentConfig, stamp: FileStamp | None) -> None:
        self._path = path
        self._config = config
        self._clock = SystemClock()
        self._ended = asyncio.Event()
        self._drains = asyncio.Event()
        self._reload = asyncio.Event()
        # stamp of the file that was read or refused last
        self._stamp = stamp
        # the error for which the current file was refused
        self._problem: str | None = None
        # the state of the servers, and the error of their list, as logged last
        self._shown: dict[str, ServerState] = {}
        self._shown_source_error: str | None = None

    async def run(self, deadline: ExitDeadline) -> None:
        """Run until a signal arrives; the deadline then ends the process even if threads hang."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ended.set)
        loop.add_signal_handler(signal.SIGINT, self._ended.set)
        loop.add_signal_handler(signal.SIGUSR1, self._drains.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        agent = BrokerAgent(self._config.settings, clock=self._clock)
        # The configuration file decides about topics, including those that the state file still has.
        await agent.replace_topics(self._config.topics)
        async with agent:
            event(logger, logging.INFO, "started", **self._who(agent))
            # The file may hang, and the signals end the wait for it.
            await _first(self._ended.wait(), self._drains.wait(), self._follow_changes(agent))
            if not self._ended.is_set():
                event(logger, logging.INFO, "draining", seconds=self._config.settings.client_poll_seconds)
                await _first(agent.drain(), self._ended.wait())
        deadline.move(_THREADS_SECONDS, EXIT_OK)

    def _who(self, agent: BrokerAgent) -> dict[str, Any]:
        settings = self._config.settings
        return {
            "cluster_name": settings.cluster_name,
            "broker_name": settings.broker_name,
            "broker_id": settings.broker_id,
            "broker_addr": settings.broker_addr,
            "topics": len(agent.topics),
        }

    async def _follow_changes(self, agent: BrokerAgent) -> None:
        """Check servers and file at short intervals, and on SIGHUP, until cancelled."""
        while True:
            await self._check(agent)
            with suppress(TimeoutError):
                async with timeout_on(self._clock, _RELOAD_SECONDS):
                    await self._reload.wait()

    async def _check(self, agent: BrokerAgent) -> None:
        """Log what changed at the servers, and reload the file if it changed."""
        self._log_changes(agent)
        await self._reload_changed(agent)

    def _log_changes(self, agent: BrokerAgent) -> None:
        for address, state in agent.servers.items():
            shown = self._shown.get(address)
            if shown is None or (shown.status, shown.last_error) != (state.status, state.last_error):
                level = logging.WARNING if state.last_error else logging.INFO
                error: dict[str, Any] = {"error": state.last_error} if state.last_error else {}
                event(logger, level, "name_server_changed", server=address, status=state.status, **error)
        self._shown = dict(agent.servers)
        if agent.name_servers_error not in (None, self._shown_source_error):
            event(logger, logging.WARNING, "name_servers_unknown", error=agent.name_servers_error)
        self._shown_source_error = agent.name_servers_error

    async def _reload_changed(self, agent: BrokerAgent) -> None:
        stamp, problem = self._stamp, None
        try:
            # The stat runs in a thread, because on a dead network disk a stat never ends, and the event loop has to
            # serve signals.
            stamp = await in_thread(file_stamp, self._path)
            if self._reload.is_set():
                self._reload.clear()
                self._problem = None
            elif stamp == self._stamp:
                return
            await self._follow(agent)
            self._stamp = stamp
        except ConfigFileError as error:
            # The file is not tried again until it changes.
            self._stamp, problem = stamp, str(error)
        except NoThreadError as error:
            # Nothing has changed; the next check tries again.
            problem = str(error)
        except OSError as error:
            # The state file could not be written; the next check tries again.
            problem = f"state file {self._config.settings.state_file}: {error.strerror}"
        if problem not in (None, self._problem):
            event(logger, logging.ERROR, "reload_refused", problem=problem)
        self._problem = problem

    async def _follow(self, agent: BrokerAgent) -> None:
        # The file is read in a thread: with thousands of topics that takes seconds.
        config = await in_thread(read_config, self._path)
        done = await agent.replace_topics(config.topics)
        if config.settings != self._config.settings:
            event(logger, logging.WARNING, "restart_needed", reason="settings other than topics changed")
        event(logger, logging.INFO, "reloaded", topics_changed=len(done.changed), topics_deleted=len(done.deleted))


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one coroutine has ended, cancel the others, and raise the error of the ended one, if any."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)
    for task in done:
        task.result()
