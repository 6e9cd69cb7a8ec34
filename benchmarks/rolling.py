"""A rolling restart of three servers under 200 clients that pull ten times a second."""

import asyncio
import itertools
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import Final, Self

from benchmarks.figures import BenchError, Figure, Target
from benchmarks.rounds import Bench
from benchmarks.servers import Server, daemon
from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.serializers import encode_command
from namesrv_runtime import loops

SERVERS: Final = 3
BROKERS: Final = 4
CLIENTS: Final = 200
PULL_SECONDS: Final = 0.1
TOPIC: Final = "orders"
# as they are by default, but for brokers that come back sooner than every 30 s
_FLAGS: Final = ("--drain-seconds", "5", "--wait-for-service-seconds", "45")
_HEARTBEAT_SECONDS: Final = 1.0
# before the first server is stopped, and after each has come back
_CALM_SECONDS: Final = 2.0
_TIMEOUT_SECONDS: Final = 30.0
_QUESTION: Final = encode_command(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": TOPIC}))


def measure(bench: Bench) -> list[Figure]:
    """One restart after the other, once: it takes half a minute."""
    bench.progress(f"{CLIENTS} clients on {SERVERS} servers that are restarted")
    return figures(restarted(bench))


@dataclass(slots=True)
class Seen:
    """What came of all pulls."""

    pulls: int = 0
    # pulls that a client had to repeat, over a connection to another server, and those that failed all the same
    repeated: int = 0
    failed: int = 0
    # pulls whose route lacked a broker
    incomplete: int = 0
    # second -> clients that connected in it
    connected: Counter[int] = field(default_factory=Counter)


def restarted(bench: Bench, before: Mapping[str, str] | None = None, after: Mapping[str, str] | None = None) -> Seen:
    """What clients see while servers that were started in the one environment are restarted in the other."""
    with (
        tempfile.TemporaryDirectory(prefix="namesrv-rolling-") as root,
        _Fleet(bench, root, before or {}, after or {}) as fleet,
    ):
        return loops.run(lambda: _measured(fleet))


def figures(seen: Seen) -> list[Figure]:
    """What the clients have seen.

    Raises:
        BenchError: they did not pull at all.
    """
    if not seen.pulls:
        raise BenchError("rolling: nobody pulled")
    busiest = max(seen.connected.values(), default=0)
    again = f"{seen.pulls:,} pulls, {seen.repeated} repeated at another server"
    return [
        Figure("rolling.failed", "pulls that failed", "count", (seen.failed,), Target("<=", 0), behind=again),
        Figure("rolling.incomplete", "pulls that lacked a broker", "count", (seen.incomplete,), Target("<=", 0)),
        Figure(
            "rolling.moved",
            "clients that connect in the busiest second, of all",
            "times",
            (busiest / CLIENTS,),
            Target("<=", 0.2),
            behind=f"{sum(seen.connected.values())} connected in all",
        ),
    ]


class _Fleet:
    """Servers that can be restarted, each with its port and data."""

    def __init__(self, bench: Bench, root: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        self._bench = bench
        self._before = before
        self._after = after
        self._root = root
        self._stacks: list[ExitStack] = []
        self.servers: list[Server] = []

    def __enter__(self) -> Self:
        for number in range(SERVERS):
            self._stacks.append(ExitStack())
            self.servers.append(self._start(number, 0, self._before))
        return self

    def __exit__(self, *_: object) -> None:
        for stack in self._stacks:
            stack.close()

    def _start(self, number: int, port: int, environ: Mapping[str, str]) -> Server:
        place = ("--listen-port", str(port), "--data-dir", f"{self._root}/{number}")
        return self._stacks[number].enter_context(daemon(self._bench, *_FLAGS, *place, environ=environ))

    def restart(self, number: int) -> None:
        """Stop a server as a service manager does, and start it on its port again."""
        self._stacks[number].close()
        self.servers[number] = self._start(number, self.servers[number].port, self._after)


class _Client:
    """As Apache's Java client: one connection to one server, and the next one of its list once that has ended."""

    def __init__(self, ports: list[int], seen: Seen) -> None:
        self._ports = itertools.cycle(random.sample(ports, len(ports)))
        self._seen = seen
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def run(self, ended: asyncio.Event) -> None:
        """Pull until the end; a question that is lost, or refused, is asked once more."""
        await asyncio.sleep(random.uniform(0, PULL_SECONDS))
        while not ended.is_set():
            self._seen.pulls += 1
            try:
                try:
                    brokers = await self._pull()
                except (OSError, EOFError, TimeoutError):
                    self._seen.repeated += 1
                    brokers = await self._pull()
                self._seen.incomplete += brokers < BROKERS
            except (OSError, EOFError, TimeoutError):
                self._seen.failed += 1
            await asyncio.sleep(PULL_SECONDS)
        self._hang_up()

    async def _pull(self) -> int:
        """How many brokers the topic has."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                reader, writer = await self._connection()
                writer.write(_QUESTION)
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        except (OSError, EOFError, TimeoutError):
            self._hang_up()
            raise
        header = int.from_bytes(frame[1:4])
        if json.loads(frame[4 : 4 + header])["code"]:
            # it is not ready, and closes the connection
            self._hang_up()
            raise EOFError
        return len(json.loads(frame[4 + header :])["brokerDatas"])

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # one that was closed meanwhile is known to be dead before it is used
        if self._reader is not None and self._reader.at_eof():
            self._hang_up()
        if self._reader is None or self._writer is None:
            self._seen.connected[int(time.monotonic())] += 1
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", next(self._ports))
        return self._reader, self._writer

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


async def _measured(fleet: _Fleet) -> Seen:
    ports = [server.port for server in fleet.servers]
    seen, ended = Seen(), asyncio.Event()
    agents: list[BrokerAgent] = []
    async with AsyncExitStack() as stack:
        for number in range(BROKERS):
            settings = AgentSettings(
                cluster_name="DefaultCluster",
                broker_name=f"broker-{number}",
                broker_addr=f"10.0.0.{number}:10911",
                name_servers=";".join(f"127.0.0.1:{port}" for port in ports),
                heartbeat_seconds=_HEARTBEAT_SECONDS,
            )
            agents.append(await stack.enter_async_context(BrokerAgent(settings, [TopicConfig(TOPIC, 8, 8)])))
            await agents[-1].registered(count=SERVERS)
        async with asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(_Client(ports, seen).run(ended))
            await asyncio.sleep(_CALM_SECONDS)
            # whoever came at the beginning has not moved
            seen.connected.clear()
            for number in range(SERVERS):
                await asyncio.to_thread(fleet.restart, number)
                for agent in agents:
                    await agent.registered(count=SERVERS)
                await asyncio.sleep(_CALM_SECONDS)
            ended.set()
    return seen
