"""Runs a broker's agent on a clock that the test moves."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from namesrv_broker_agent import AgentSettings, BrokerAgent, ServerState, TopicConfig
from namesrv_remoting.aio.server_protocols import ServerProtocols
from tests.support import peer as native_peer
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS, STEP_SECONDS, FakeClock, passing, settle, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.scripted_server import Peer, Question, ScriptedServer
from tests.support.spelling import NATIVE, cut
from tests.support.table_invariants import queues_of
from tests.support.tcp_proxy import TcpProxy

NAME = "broker-a"
ADDR = "10.0.0.1:10911"
CLUSTER = "cluster-1"
IDENTITY = {"clusterName": CLUSTER, "brokerName": NAME, "brokerAddr": ADDR, "brokerId": "0"}
TOPICS = (TopicConfig("orders", 8, 8), TopicConfig("bills", 4, 4))


def agent_settings(name_servers: str, **overrides: Any) -> AgentSettings:
    """Those of a master that speaks natively, unless the test says otherwise."""
    defaults: Mapping[str, Any] = {
        "cluster_name": CLUSTER,
        "broker_name": NAME,
        "broker_addr": ADDR,
        "name_servers": name_servers,
        "protocol": "native",
    }
    return AgentSettings(**{**defaults, **overrides})


@asynccontextmanager
async def running(
    clock: FakeClock,
    name_servers: str,
    topics: Iterable[TopicConfig] = TOPICS,
    *,
    options: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> AsyncIterator[BrokerAgent]:
    """An agent that was started, stopped at the end of the block whatever its servers do then."""
    # a port that was an Apache server's in another test says nothing about this one
    chosen: dict[str, Any] = {"random_unit": lambda: 0.5, "protocols": ServerProtocols(), **(options or {})}
    agent = BrokerAgent(agent_settings(name_servers, **overrides), topics, clock=clock, **chosen)
    async with asyncio.timeout(GUARD_SECONDS):
        await agent.__aenter__()
        try:
            yield agent
        finally:
            await finished(clock, agent.stop())


class Real(NamedTuple):
    """An agent that has registered with one server, by way of a proxy."""

    clock: FakeClock
    server: InProcess
    proxy: TcpProxy
    agent: BrokerAgent

    @property
    def state(self) -> ServerState:
        return self.agent.servers[self.proxy.address]

    async def passing(self, happened: Callable[[], object], *, at_most: float = 30.0) -> float:
        return await passing(self.clock, happened, at_most=at_most)


@asynccontextmanager
async def real(data_dir: Path, topics: Iterable[TopicConfig] = TOPICS, **how: Any) -> AsyncIterator[Real]:
    """A server, and an agent as in `running`."""
    clock = FakeClock()
    async with (
        namesrv_in_process(data_dir, clock=clock) as server,
        TcpProxy(server.address) as proxy,
        running(clock, proxy.address, topics, **how) as agent,
    ):
        assert await agent.registered() == 1
        yield Real(clock, server, proxy, agent)


class Played(NamedTuple):
    """An agent, and a server that the test plays."""

    clock: FakeClock
    server: ScriptedServer
    agent: BrokerAgent

    @property
    def state(self) -> ServerState:
        return self.agent.servers[self.server.address]

    @property
    def pending(self) -> int:
        client = self.agent._links[self.server.address]._client
        return 0 if client is None else client.pending_count

    async def registers(self, **answer: Any) -> Peer:
        """The agent's next connection, over which it has registered fully in its protocol."""
        peer = await self.server.accept()
        await self.registered_over(peer, **answer)
        return peer

    async def registered_over(self, peer: Peer, **answer: Any) -> Question:
        """Its next question, a registration, which is taken; natively under the boot id b1."""
        question = await peer.receive()
        assert question.code == 103
        before = self.state.registrations
        if isinstance(question.header, dict):
            peer.answer(question.opaque, extFields={}, **answer)
        else:
            peer.send(native_answer(question, **answer))
        await until(lambda: self.state.registrations > before)
        return question


@asynccontextmanager
async def played(topics: Iterable[TopicConfig] = TOPICS, **how: Any) -> AsyncIterator[Played]:
    """An agent as in `running`, that connects to it."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address, topics, **how) as agent:
        yield Played(clock, server, agent)


async def finished(clock: FakeClock, work: Any) -> float:
    """Let time pass until some work is done; how much that was."""
    began = clock.monotonic()
    task = asyncio.ensure_future(work)
    await settle()
    while not task.done():
        await clock.advance(STEP_SECONDS)
    await task
    return clock.monotonic() - began


def goodbye(server: InProcess) -> dict[str, str]:
    """What the agent of the only broker would say to unregister it."""
    ((key, live),) = server.namesrv.manager.tables.broker_live_table.items()
    return {
        "brokerName": live.broker_name,
        "brokerAddr": key.broker_addr,
        "clusterName": key.cluster_name,
        "brokerId": str(live.broker_id),
        "agentId": str(live.agent_id),
        "registrationSeq": str(live.registration_seq),
    }


async def registrations(server: InProcess) -> list[tuple[str, int]]:
    """The registrations that a server has taken: kind, and how many topics the broker had then."""
    return [(line["kind"], line["topics"]) for line in await server.lines("register")]


async def heartbeats(server: InProcess) -> list[float]:
    """When heartbeats came, on the server's clock."""
    return [line["mono_ms"] / 1000 for line in await server.lines("heartbeat")]


