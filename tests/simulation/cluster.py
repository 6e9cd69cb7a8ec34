"""Three NameServers, five brokers' agents and five clients, each with its machine; and what is true of them."""

import asyncio
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from namesrv.routeinfo.effects import Effect, Evicted, Registered, RouteChanged
from namesrv.server.controller import NamesrvController
from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
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
from tests.simulation.world import Kind, Machine, World

PORT: Final = 9876
CLUSTER: Final = "cluster"
TOPICS: Final = ("orders", "bills", "parcels", "returns")
# Of an answer about so many topics that nobody has, so many are more than a server keeps for somebody who does not
# read, and what kernels take of them.
_UNKNOWN_TOPICS: Final = tuple(f"unknown-{number}-".ljust(120, "x") for number in range(80))
_QUESTIONS: Final = 12
# (broker name, id, topics)
BROKERS: Final = (
    ("broker-a", 0, ("orders", "bills")),
    ("broker-a", 1, ("orders", "bills")),
    ("broker-b", 0, ("orders", "parcels")),
    ("broker-c", 0, ("orders", "bills", "returns")),
    ("broker-d", 0, ("parcels",)),
)


@dataclass(frozen=True, slots=True)
class Times:
    """How long everything takes."""

    heartbeat: float
    expiry: float
    scan: float
    poll: float
    warm_up: float
    answer: float
    # an agent's and a client's
    connect: float
    client_connect: float
    drain: float
    # until an answer has to be read
    unread: float
    # that much slower than the short ones are faults, puts and looks
    pace: float


# a tenth of the defaults, so that as much happens in a tenth of the time
SHORT: Final = Times(
    heartbeat=3.0,
    expiry=12.0,
    scan=1.0,
    poll=3.0,
    warm_up=4.5,
    answer=1.0,
    connect=0.5,
    client_connect=0.5,
    drain=0.5,
    unread=3.0,
    pace=1.0,
)


def _default(settings: type[BaseModel], name: str) -> float:
    return float(settings.model_fields[name].default)


# what everybody has who sets nothing
DEFAULTS: Final = Times(
    heartbeat=_default(AgentSettings, "heartbeat_seconds"),
    expiry=_default(Settings, "broker_expiry_seconds"),
    scan=_default(Settings, "scan_interval_seconds"),
    poll=_default(ClientSettings, "poll_seconds"),
    warm_up=_default(Settings, "wait_for_service_seconds"),
    answer=_default(AgentSettings, "answer_timeout_seconds"),
    connect=_default(AgentSettings, "connect_timeout_seconds"),
    client_connect=_default(ClientSettings, "connect_timeout_seconds"),
    drain=_default(Settings, "drain_seconds"),
    unread=_default(Settings, "whole_frame_timeout_seconds"),
    pace=10.0,
)


