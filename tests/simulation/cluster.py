"""Three NameServers, five broker agents and five clients, each on its own machine, and their true state."""

import asyncio
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from namesrv.routeinfo.tables.effects import Effect, Evicted, Registered, RouteChanged
from namesrv.server.controller import NamesrvController
from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from namesrv.settings.sources import Loaded
from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig
from namesrv_client import ClientSettings, RouteClient
from namesrv_client.routes.route import RouteChange, RouteError
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.extensions import PulledRoutes, PullRoutesRequest, read_routes
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.errors import RemotingError
from tests.simulation.disk import Disk
from tests.simulation.sizes import TOPICS, Place, Size, Times
from tests.simulation.world import Kind, Machine, World

PORT: Final = 9876
CLUSTER: Final = "cluster"
# Unknown topics have large responses: this number of them exceeds what a server buffers for a peer that does not read,
# and the windows of the kernels.
_UNKNOWN_TOPICS: Final = tuple(f"unknown-{number}-".ljust(120, "x") for number in range(80))
_PULLS: Final = 12


class Node:
    """A machine and the process on it."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world = world
        self.machine = machine
        # True while the process should run; false while it is down or was asked to stop.
        self.is_wanted = False
        # Start of this life, in the world's time.
        self.started_at = 0.0

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def is_running(self) -> bool:
        return self.machine.loop is not None

    def start(self) -> None:
        if not self.is_running:
            self.is_wanted = True
            self.started_at = self.world.now
            self.begin()
            self.machine.start(self.main)

    def begin(self) -> None:
        """Reset the state of the previous life."""

    async def main(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Ask the process to end gracefully."""
        raise NotImplementedError

    def kill(self) -> None:
        self.is_wanted = False
        if self.is_running:
            self.machine.kill()

    def lose_power(self) -> None:
        self.is_wanted = False
        self.machine.lose_power()


class ServerNode(Node):
    """A NameServer."""

    def __init__(self, world: World, machine: Machine, times: Times, data_dir: Path) -> None:
        super().__init__(world, machine)
        self.times = times
        self.settings = Settings(
            listen_host=machine.address,
            listen_port=PORT,
            http_listen="",
            data_dir=data_dir,
            nameserver_name=machine.name,
            scan_interval_seconds=times.scan,
            broker_expiry_seconds=times.expiry,
            wait_for_service_seconds=times.warm_up,
            drain_seconds=times.drain,
            audit_log_dir="",
            admin_enabled=True,
        )
        self.controller: NamesrvController | None = None
        self.on_effect: Callable[[ServerNode, Effect], None] = lambda *_: None
        machine.disk = Disk(data_dir, world.random(f"disk of {machine.name}"))

    def begin(self) -> None:
        self.controller = None

    @property
    def where(self) -> str:
        return f"{self.machine.address}:{PORT}"

    def _limits(self) -> Limits:
        limits = Limits.of(self.settings)
        # A small buffer, which few unread responses fill.
        limits.server.write_buffer_bytes = 64 * 1024
        limits.server.whole_frame_seconds = self.times.unread
        limits.server.first_frame_seconds = self.times.unread / 3
        return limits

    async def main(self) -> None:
        self.controller = controller = NamesrvController(Loaded(self.settings), self.machine, limits=self._limits())
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(controller.serve())
            listening = tasks.create_task(controller.listening.wait())
            await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
            listening.cancel()
            if controller.listening.is_set():
                # The list of observers belongs to this boot; each observer receives every effect.
                controller.namesrv.manager._sink.observers.append(self._observe)  # type: ignore[attr-defined]

    def stop(self) -> None:
        self.is_wanted = False
        if self.machine.loop is not None and self.controller is not None:
            self.machine.loop.call_soon(self.controller.ask_to_stop)

    def _observe(self, effect: Effect) -> None:
        match effect:
            case Registered(key=key, kind=kind) if effect.is_new or kind != "unchanged":
                self.world.note(self.name, "registered", key.broker_addr, kind)
            case Evicted(key=key, reason=reason):
                self.world.note(self.name, "evicted", key.broker_addr, reason, f"{effect.silent_seconds:.3f}")
            case RouteChanged():
                self.world.note(self.name, "revision", effect.revision, ",".join(sorted(effect.topics or ())))
        self.on_effect(self, effect)