def sockets(agent: BrokerAgent) -> list[int]:
    """The file descriptors of an agent's connections."""
    links = (*agent._links.values(), *agent._leaving)
    return [descriptor for link in links for descriptor in link.socket_descriptors()]


def queues(server: InProcess, topic: str, broker_name: str = NAME) -> tuple[int, int, int] | None:
    """Read queues, write queues and permission of a broker's topic; None if it has none."""
    found = queues_of(server.namesrv.manager.tables, topic, broker_name)
    return None if found is None else (found.read_queue_nums, found.write_queue_nums, found.perm)


def brokers(server: InProcess) -> dict[str, dict[int, str]]:
    """The groups that a server knows, and who is in them."""
    return {name: dict(group.broker_addrs) for name, group in server.namesrv.manager.tables.broker_addr_table.items()}


def native_answer(
    question: Question, code: int = 0, ext: Mapping[str, object] | None = None, *, remark: str | None = None
) -> bytes:
    """A native answer to a question, as a server with the boot id b1 gives it."""
    header = [code, question.opaque, 1, 479, remark, {"boot_id": "b1", **(ext or {})}]
    return cut(NATIVE, msgpack.packb(header))


def ext_of(question: Question) -> dict[str, Any]:
    """The ext fields of a question in either header."""
    header = question.header
    found = header.get("extFields") if isinstance(header, dict) else header[5]
    return dict(found or {})


@asynccontextmanager
async def name_servers(data_dir: Path, clock: FakeClock, count: int = 3) -> AsyncIterator[list[InProcess]]:
    """Several servers on one clock."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(namesrv_in_process(data_dir / str(number), clock=clock))
            for number in range(count)
        ]


def everywhere(servers: Iterable[InProcess | TcpProxy]) -> str:
    """All of them, as a list of NameServers."""
    return ";".join(server.address if isinstance(server, TcpProxy) else server.where for server in servers)


async def versions(server: InProcess) -> list[tuple[str, int, int, int]]:
    """Of each registration that was taken: kind, and the DataVersion's counter, state version and timestamp."""
    found: list[tuple[str, int, int, int]] = []
    for line in await server.lines("register"):
        state_version, timestamp, counter = map(int, line["data_version"].split("/"))
        found.append((line["kind"], counter, state_version, timestamp))
    return found


async def accepted(server: ScriptedServer) -> Peer:
    """The agent's next connection, over which it has registered fully."""
    peer = await server.accept()
    question = await peer.receive()
    assert (question.code, ext_of(question)["kind"]) == (103, "full")
    peer.send(native_answer(question))
    return peer


def wait_until_routed(namesrv: Daemon, broker_name: str, **perms: int | None) -> None:
    """Return once clients are told just this of a broker: the permission of each topic, None without it."""
    with native_peer.Peer(namesrv.address, native=True) as peer:
        answer: dict[str, Any] = {"boot_id": None, "revision": 0}
        known: dict[str, int | None] = {}
        while perms != known:
            asked = {"boot_id": answer["boot_id"], "since": answer["revision"], "wait_ms": 20_000}
            answer = peer.call(20001, topics=list(perms), **asked)
            assert answer["routes"] or answer["full"], f"still {known}"
            for topic, route in answer["routes"].items():
                queues = [] if route is None else route["queue_datas"]
                known[topic] = next((it["perm"] for it in queues if it["broker_name"] == broker_name), None)


@contextmanager
def side_car(config: Path, *name_servers: Daemon) -> Iterator["subprocess.Popen[bytes]"]:
    """An agent in a process of its own; killed at the end."""
    config.write_text(
        f"""
        cluster_name = "cluster-1"
        broker_name = "{NAME}"
        broker_addr = "10.0.0.1:10911"
        name_servers = "{";".join(daemon.where for daemon in name_servers)}"
        heartbeat_seconds = 0.3
        [[topics]]
        topic_name = "orders"
        """
    )
    command = [sys.executable, "-m", "namesrv_broker_agent", "--config", str(config)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(GUARD_SECONDS)
