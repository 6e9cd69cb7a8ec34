"""The command `namesrv-broker-agent`: the agent alone, beside a broker in another language."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from namesrv_broker_agent.agent import BrokerAgent
from namesrv_broker_agent.config_file import AgentConfig, ConfigFileError, read_config
from namesrv_broker_agent.link import ServerState
from namesrv_remoting.aio import loops
from namesrv_remoting.aio.clock import SystemClock

EXIT_OK: Final = 0
EXIT_USAGE: Final = 2
# how often the file is looked at
_RELOAD_SECONDS: Final = 1.0

logger: Final = logging.getLogger("namesrv_broker_agent")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the exit code."""
    parser = argparse.ArgumentParser(
        prog="namesrv-broker-agent",
        description="Keeps one broker registered with every NameServer. The file is read again when it changes and on "
        "SIGHUP: topics follow at once, other settings need a restart. SIGTERM unregisters and ends; SIGUSR1 drains "
        "first (no write permission for one poll period of the clients).",
    )
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="agent.toml: the broker, its topics")
    parser.add_argument("--check-config", action="store_true", help="only check the file: exit 0 or 2")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    options = parser.parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(message)s",
    )
    try:
        config = read_config(options.config)
    except ConfigFileError as error:
        sys.stderr.write(f"namesrv-broker-agent: {error}\n")
        return EXIT_USAGE
    if options.check_config:
        sys.stdout.write("configuration is valid\n")
        return EXIT_OK
    loops.run(lambda: SideCar(options.config, config).run())
    return EXIT_OK


class SideCar:
    """The agent, its file and its signals."""

    def __init__(self, path: Path, config: AgentConfig) -> None:
        self._path = path
        self._config = config
        self._clock = SystemClock()
        self._ended = asyncio.Event()
        self._drains = False
        self._reload = asyncio.Event()
        # of the file as it was read: time, size, inode
        self._stamp = _stamp(path)
        self._shown: dict[str, ServerState] = {}

    async def run(self) -> None:
        """Until a signal ends it."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ended.set)
        loop.add_signal_handler(signal.SIGINT, self._ended.set)
        loop.add_signal_handler(signal.SIGUSR1, self._drain)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        agent = BrokerAgent(self._config.settings, clock=self._clock)
        # the file is the truth, also about topics that an earlier run left in the state file
        await agent.replace_topics(self._config.topics)
        async with agent:
            logger.info("started %r", agent)
            while not self._ended.is_set():
                await self._look(agent)
                await self._pause()
            if self._drains:
                logger.info("draining for %g s", self._config.settings.client_poll_seconds)
                await agent.drain()
        logger.info("stopped")

    def _drain(self) -> None:
        self._drains = True
        self._ended.set()

    async def _pause(self) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self._ended, self._reload)]
        await asyncio.wait(waits, timeout=_RELOAD_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _look(self, agent: BrokerAgent) -> None:
        """Say what changed at the servers, and follow the file."""
        for address, state in agent.servers.items():
            shown = self._shown.get(address)
            if shown is None or (shown.status, shown.last_error) != (state.status, state.last_error):
                level = logging.WARNING if state.last_error else logging.INFO
                logger.log(level, "%s %s%s", address, state.status, f": {state.last_error}" if state.last_error else "")
        self._shown = dict(agent.servers)
        stamp = _stamp(self._path)
        if not self._reload.is_set() and stamp == self._stamp:
            return
        self._reload.clear()
        self._stamp = stamp
        try:
            config = read_config(self._path)
            done = await agent.replace_topics(config.topics)
        except (ConfigFileError, OSError) as error:
            logger.error("not reloaded: %s", error)  # noqa: TRY400 - the message says it all
            return
        if config.settings != self._config.settings:
            logger.warning("settings other than topics changed: they take effect after a restart")
        logger.info("reloaded: %d topics changed, %d deleted", len(done.changed), len(done.deleted))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
