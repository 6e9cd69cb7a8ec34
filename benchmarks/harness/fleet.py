"""Fleets of servers that can be killed and restarted on the same port and data, and brokers with our agent."""

import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Final, Self

from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import WITHOUT_SHARES, Server, daemon
from benchmarks.harness.wire import broker_addr
from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig
from namesrv_testing.ports import held_port

PATIENCE_SECONDS: Final = 60.0


class Fleet:
    """Several servers until the block ends; each keeps its port and its data directory when it restarts."""

    def __init__(
        self,
        bench: Bench,
        *flags: str,
        count: int = 3,
        environ: Mapping[str, str] | None = None,
        shares: Sequence[str] = WITHOUT_SHARES,
    ) -> None:
        self._bench = bench
        self._flags = flags
        self._count = count
        self._environ = environ
        self._shares = shares
        self._root = tempfile.TemporaryDirectory(prefix="namesrv-bench-")
        # one stack for each server, which stops it
        self._stacks: list[ExitStack] = []
        # one for each server, held while it is down
        self._ports: list[int] = []
        self._held_ports = ExitStack()
        self.servers: list[Server] = []

    def __enter__(self) -> Self:
        for number in range(self._count):
            self._stacks.append(ExitStack())
            self._ports.append(self._held_ports.enter_context(held_port()))
            self.servers.append(self._started(number, self._environ))
        return self

    def __exit__(self, *_: object) -> None:
        for stack in self._stacks:
            stack.close()
        self._held_ports.close()
        self._root.cleanup()

    @property
    def addresses(self) -> str:
        """The addresses of all servers, as clients and agents expect them."""
        return ";".join(server.address for server in self.servers)

    def _started(self, number: int, environ: Mapping[str, str] | None) -> Server:
        place = ("--listen-port", str(self._ports[number]), "--data-dir", f"{self._root.name}/{number}")
        started = daemon(self._bench, *self._flags, *place, shares=self._shares, environ=environ)
        return self._stacks[number].enter_context(started)

    def kill(self, number: int) -> None:
        """Kill a server with SIGKILL."""
        self.servers[number].signal(signal.SIGKILL)

    def start(self, number: int, environ: Mapping[str, str] | None = None) -> None:
        """Start a server on its port and data again; a running one is stopped with SIGTERM first."""
        self._stacks[number].close()
        self.servers[number] = self._started(number, environ)


def agent(number: int, name_servers: str, topics: Sequence[str], **settings: Any) -> BrokerAgent:
    """The agent of a broker named broker-NUMBER with these topics."""
    agent_settings = AgentSettings(
        cluster_name="DefaultCluster",
        broker_name=f"broker-{number}",
        broker_addr=broker_addr(number),
        name_servers=name_servers,
        **settings,
    )
    return BrokerAgent(agent_settings, [TopicConfig(topic, 8, 8) for topic in topics])


async def entered(stack: AsyncExitStack, agents: Sequence[BrokerAgent], servers: int) -> Sequence[BrokerAgent]:
    """Start agents, and wait until all servers know them; closing the stack stops the agents."""
    for each in agents:
        await stack.enter_async_context(each)
    await registered(agents, servers)
    return agents


async def registered(agents: Sequence[BrokerAgent], servers: int) -> None:
    """Wait until all servers know the agents' brokers."""
    for each in agents:
        await each.registered(count=servers, timeout_seconds=PATIENCE_SECONDS)
