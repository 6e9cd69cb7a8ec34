"""Servers that can be killed and started again where they were, and brokers of the real agent."""

import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Final, Self

from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Server, daemon
from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig

PATIENCE_SECONDS: Final = 60.0


class Fleet:
    """Servers, each with a port and data of its own, until the block ends."""

    def __init__(self, bench: Bench, *flags: str, count: int = 3, environ: Mapping[str, str] | None = None) -> None:
        self._bench = bench
        self._flags = flags
        self._count = count
        self._environ = environ
        self._root = tempfile.TemporaryDirectory(prefix="namesrv-bench-")
        # The function that ends each server.
        self._lives: list[ExitStack] = []
        self.servers: list[Server] = []

    def __enter__(self) -> Self:
        for number in range(self._count):
            self._lives.append(ExitStack())
            self.servers.append(self._started(number, 0, self._environ))
        return self

    def __exit__(self, *_: object) -> None:
        for life in self._lives:
            life.close()
        self._root.cleanup()

    @property
    def addresses(self) -> str:
        """The list of NameServers."""
        return ";".join(server.address for server in self.servers)

    def _started(self, number: int, port: int, environ: Mapping[str, str] | None) -> Server:
        place = ("--listen-port", str(port), "--data-dir", f"{self._root.name}/{number}")
        return self._lives[number].enter_context(daemon(self._bench, *self._flags, *place, environ=environ))

    def kill(self, number: int) -> None:
        """Let a server crash."""
        self.servers[number].signal(signal.SIGKILL)

    def start(self, number: int, environ: Mapping[str, str] | None = None) -> None:
        """Start a server where it was; one that runs is stopped before, as a service manager does."""
        self._lives[number].close()
        self.servers[number] = self._started(number, self.servers[number].port, environ)


def agent(number: int, name_servers: str, topics: Sequence[str], **settings: Any) -> BrokerAgent:
    """The agent of broker-NUMBER with these topics."""
    found = AgentSettings(
        cluster_name="DefaultCluster",
        broker_name=f"broker-{number}",
        broker_addr=f"10.0.{number // 250}.{number % 250}:10911",
        name_servers=name_servers,
        **settings,
    )
    return BrokerAgent(found, [TopicConfig(topic, 8, 8) for topic in topics])


async def entered(stack: AsyncExitStack, agents: Sequence[BrokerAgent], servers: int) -> Sequence[BrokerAgent]:
    """The agents, when all servers know them; they leave when the stack does."""
    for each in agents:
        await stack.enter_async_context(each)
    await registered(agents, servers)
    return agents


async def registered(agents: Sequence[BrokerAgent], servers: int) -> None:
    """Wait until all servers know the agents' brokers."""
    for each in agents:
        await each.registered(count=servers, timeout_seconds=PATIENCE_SECONDS)
