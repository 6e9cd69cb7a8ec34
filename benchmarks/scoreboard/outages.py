"""Rows about outages: results of pulls while servers are cut off, dead, or fail at random, or packets are lost."""

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from benchmarks.harness.figures import BenchError, Figure, at_least, at_most, latest, none_of
from benchmarks.harness.fleet import PATIENCE_SECONDS, Fleet, agent, entered, registered
from benchmarks.harness.hosts import drop
from benchmarks.harness.rounds import Bench, until_async
from benchmarks.harness.servers import WAITING, daemon, expiring, temporary_directory
from benchmarks.scoreboard.detection import EXPIRY_SECONDS, SCAN_SECONDS, TIMES, gone_after
from benchmarks.scoreboard.programs import in_event_loop
from namesrv_broker_agent import BrokerAgent
from namesrv_client import ClientSettings, RouteClient
from namesrv_client.routes.route import RouteError
from namesrv_runtime import loops
from tests.netns.network import Network, inside, why_not
from tests.support.tcp_proxy import TcpProxy

_TOPIC: Final = "orders"
_SERVERS: Final = 3
_BROKERS: Final = 4
_CLIENTS: Final = 20
_HEARTBEAT_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 3.0
# longer than the interval at which servers write the snapshot of their brokers, which a killed server needs
_SNAPSHOT_SECONDS: Final = 6.0
# age of a route that still counts as fresh: one late poll, and the time to find another server
_FRESH_SECONDS: Final = 1.1 * _POLL_SECONDS + 6.0
_PULL_SECONDS: Final = 0.1
_DEATHS: Final = 3
_FAULTS: Final = ("killed", "stopped", "cut off", "refused")


@dataclass(slots=True)
class _Seen:
    """Results of all clients' pulls."""

    pulls: int = 0
    failed: int = 0
    # routes that lacked a broker, although all brokers are alive
    incomplete: int = 0
    # routes that were not fresh
    old: int = 0
    oldest_seconds: float = 0.0


@dataclass(slots=True)
class _World:
    """Servers, brokers, and proxies between them that can stop forwarding; without proxies the way is direct."""

    fleet: Fleet
    proxies: list[TcpProxy] = field(default_factory=list)
    agents: list[BrokerAgent] = field(default_factory=list)

    @property
    def addresses(self) -> str:
        """The addresses of all servers, or of their proxies, as clients and agents expect them."""
        return ";".join(proxy.address for proxy in self.proxies) or self.fleet.addresses


@asynccontextmanager
async def _world(*, has_proxies: bool = True) -> AsyncIterator[_World]:
    async with AsyncExitStack() as stack:
        world = _World(stack.enter_context(Fleet(Bench(), *TIMES, *WAITING, count=_SERVERS)))
        for server in world.fleet.servers if has_proxies else ():
            world.proxies.append(await stack.enter_async_context(TcpProxy(("127.0.0.1", server.port))))
        world.agents += await entered(stack, _agents(world.addresses, _HEARTBEAT_SECONDS), _SERVERS)
        yield world


def _agents(addresses: str, heartbeat_seconds: float) -> list[BrokerAgent]:
    """Agents of _BROKERS brokers, which all have _TOPIC."""
    return [
        agent(number, addresses, [_TOPIC, f"topic-{number}"], heartbeat_seconds=heartbeat_seconds)
        for number in range(_BROKERS)
    ]


def _client(addresses: str, **settings: Any) -> RouteClient:
    """A client that watches and polls."""
    values = {"watch": True, "poll_seconds": _POLL_SECONDS, "warm_up_seconds": 0.0, **settings}
    return RouteClient(ClientSettings(name_servers=addresses, **values))


async def _pull(client: RouteClient, seen: _Seen, ended: asyncio.Event) -> None:
    """Request the route of _TOPIC ten times a second, and count the results."""
    await asyncio.sleep(random.uniform(0, _PULL_SECONDS))
    while not ended.is_set():
        seen.pulls += 1
        try:
            route = await client.route(_TOPIC)
        except RouteError:
            seen.failed += 1
        else:
            seen.incomplete += len(route.data.broker_datas) < _BROKERS
            seen.old += route.age > _FRESH_SECONDS
            seen.oldest_seconds = max(seen.oldest_seconds, route.age)
        await asyncio.sleep(_PULL_SECONDS)