class BrokerNode(Node):
    """A broker, reduced to its agent."""

    def __init__(self, world: World, machine: Machine, times: Times, servers: list[ServerNode], place: Place) -> None:
        super().__init__(world, machine)
        name, number, topics = place
        self.broker_name = name
        self.broker_id = number
        self.address = f"{machine.address}:10911"
        # The current topics.
        self.topics = {topic: TopicConfig(topic, 4, 4) for topic in topics}
        self.settings = AgentSettings(
            cluster_name=CLUSTER,
            broker_name=name,
            broker_id=number,
            broker_addr=self.address,
            name_servers=";".join(server.where for server in servers),
            heartbeat_seconds=times.heartbeat,
            response_timeout_seconds=times.response,
            connect_timeout_seconds=times.connect,
            # Agents with protocol rocketmq register with every heartbeat, like Java's brokers.
            protocol=world.random(f"protocol of {machine.name}").choice(["auto", "auto", "rocketmq"]),
        )
        self.agent: BrokerAgent | None = None
        self._leaves = asyncio.Event()
        self.is_leaving = False

    def begin(self) -> None:
        self.agent, self._leaves, self.is_leaving = None, asyncio.Event(), False

    async def main(self) -> None:
        chosen = self.world.random(f"{self.name} {self.machine.lives}")
        async with BrokerAgent(
            self.settings,
            self.topics.values(),
            clock=self.machine,
            protocols=ServerProtocols(),
            random_unit=chosen.random,
        ) as agent:
            self.agent = agent
            await self._leaves.wait()
            self.is_leaving = True

    def stop(self) -> None:
        self.is_wanted = False
        self.is_leaving = True
        if self.machine.loop is not None:
            self.machine.loop.call_soon(self._leaves.set)

    def has_registered(self, agent_id: str | None) -> bool:
        """Return true if a registration with this agent id is of this life; RocketMQ's protocol has no agent ids."""
        return self.agent is not None and agent_id == self.agent._broker.agent_id

    @property
    def is_slow(self) -> bool:
        """Return true if the agent pauses for longer because of slow failures."""
        return self.agent is not None and any(link._retries.is_slow for link in self.agent._links)

    @property
    def can_change_topics(self) -> bool:
        """Return true while the broker runs and stays."""
        return self.machine.loop is not None and self.agent is not None and not self.is_leaving

    def change_topic(self, topic: str, queues: int | None) -> None:
        """Make the broker create, change or (None) delete a topic."""
        if not self.can_change_topics or self.agent is None or self.machine.loop is None:
            return
        if queues is None and self.settings.protocol == "rocketmq":
            # A registration in RocketMQ's protocol removes topics only with a setting of the server.
            return
        agent, loop = self.agent, self.machine.loop

        async def change() -> None:
            if queues is None:
                if topic in agent.topics:
                    del self.topics[topic]
                    await agent.delete_topic(topic)
                return
            config = TopicConfig(topic, queues, queues)
            self.topics[topic] = config
            await (agent.update_topic(config) if topic in agent.topics else agent.create_topic(config))

        # The process may be frozen, and killed before it begins.
        loop.call_soon(lambda: loop.create_task(change()))


