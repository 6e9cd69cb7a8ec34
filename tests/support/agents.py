"""A broker's agent running on a fake clock, against real or scripted NameServers."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from namesrv_broker_agent import AgentSettings, BrokerAgent, ServerState, TopicConfig
from namesrv_remoting.aio.server_protocols import ServerProtocols
from tests.support import peer as native_peer
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, completed, passing, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.scripted_server import Peer, ScriptedRequest, ScriptedServer
from tests.support.spelling import NATIVE, cut
from tests.support.table_invariants import queues_of
from tests.support.tcp_proxy import TcpProxy

NAME = "broker-a"
ADDR = "10.0.0.1:10911"
CLUSTER = "cluster-1"
IDENTITY = {"clusterName": CLUSTER, "brokerName": NAME, "brokerAddr": ADDR, "brokerId": "0"}
TOPICS = (TopicConfig("orders", 8, 8), TopicConfig("bills", 4, 4))


def agent_settings(name_servers: str, **overrides: Any) -> AgentSettings:
    """Settings of a master that uses the native protocol, with overrides."""
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
    """A started agent; the end of the block stops it even if its servers never respond."""
    # The process-wide protocol table may still remember an Apache server of another test at this port.
    chosen: dict[str, Any] = {"random_unit": lambda: 0.5, "protocols": ServerProtocols(), **(options or {})}
    agent = BrokerAgent(agent_settings(name_servers, **overrides), topics, clock=clock, **chosen)
    async with asyncio.timeout(GUARD_SECONDS):
        await agent.__aenter__()
        try:
            yield agent
        finally:
            await completed(clock, agent.stop())


class Real(NamedTuple):
    """An agent registered with one real NameServer through a proxy."""

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
    """A real NameServer and an agent as in `running`."""
    clock = FakeClock()
    async with (
        namesrv_in_process(data_dir, clock=clock) as server,
        TcpProxy(server.address) as proxy,
        running(clock, proxy.address, topics, **how) as agent,
    ):
        assert await agent.registered() == 1
        yield Real(clock, server, proxy, agent)


class Played(NamedTuple):
    """An agent connected to a server that the test plays."""

    clock: FakeClock
    server: ScriptedServer
    agent: BrokerAgent

    @property
    def state(self) -> ServerState:
        return self.agent.servers[self.server.address]

    @property
    def pending(self) -> int:
        (link,) = self.agent._links
        client = link._connections._client
        return 0 if client is None else client.pending_count

    async def registers(self, **answer: Any) -> Peer:
        """The agent's next connection, after a full registration over it succeeded."""
        peer = await self.server.accept()
        await self.registered_over(peer, **answer)
        return peer

    async def registered_over(self, peer: Peer, **answer: Any) -> ScriptedRequest:
        """Receive a registration and accept it, natively with boot id b1; return the request."""
        request = await peer.receive()
        assert request.code == 103
        before = self.state.counts.registrations
        if isinstance(request.header, dict):
            peer.answer(request.opaque, extFields={}, **answer)
        else:
            peer.send(native_response(request, **answer))
        await until(lambda: self.state.counts.registrations > before)
        return request


@asynccontextmanager
async def played(topics: Iterable[TopicConfig] = TOPICS, **how: Any) -> AsyncIterator[Played]:
    """An agent as in `running`, connected to a scripted server."""
    clock = FakeClock()
    async with ScriptedServer() as server, running(clock, server.address, topics, **how) as agent:
        yield Played(clock, server, agent)


def unregistration(server: InProcess) -> dict[str, str]:
    """Ext fields that unregister the only registered broker, as its own agent would send them."""
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
    """(kind, number of topics) of each registration that the server accepted."""
    return [(line["kind"], line["topics"]) for line in await server.lines("register")]


async def heartbeats(server: InProcess) -> list[float]:
    """Times of the heartbeats, on the server's monotonic clock."""
    return [line["mono_ms"] / 1000 for line in await server.lines("heartbeat")]


def sockets(agent: BrokerAgent) -> list[int]:
    """File descriptors of the agent's connections."""
    return agent._links.socket_descriptors()


def queues(server: InProcess, topic: str, broker_name: str = NAME) -> tuple[int, int, int] | None:
    """Read queues, write queues and permission of a broker's topic; None without the topic."""
    found = queues_of(server.namesrv.manager.tables, topic, broker_name)
    return None if found is None else (found.read_queue_nums, found.write_queue_nums, found.perm)


def brokers(server: InProcess) -> dict[str, dict[int, str]]:
    """Broker name to addresses by id, for each group that the server knows."""
    return {name: dict(group.broker_addrs) for name, group in server.namesrv.manager.tables.broker_addr_table.items()}


def native_response(
    request: ScriptedRequest, code: int = 0, ext: Mapping[str, object] | None = None, *, remark: str | None = None
) -> bytes:
    """A native response to a request, from a server with boot id b1."""
    header = [code, request.opaque, 1, 479, remark, {"boot_id": "b1", **(ext or {})}]
    return cut(NATIVE, msgpack.packb(header))


def ext_of(request: ScriptedRequest) -> dict[str, Any]:
    """The ext fields of a request with a JSON or a native header."""
    header = request.header
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
    """The addresses of servers as a list of NameServers."""
    return ";".join(server.address if isinstance(server, TcpProxy) else server.where for server in servers)


async def versions(server: InProcess) -> list[tuple[str, int, int, int]]:
    """(kind, counter, state version, timestamp) of each accepted registration."""
    found: list[tuple[str, int, int, int]] = []
    for line in await server.lines("register"):
        state_version, timestamp, counter = map(int, line["data_version"].split("/"))
        found.append((line["kind"], counter, state_version, timestamp))
    return found


def wait_until_routed(namesrv: Daemon, broker_name: str, **perms: int | None) -> None:
    """Return once routes contain a broker with exactly these permissions by topic; None means without the broker."""
    with native_peer.Peer(namesrv.address, native=True) as peer:
        answer: dict[str, Any] = {"boot_id": None, "revision": 0}
        known: dict[str, int | None] = {}
        gives_up_at = time.monotonic() + GUARD_SECONDS
        while perms != known:
            asked = {"boot_id": answer["boot_id"], "since": answer["revision"], "wait_ms": 20_000}
            answer = peer.call(20001, topics=list(perms), **asked)
            assert time.monotonic() < gives_up_at, f"still {known}"
            for topic, route in answer["routes"].items():
                queues = [] if route is None else route["queue_datas"]
                known[topic] = next((it["perm"] for it in queues if it["broker_name"] == broker_name), None)


@contextmanager
def side_car(config: Path, *name_servers: Daemon, broker_id: int = 0) -> Iterator["subprocess.Popen[bytes]"]:
    """An agent in a process of its own, killed at the end of the block."""
    config.write_text(
        f"""
        cluster_name = "cluster-1"
        broker_name = "{NAME}"
        broker_id = {broker_id}
        broker_addr = "10.0.0.{broker_id + 1}:10911"
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
