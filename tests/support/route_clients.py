"""A route client with its NameServers and brokers on a fake clock."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from namesrv_client import ClientSettings, RouteClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_runtime.server_events import ServerEvents
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, completed, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, NamesrvPeer, registration
from tests.support.tcp_proxy import TcpProxy

T = TypeVar("T")

# request codes that tests count
ROUTE, PULL, INFO = 105, 20001, 20002

BROKER_A = Broker("broker-a", 0, "10.0.0.1:10911")
BROKER_B = Broker("broker-b", 0, "10.0.0.2:10911")
# 8,500 names of 765 bytes, which one request cannot name
LONG_NAMES = [f"{number:04}{'队' * 251}" for number in range(8_500)]
# access file; the placeholder is for the permission to read routes
ACCOUNT = '[accounts.clients]\nnetworks = ["127.0.0.0/8"]\nmay = ["broker-control", %s]\n'

# events without callbacks
NO_CALLBACKS = ServerEvents(logging.getLogger("tests"))


async def registered(
    server: InProcess, *brokers: Broker, topics: tuple[Any, ...] = ("orders", "bills"), counter: int = 1
) -> NamesrvPeer:
    """Register brokers with these topics, all on one new connection; return the connection."""
    peer = await server.connect()
    await register(peer, *brokers, topics=topics, counter=counter)
    return peer


async def register(
    peer: NamesrvPeer, *brokers: Broker, topics: tuple[Any, ...] = ("orders", "bills"), counter: int = 1
) -> None:
    """Register brokers with these topics over an existing connection."""
    for broker in brokers:
        answer = await peer.register(broker, registration(*topics, counter=counter))
        assert answer.code == 0, answer


async def unregister(peer: NamesrvPeer, broker: Broker) -> None:
    """Unregister a broker."""
    answer = await peer.call(104, broker.ext)
    assert answer.code == 0, answer


def request_count(server: InProcess, code: int) -> int:
    """Number of requests of a code that the server's dispatcher answered; the fast path counts its own."""
    return sum(
        count for (asked_code, _), count in server.controller.server.dispatcher.answered.items() if asked_code == code
    )


def client_settings(name_servers: str, **overrides: Any) -> ClientSettings:
    """Settings of a client that uses the native protocol, with overrides."""
    return ClientSettings(**{"name_servers": name_servers, "protocol": "native", **overrides})


@asynccontextmanager
async def route_client(
    clock: FakeClock, *servers: InProcess | str, options: Mapping[str, Any] | None = None, **overrides: Any
) -> AsyncIterator[RouteClient]:
    """A client of these servers, in this order of preference, until the block ends."""
    addresses = ";".join(server if isinstance(server, str) else server.where for server in servers)
    chosen: dict[str, Any] = {
        "random_unit": lambda: 0.5,
        "shuffle": lambda _: None,
        # the process-wide protocol table may still remember an Apache server of another test at this port
        "protocols": ServerProtocols(),
        **(options or {}),
    }
    client = RouteClient(client_settings(addresses, **overrides), clock=clock, **chosen)
    async with asyncio.timeout(GUARD_SECONDS):
        await client.__aenter__()
        try:
            yield client
        finally:
            await completed(clock, client.__aexit__(None, None, None))


def broker_names(client: RouteClient, topic: str = "orders") -> list[str] | None:
    """Brokers in the cached route of a topic; None without a route."""
    known = client.cached(topic)
    return None if known is None else [broker.broker_name for broker in known.data.broker_datas]


@dataclass(frozen=True)
class RouteScene:
    """NameServers and a client on one clock; the client reaches the first server through a proxy."""

    path: Path
    stack: AsyncExitStack
    clock: FakeClock
    servers: Sequence[InProcess]
    # the brokers' connection to each server
    peers: Sequence[NamesrvPeer]
    proxy: TcpProxy
    client: RouteClient

    @property
    def server(self) -> InProcess:
        return self.servers[0]

    def request_count(self, code: int = PULL) -> int:
        return request_count(self.server, code)

    def names(self, topic: str = "orders") -> list[str] | None:
        return broker_names(self.client, topic)

    def age(self, topic: str = "orders") -> float:
        known = self.client.cached(topic)
        return float("inf") if known is None else known.age

    async def shows(self, *names: str, topic: str = "orders") -> None:
        """Return when the route has these brokers."""
        await until(lambda: self.names(topic) == list(names))

    async def pulled(self, count: int) -> None:
        """Return when the first server has answered `count` pulls."""
        await until(lambda: self.request_count() == count)

    async def watched(self, server: InProcess | None = None) -> None:
        """Return when a server, by default the first, holds a watch request."""
        await until(lambda: len((server or self.server).namesrv.routes.watchers) == 1)

    async def restarted(self, *brokers: Broker) -> tuple[InProcess, NamesrvPeer]:
        """Start an empty server behind the proxy with these brokers; return it and the brokers' connection."""
        server = await self.stack.enter_async_context(namesrv_in_process(self.path / "restarted", clock=self.clock))
        self.proxy.cut()
        self.proxy.target = server.address
        await self.proxy.heal()
        return server, await registered(server, *brokers)


@asynccontextmanager
async def route_scene(
    path: Path, *brokers: Sequence[Broker], expiry_seconds: float = 120.0, **settings: Any
) -> AsyncIterator[RouteScene]:
    """One server per group of brokers (by default one with broker-a), a minute after their registration."""
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(
                namesrv_in_process(path / str(number), clock=clock, broker_expiry_seconds=expiry_seconds)
            )
            for number in range(len(brokers) or 1)
        ]
        groups = brokers or ([BROKER_A],)
        peers = [await registered(server, *group) for server, group in zip(servers, groups, strict=True)]
        clock.stall(60.0)
        proxy = await stack.enter_async_context(TcpProxy(servers[0].address))
        client = await stack.enter_async_context(route_client(clock, proxy.address, *servers[1:], **settings))
        yield RouteScene(path, stack, clock, servers, peers, proxy, client)


def group(name: str, *ids: int, cluster: str = "cluster-1", zone: str | None = None) -> BrokerData:
    """A broker group with these ids: broker-a's master is at 10.0.0.1:10911 and its slave 1 at 10.0.1.1:10911."""
    host = ord(name[-1]) - ord("a") + 1
    return BrokerData(cluster, name, {broker_id: f"10.0.{broker_id}.{host}:10911" for broker_id in ids or (0,)}, zone)


def queues(name: str, count: int = 4, perm: int = 6) -> QueueData:
    """As many read queues as write queues on one broker."""
    return QueueData(name, count, count, perm)


def topic_route(*names: str, count: int = 4) -> TopicRouteData:
    """A route over the masters of these brokers."""
    return TopicRouteData([group(name) for name in names], [queues(name, count) for name in names])