class ClientNode(Node):
    """A producer or consumer, reduced to its routes."""

    def __init__(
        self, world: World, machine: Machine, size: Size, servers: list[ServerNode], *, watches: bool, protocol: Any
    ) -> None:
        super().__init__(world, machine)
        times, self._topics = size.times, size.topics
        self.settings = ClientSettings(
            name_servers=";".join(server.where for server in servers),
            poll_seconds=times.poll,
            warm_up_seconds=times.warm_up,
            connect_timeout_seconds=times.client_connect,
            watch=watches,
            protocol=protocol,
            client_name=machine.name,
        )
        self.client: RouteClient | None = None
        self._leaves = asyncio.Event()
        self.on_change: Callable[[ClientNode, RouteChange], None] = lambda *_: None

    def begin(self) -> None:
        self.client, self._leaves = None, asyncio.Event()

    async def main(self) -> None:
        chosen = self.world.random(f"{self.name} {self.machine.lives}")
        async with RouteClient(
            self.settings,
            clock=self.machine,
            protocols=ServerProtocols(),
            random_unit=chosen.random,
            shuffle=chosen.shuffle,
        ) as client:
            self.client = client
            client.on_change(self._changed)
            asking = asyncio.create_task(self._ask(client))
            await self._leaves.wait()
            asking.cancel()
            await asyncio.wait([asking])

    async def _ask(self, client: RouteClient) -> None:
        """Request each topic until it has a route, like an application."""
        left = list(self._topics)
        while left:
            for topic in list(left):
                with suppress(RouteError):
                    await client.route(topic)
                    left.remove(topic)
            await self.machine.sleep(0.5)

    def _changed(self, change: RouteChange) -> None:
        run = change.new.sender[0] if change.new is not None else "-"
        brokers = "-" if change.new is None else ",".join(sorted(change.new.brokers))
        self.world.note(self.name, "route", change.topic, brokers, run[:6])
        self.on_change(self, change)

    def stop(self) -> None:
        self.is_wanted = False
        if self.machine.loop is not None:
            self.machine.loop.call_soon(self._leaves.set)


class OperatorNode(Node):
    """An operator that puts keys into the servers' key-value configurations and watches routes by raw requests."""

    def __init__(self, world: World, machine: Machine, size: Size, servers: list[ServerNode]) -> None:
        super().__init__(world, machine)
        self._pace, self._puts_keys = size.times.pace, size.puts_keys
        # A run with fewer faults has fewer puts.
        self._put_pace = max(self._pace, 1.0)
        self._servers = servers
        self._leaves = asyncio.Event()
        # Tasks of this life that send many requests.
        self._asking: list[asyncio.Task[None]] = []
        # server -> acknowledged keys and their values
        self.acknowledged: dict[str, dict[str, str]] = {server.name: {} for server in servers}
        # receives each response to a watch: server, request, response
        self.on_watch: Callable[[ServerNode, PullRoutesRequest, PulledRoutes], None] = lambda *_: None

    def begin(self) -> None:
        self._leaves, self._asking = asyncio.Event(), []

    def stop(self) -> None:
        self.is_wanted = False
        if self.machine.loop is not None:
            self.machine.loop.call_soon(self._leaves.set)

    async def main(self) -> None:
        chosen = self.world.random(f"{self.name} {self.machine.lives}")
        clients = {server: self._new_client(server, chosen) for server in self._servers}
        others: dict[ServerNode, RemotingClient] = {}
        works = [self._watch(server, clients[server], chosen) for server in clients]
        if self._puts_keys:
            # A server handles the requests of a connection one by one, so a second connection puts keys concurrently.
            others = {server: self._new_client(server, chosen) for server in self._servers}
            works += [self._put(clients, chosen, "a"), self._put(others, chosen, "b")]
        tasks = [asyncio.create_task(work) for work in works]
        await asyncio.wait([*tasks, leaving := asyncio.create_task(self._leaves.wait())], return_when="FIRST_COMPLETED")
        tasks += self._asking
        for task in [*tasks, leaving]:
            task.cancel()
        await asyncio.wait([*tasks, leaving])
        for client in (*clients.values(), *others.values()):
            await client.close()
        for task in tasks:
            if not task.cancelled():
                task.result()

    def _new_client(self, server: ServerNode, chosen: random.Random) -> RemotingClient:
        return RemotingClient(
            server.where,
            clock=self.machine,
            connect_timeout_seconds=0.5,
            protocols=ServerProtocols(),
            random_unit=chosen.random,
        )

    async def _put(self, clients: dict[ServerNode, RemotingClient], chosen: random.Random, prefix: str) -> None:
        for number in itertools.count():
            await self.machine.sleep(chosen.uniform(0.2, 2.0) * self._put_pace)
            server = chosen.choice(self._servers)
            key, value = f"{prefix}-{self.machine.lives}-{number}", str(number)
            fields = {"namespace": "simulation", "key": key, "value": value}
            try:
                await clients[server].invoke(RequestCode.PUT_KV_CONFIG, ext_fields=fields, timeout_seconds=1.5)
            except RemotingError as error:
                self.world.note(self.name, "not put", server.name, key, type(error).__name__)
            else:
                self.world.note(self.name, "put", server.name, key)
                self.acknowledged[server.name][key] = value

    def pull_a_lot(self, server: ServerNode, seconds: float) -> None:
        """Send requests with more responses than a server buffers for a peer that does not read."""
        if self.machine.loop is not None and not self._leaves.is_set():
            self._asking.append(self.machine.loop.create_task(self._pull_a_lot(server, seconds)))

    async def _pull_a_lot(self, server: ServerNode, seconds: float) -> None:
        client = self._new_client(server, self.world.random(f"questions of {self.name} {self.machine.lives}"))
        asked = PullRoutesRequest([*TOPICS, *_UNKNOWN_TOPICS], None, 0, 0)
        body = NATIVE.encode(asked)

        async def ask() -> None:
            with suppress(RemotingError):
                response = await client.invoke(
                    RequestCode.PULL_ROUTES, body=body, timeout_seconds=seconds, serialize_type=SerializeType.MSGPACK
                )
                self.on_watch(server, asked, read_routes(response.body))

        try:
            await asyncio.gather(*(ask() for _ in range(_PULLS)))
        finally:
            await client.close()

    async def _watch(self, server: ServerNode, client: RemotingClient, chosen: random.Random) -> None:
        boot_id, since, wait_seconds = None, 0, 4.0 * self._pace
        while True:
            asked = PullRoutesRequest([*TOPICS, "news"], boot_id, since, round(wait_seconds * 1000))
            try:
                response = await client.invoke(
                    RequestCode.PULL_ROUTES,
                    body=NATIVE.encode(asked),
                    timeout_seconds=wait_seconds + 1.0,
                    serialize_type=SerializeType.MSGPACK,
                )
            except RemotingError:
                await self.machine.sleep(chosen.uniform(0.1, 1.0))
                continue
            routes = read_routes(response.body)
            self.on_watch(server, asked, routes)
            boot_id, since = routes.boot_id, routes.revision