def _figures(seen: _Seen) -> list[Figure]:
    """The figures that every outage has. Raises BenchError if no client pulled."""
    if not seen.pulls:
        raise BenchError("no client pulled")
    fresh = 100 * (1 - seen.old / seen.pulls)
    return [
        none_of("failed", "pulls that failed", seen.failed, f"of {seen.pulls:,}"),
        none_of("incomplete", "pulls that lacked a live broker", seen.incomplete),
        Figure("fresh", "pulls that were fresh", "percent", (fresh,), at_least(99.99), f"{seen.old:,} were not"),
        Figure("oldest", "oldest route", "seconds", (seen.oldest_seconds,)),
    ]


async def _during(outage: Callable[[], Awaitable[None]], addresses: str, count: int = _CLIENTS) -> list[Figure]:
    """The figures of clients that pull during an outage."""
    seen, ended = _Seen(), asyncio.Event()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_client(addresses)) for _ in range(count)]
        await asyncio.gather(*map(_first_route, clients))
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(_pull(client, seen, ended))
            try:
                await outage()
            finally:
                ended.set()
    return _figures(seen)


async def _first_route(client: RouteClient) -> None:
    """Pull until a route is cached, since packets may be lost already."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while client.cached(_TOPIC) is None and time.monotonic() < deadline:
        try:
            await client.route(_TOPIC)
        except RouteError:
            await asyncio.sleep(0.1)


@in_event_loop
async def one_cut_off(seconds: int) -> list[Figure]:
    """One of three servers is cut off from all others, and comes back."""
    stale: list[float] = []

    async def outage() -> None:
        began = time.monotonic()
        world.proxies[0].stall()
        # This client bypasses the proxy: it is cut off together with the server.
        stale.append(await asyncio.to_thread(gone_after, world.fleet.servers[0], _TOPIC, began))
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        await world.proxies[0].heal()
        await asyncio.sleep(_POLL_SECONDS)

    async with _world() as world:
        results = await _during(outage, world.addresses)
    bound = at_most(EXPIRY_SECONDS + SCAN_SECONDS + 0.2)
    return [*results, Figure("stale", "dead routes of the isolated server", "seconds", stale, bound)]


@in_event_loop
async def two_dead(seconds: int) -> list[Figure]:
    """Two of three servers are dead for some seconds."""

    async def outage() -> None:
        for number in (0, 1):
            world.fleet.kill(number)
        await asyncio.sleep(seconds)

    async with _world() as world:
        return await _during(outage, world.addresses)


@in_event_loop
async def all_dead(seconds: int) -> list[Figure]:
    """All servers die, a client starts, and the servers return; three times."""
    ages, confirmed, missing = [], [], 0
    # Without proxies, since a proxy accepts connections even if its server is dead.
    with temporary_directory("scoreboard") as root:
        snapshot = root / "routes.json"
        async with _world(has_proxies=False) as world:
            for _ in range(_DEATHS):
                async with _client(world.addresses, snapshot_file=snapshot) as client:
                    await client.route(_TOPIC, max_stale=0.0)
                for number in range(_SERVERS):
                    world.fleet.kill(number)
                async with _client(world.addresses, snapshot_file=snapshot) as client:
                    await asyncio.sleep(seconds)
                    known = client.cached(_TOPIC)
                    missing += known is None or len((await client.route(_TOPIC)).data.broker_datas) < _BROKERS
                    ages.append(0.0 if known is None else known.age)
                    await asyncio.to_thread(world.fleet.start, 0)
                    confirmed.append(await _confirmed(client))
                for number in range(1, _SERVERS):
                    await asyncio.to_thread(world.fleet.start, number)
                await registered(world.agents, _SERVERS)
    back = "confirmed, at the latest"
    return [
        none_of("missing", "starts without a route from disk", missing, f"of {_DEATHS}"),
        Figure("age", "reported age at least", "seconds", (min(ages),), at_least(seconds)),
        latest("recovered", back, "seconds", confirmed, target=at_most(5)),
    ]


async def _confirmed(client: RouteClient) -> float:
    """Wait until the route has been confirmed from now on, and return how long that took."""
    began = time.monotonic()

    def is_confirmed() -> bool:
        known = client.cached(_TOPIC)
        return known is not None and known.confirmed_at > began

    return await until_async("a route is confirmed", is_confirmed)


@in_event_loop
async def chaos(seconds: int) -> list[Figure]:
    """Random faults of servers and of their networks, one server at a time."""
    chosen, counts = random.Random(1), dict.fromkeys(_FAULTS, 0)

    async def outage() -> None:
        await asyncio.sleep(_SNAPSHOT_SECONDS)
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            kind = chosen.choice(_FAULTS)
            counts[kind] += 1
            await _fault(world, kind, chosen.randrange(_SERVERS), chosen.uniform(0.5, 6.0))
            await registered(world.agents, _SERVERS)

    async with _world() as world:
        results = await _during(outage, world.addresses)
    details = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return [*results, Figure("faults", "faults of servers", "count", (sum(counts.values()),), details=details)]


async def _fault(world: _World, kind: str, number: int, seconds: float) -> None:
    server, proxy = world.fleet.servers[number], world.proxies[number]
    match kind:
        case "killed":
            world.fleet.kill(number)
        case "stopped":
            server.signal(signal.SIGSTOP)
        case "cut off":
            proxy.stall()
        case "refused":
            proxy.cut()
    await asyncio.sleep(seconds)
    if kind == "killed":
        await asyncio.to_thread(world.fleet.start, number)
    elif kind == "stopped":
        server.signal(signal.SIGCONT)
    else:
        await proxy.heal()


# -- lost packets -----------------------------------------------------------------------------------------------------

_LOSSY_CLIENTS: Final = 10
_LOSS: Final = "numgen random mod 10 < 1"
_LATENCY_SECONDS: Final = (0.1, 0.3)
# a tenth of the default of 30 s, as the expiry of 12 s is of 120 s
_LOSSY_HEARTBEAT_SECONDS: Final = 3.0
_LOSSY_TIMES: Final = expiring(12, 1)


def packet_loss(seconds: int) -> list[Figure]:
    """Evictions and pulls while a tenth of all packets are lost in each direction, and the others delayed.

    The server has a host of its own (a network namespace); brokers and clients share another.
    """
    if (reason := why_not()) is not None:
        raise BenchError(reason)
    with Network() as network:
        network.add({"server": "10.0.0.1", "apps": "10.0.0.2"})
        place = ("--listen-host=10.0.0.1", "--listen-port=9876", "--http-listen=")
        prefix = network.hosts["server"].command()
        with daemon(Bench(), *place, *_LOSSY_TIMES, prefix=prefix) as server:
            drop(network, _LOSS)
            with inside(network.hosts["apps"]):
                results, ended = loops.run(lambda: _pulled_with_loss(seconds))
            log = server.log()
    # Brokers unregister at the end, which is not an eviction.
    evicted = [
        entry["reason"]
        for entry in log
        if entry["event"] == "broker_evicted" and datetime.fromisoformat(entry["ts"]).timestamp() < ended
    ]
    return [none_of("evicted", "live brokers evicted", len(evicted), " ".join(evicted)), *results]


async def _pulled_with_loss(seconds: float) -> tuple[list[Figure], float]:
    """The figures of clients behind a slow proxy, and the wall time before the brokers leave."""
    async with AsyncExitStack() as stack:
        proxy = TcpProxy(("10.0.0.1", 9876), lambda: random.uniform(*_LATENCY_SECONDS))
        address = (await stack.enter_async_context(proxy)).address
        await entered(stack, _agents(address, _LOSSY_HEARTBEAT_SECONDS), 1)
        return await _during(lambda: asyncio.sleep(seconds), address, _LOSSY_CLIENTS), time.time()