class Node:
    """One machine and what runs on it."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world = world
        self.machine = machine
        # a process that is to be there; False: it was asked to leave, or is down
        self.is_wanted = False
        # since when, in this life; in the world's time
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
        """A new life: forget the one before."""

    async def main(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Ask the process to leave in good order."""
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
            whole_frame_timeout_seconds=times.unread,
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
        # so little that answers which are not read are soon as many
        limits.server.write_buffer_bytes = 64 * 1024
        return limits

    async def main(self) -> None:
        self.controller = controller = NamesrvController(self.settings, self.machine, limits=self._limits())
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(controller.serve())
            listening = tasks.create_task(controller.listening.wait())
            await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
            listening.cancel()
            if controller.listening.is_set():
                # the list was made for this run, and whoever is in it sees every effect
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
    """A broker, as far as its agent goes."""

    def __init__(
        self, world: World, machine: Machine, times: Times, servers: list[ServerNode], place: tuple[str, int, Any]
    ) -> None:
        super().__init__(world, machine)
        name, number, topics = place
        self.broker_name = name
        self.broker_id = number
        self.address = f"{machine.address}:10911"
        # what it has now
        self.topics = {topic: TopicConfig(topic, 4, 4) for topic in topics}
        self.settings = AgentSettings(
            cluster_name=CLUSTER,
            broker_name=name,
            broker_id=number,
            broker_addr=self.address,
            name_servers=";".join(server.where for server in servers),
            heartbeat_seconds=times.heartbeat,
            answer_timeout_seconds=times.answer,
            connect_timeout_seconds=times.connect,
            # the others register anew with every heartbeat, as Java's do
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

    @property
    def agent_id(self) -> str | None:
        """What tells the agent of this life from those before it."""
        return None if self.agent is None else self.agent._identity.agent_id

    @property
    def is_slow(self) -> bool:
        """Whether its agent pauses for longer, since some server did not answer in time, time and again."""
        return self.agent is not None and any(link._slow_failures for link in self.agent._links.values())

    def change_topic(self, topic: str, queues: int | None) -> None:
        """Have the broker create, change or (None) delete a topic."""
        if self.machine.loop is None or self.agent is None or self.is_leaving:
            return
        if queues is None and self.settings.protocol == "rocketmq":
            # in RocketMQ's protocol a registration takes no topic away, unless servers are set to
            return
        agent = self.agent

        async def change() -> None:
            if queues is None:
                if topic in agent.topics:
                    del self.topics[topic]
                    await agent.delete_topic(topic)
                return
            config = TopicConfig(topic, queues, queues)
            self.topics[topic] = config
            await (agent.update_topic(config) if topic in agent.topics else agent.create_topic(config))

        self.machine.loop.create_task(change())


class ClientNode(Node):
    """A producer or consumer, as far as its routes go."""

    def __init__(
        self, world: World, machine: Machine, times: Times, servers: list[ServerNode], *, watches: bool, protocol: Any
    ) -> None:
        super().__init__(world, machine)
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
        """What an application does: ask for each topic until there is a route."""
        left = list(TOPICS)
        while left:
            for topic in list(left):
                with suppress(RouteError):
                    await client.route(topic)
                    left.remove(topic)
            await self.machine.sleep(0.5)

    def _changed(self, change: RouteChange) -> None:
        run = change.new.boot_id if change.new is not None else "-"
        brokers = "-" if change.new is None else ",".join(sorted(change.new.brokers))
        self.world.note(self.name, "route", change.topic, brokers, run[:6])
        self.on_change(self, change)

    def stop(self) -> None:
        self.is_wanted = False
        if self.machine.loop is not None:
            self.machine.loop.call_soon(self._leaves.set)


class OperatorNode(Node):
    """Somebody who puts keys into the servers' key-value configurations, and watches routes with raw questions."""

    def __init__(self, world: World, machine: Machine, times: Times, servers: list[ServerNode]) -> None:
        super().__init__(world, machine)
        self._pace = times.pace
        self._servers = servers
        self._leaves = asyncio.Event()
        # what asks a lot, in this life
        self._asking: list[asyncio.Task[None]] = []
        # server -> keys whose value it has acknowledged
        self.acknowledged: dict[str, dict[str, str]] = {server.name: {} for server in servers}
        # told of each answer to a watch: (server, what was asked, what was answered)
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
        # requests of one connection are answered in turn, those of several are not
        others = {server: self._new_client(server, chosen) for server in self._servers}
        works = [
            self._put(clients, chosen, "a"),
            self._put(others, chosen, "b"),
            *(self._watch(server, clients[server], chosen) for server in clients),
        ]
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

    async def _put(self, clients: dict[ServerNode, RemotingClient], chosen: random.Random, who: str) -> None:
        for number in itertools.count():
            await self.machine.sleep(chosen.uniform(0.2, 2.0) * self._pace)
            server = chosen.choice(self._servers)
            key, value = f"{who}-{self.machine.lives}-{number}", str(number)
            fields = {"namespace": "simulation", "key": key, "value": value}
            try:
                await clients[server].invoke(RequestCode.PUT_KV_CONFIG, ext_fields=fields, timeout_seconds=1.5)
            except RemotingError as error:
                self.world.note(self.name, "not put", server.name, key, type(error).__name__)
            else:
                self.world.note(self.name, "put", server.name, key)
                self.acknowledged[server.name][key] = value

    def ask_a_lot(self, server: ServerNode, seconds: float) -> None:
        """Have it ask at once for more than a server writes to somebody who does not read."""
        if self.machine.loop is not None and not self._leaves.is_set():
            self._asking.append(self.machine.loop.create_task(self._ask_a_lot(server, seconds)))

    async def _ask_a_lot(self, server: ServerNode, seconds: float) -> None:
        client = self._new_client(server, self.world.random(f"questions of {self.name} {self.machine.lives}"))
        asked = PullRoutesRequest([*TOPICS, *_UNKNOWN_TOPICS], None, 0, 0)
        body = NATIVE.encode(asked)

        async def ask() -> None:
            with suppress(RemotingError):
                answer = await client.invoke(
                    RequestCode.PULL_ROUTES, body=body, timeout_seconds=seconds, serialize_type=SerializeType.MSGPACK
                )
                self.on_watch(server, asked, read_routes(answer.body))

        try:
            await asyncio.gather(*(ask() for _ in range(_QUESTIONS)))
        finally:
            await client.close()

    async def _watch(self, server: ServerNode, client: RemotingClient, chosen: random.Random) -> None:
        boot_id, since, wait_seconds = None, 0, 4.0 * self._pace
        while True:
            asked = PullRoutesRequest([*TOPICS, "news"], boot_id, since, round(wait_seconds * 1000))
            try:
                answer = await client.invoke(
                    RequestCode.PULL_ROUTES,
                    body=NATIVE.encode(asked),
                    timeout_seconds=wait_seconds + 1.0,
                    serialize_type=SerializeType.MSGPACK,
                )
            except RemotingError:
                await self.machine.sleep(chosen.uniform(0.1, 1.0))
                continue
            routes = read_routes(answer.body)
            self.on_watch(server, asked, routes)
            boot_id, since = routes.boot_id, routes.revision


@dataclass
class Cluster:
    """All nodes."""

    world: World
    times: Times
    servers: list[ServerNode] = field(default_factory=list)
    brokers: list[BrokerNode] = field(default_factory=list)
    clients: list[ClientNode] = field(default_factory=list)
    operators: list[OperatorNode] = field(default_factory=list)

    @classmethod
    def built(cls, world: World, times: Times, directory: Path, chosen: random.Random) -> "Cluster":
        cluster = cls(world, times)

        def machine(name: str, kind: Kind, number: str) -> Machine:
            found = Machine(world, name, kind, f"10.0.{number}")
            world.machines[name] = found
            return found

        for number in range(1, 4):
            name = f"ns-{number}"
            cluster.servers.append(ServerNode(world, machine(name, "server", f"0.{number}"), times, directory / name))
        for number, place in enumerate(BROKERS, start=1):
            name = f"{place[0]}-{place[1]}"
            node = BrokerNode(world, machine(name, "broker", f"1.{number}"), times, cluster.servers, place)
            cluster.brokers.append(node)
        for number in range(1, 6):
            protocol = chosen.choice(["auto", "auto", "native", "rocketmq"])
            watches = protocol != "rocketmq" and chosen.random() < 0.6
            node_machine = machine(f"client-{number}", "client", f"2.{number}")
            cluster.clients.append(
                ClientNode(world, node_machine, times, cluster.servers, watches=watches, protocol=protocol)
            )
        cluster.operators.append(OperatorNode(world, machine("operator", "client", "3.1"), times, cluster.servers))
        return cluster

    @property
    def nodes(self) -> list[Node]:
        return [*self.servers, *self.brokers, *self.clients, *self.operators]

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)