@dataclass
class Cluster:
    """All nodes of a run."""

    world: World
    times: Times
    servers: list[ServerNode] = field(default_factory=list)
    brokers: list[BrokerNode] = field(default_factory=list)
    clients: list[ClientNode] = field(default_factory=list)
    operators: list[OperatorNode] = field(default_factory=list)

    @classmethod
    def built(cls, world: World, size: Size, directory: Path) -> "Cluster":
        times = size.times
        cluster, chosen = cls(world, times), world.random("cluster")

        def machine(name: str, kind: Kind, number: str) -> Machine:
            found = Machine(world, name, kind, f"10.0.{number}")
            world.machines[name] = found
            return found

        for number, name in enumerate(size.servers, start=1):
            cluster.servers.append(ServerNode(world, machine(name, "server", f"0.{number}"), times, directory / name))
        for number, (name, place) in enumerate(zip(size.agents, size.brokers, strict=True), start=1):
            node = BrokerNode(world, machine(name, "broker", f"1.{number}"), times, cluster.servers, place)
            cluster.brokers.append(node)
        for number, name in enumerate(size.clients, start=1):
            protocol = chosen.choice(["auto", "auto", "native", "rocketmq"])
            watches = protocol != "rocketmq" and chosen.random() < 0.6
            node_machine = machine(name, "client", f"2.{number}")
            cluster.clients.append(
                ClientNode(world, node_machine, size, cluster.servers, watches=watches, protocol=protocol)
            )
        cluster.operators.append(OperatorNode(world, machine("operator", "client", "3.1"), size, cluster.servers))
        return cluster

    @property
    def nodes(self) -> list[Node]:
        return [*self.servers, *self.brokers, *self.clients, *self.operators]

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)
