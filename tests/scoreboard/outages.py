"""Servers that are cut off, dead or in chaos, and what the applications of three servers notice of it."""

import asyncio
import random
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from benchmarks.figures import BenchError, Figure, Target
from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig
from namesrv_client import ClientSettings, RouteClient
from namesrv_client.routes.route import RouteError
from namesrv_runtime import loops
from tests.scoreboard.row import latest, none_of
from tests.support.daemon import Daemon
from tests.support.peer import Peer
from tests.support.tcp_proxy import TcpProxy

_ROUTE: Final = 105
TOPIC: Final = "orders"
_SERVERS: Final = 3
BROKERS: Final = 4
_CLIENTS: Final = 20
_HEARTBEAT_SECONDS: Final = 1.0
_EXPIRY_SECONDS: Final = 10.0
_SCAN_SECONDS: Final = 1.0
POLL_SECONDS: Final = 3.0
# a poll that comes late, and finding another server
_FRESH_SECONDS: Final = 1.1 * POLL_SECONDS + 6.0
_PULL_SECONDS: Final = 0.1
_PATIENCE_SECONDS: Final = 60.0
_FLAGS: Final = (
    *("--broker-expiry-seconds", str(_EXPIRY_SECONDS), "--scan-interval-seconds", str(_SCAN_SECONDS)),
    *("--share-per-ip-percent", "100"),
)


@dataclass(slots=True)
class Seen:
    """What the applications have seen."""

    pulls: int = 0
    failed: int = 0
    # routes that lacked a broker, all of which are alive
    incomplete: int = 0
    # that no server had confirmed within a poll and a failover
    old: int = 0
    oldest_seconds: float = 0.0


class Fleet:
    """Three servers, behind proxies that can become black holes or not, with brokers; an async context manager."""

    def __init__(self, *, has_proxies: bool = True) -> None:
        self._has_proxies = has_proxies
        self._stack = AsyncExitStack()
        self._root = ""
        # of each server, what ends it
        self._lives = [ExitStack() for _ in range(_SERVERS)]
        self.daemons: list[Daemon] = []
        self.proxies: list[TcpProxy] = []
        self.agents: list[BrokerAgent] = []

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._root = stack.enter_context(tempfile.TemporaryDirectory(prefix="namesrv-scoreboard-"))
            for number in range(_SERVERS):
                stack.enter_context(self._lives[number])
                self.daemons.append(self._started(number, 0))
                if self._has_proxies:
                    self.proxies.append(await stack.enter_async_context(TcpProxy(self.daemons[number].address)))
            for number in range(BROKERS):
                settings = AgentSettings(
                    cluster_name="DefaultCluster",
                    broker_name=f"broker-{number}",
                    broker_addr=f"10.0.0.{number}:10911",
                    name_servers=self.name_servers,
                    heartbeat_seconds=_HEARTBEAT_SECONDS,
                )
                topics = [TopicConfig(TOPIC, 8, 8), TopicConfig(f"topic-{number}", 8, 8)]
                self.agents.append(await stack.enter_async_context(BrokerAgent(settings, topics)))
            for agent in self.agents:
                await agent.registered(count=_SERVERS, timeout_seconds=_PATIENCE_SECONDS)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        for daemon in self.daemons:
            if daemon.is_running:
                daemon.send_signal(signal.SIGCONT)
        await self._stack.aclose()

    @property
    def name_servers(self) -> str:
        """As applications are told them."""
        return ";".join(proxy.address for proxy in self.proxies) or ";".join(each.where for each in self.daemons)

    def client(self, **settings: object) -> RouteClient:
        """An application's; nothing runs before it is entered."""
        values: dict[str, object] = {"watch": True, "poll_seconds": POLL_SECONDS, "warm_up_seconds": 0.0, **settings}
        return RouteClient(ClientSettings(name_servers=self.name_servers, **values))  # type: ignore[arg-type]  # by name

    def _started(self, number: int, port: int) -> Daemon:
        place = Path(self._root) / str(number)
        daemon = Daemon(place, f"--listen-port={port}", *_FLAGS)
        return self._lives[number].enter_context(daemon).listening()

    def kill(self, number: int) -> None:
        """As a crash does."""
        self.daemons[number].kill()

    async def start(self, number: int) -> None:
        """Start a server that was killed where it was."""
        port = self.daemons[number].address[1]
        self._lives[number].close()
        self.daemons[number] = await asyncio.to_thread(self._started, number, port)


async def _watched(fleet: Fleet, outage: Callable[[], Awaitable[None]]) -> Seen:
    """What applications that pull ten times a second see of an outage."""
    seen, ended = Seen(), asyncio.Event()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(fleet.client()) for _ in range(_CLIENTS)]
        await asyncio.gather(*(client.route(TOPIC) for client in clients))
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(pull(client, seen, ended))
            try:
                await outage()
            finally:
                ended.set()
    if not seen.pulls:
        raise BenchError("nobody pulled")
    return seen


async def pull(client: RouteClient, seen: Seen, ended: asyncio.Event) -> None:
    """Ask ten times a second, and note what comes."""
    await asyncio.sleep(random.uniform(0, _PULL_SECONDS))
    while not ended.is_set():
        seen.pulls += 1
        try:
            route = await client.route(TOPIC)
        except RouteError:
            seen.failed += 1
        else:
            seen.incomplete += len(route.data.broker_datas) < BROKERS
            seen.old += route.age > _FRESH_SECONDS
            seen.oldest_seconds = max(seen.oldest_seconds, route.age)
        await asyncio.sleep(_PULL_SECONDS)


def figures(seen: Seen) -> list[Figure]:
    """What applications may expect of any outage."""
    return [
        none_of("failed", "pulls that failed", seen.failed, f"of {seen.pulls:,}"),
        none_of("incomplete", "pulls that lacked a live broker", seen.incomplete),
        Figure(
            "fresh",
            "pulls that were fresh",
            "percent",
            (100 * (1 - seen.old / seen.pulls),),
            Target(">=", 99.99),
            f"{seen.old:,} were not",
        ),
        Figure("oldest", "oldest route", "seconds", (seen.oldest_seconds,)),
    ]


def one_cut_off(seconds: int) -> list[Figure]:
    """One of three servers is cut off from everybody, and comes back."""
    return loops.run(lambda: _one_cut_off(seconds))


async def _one_cut_off(seconds: int) -> list[Figure]:
    stale = 0.0

    async def outage() -> None:
        nonlocal stale
        began = time.monotonic()
        fleet.proxies[0].stall()
        # somebody on the same side of the cut
        stale = await asyncio.to_thread(_gone_after, fleet.daemons[0], began)
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        await fleet.proxies[0].heal()
        await asyncio.sleep(POLL_SECONDS)

    async with Fleet() as fleet:
        seen = await _watched(fleet, outage)
    bound = _EXPIRY_SECONDS + _SCAN_SECONDS + 0.2
    what = "the isolated server has dead routes for"
    return [*figures(seen), Figure("stale", what, "seconds", (stale,), Target("<=", bound))]


def _gone_after(daemon: Daemon, began: float) -> float:
    """When a server has no route of a topic any more."""
    with Peer(daemon.address) as peer:
        while peer.ask(_ROUTE, {"topic": TOPIC}).code == 0:
            time.sleep(0.01)
            if time.monotonic() - began > _PATIENCE_SECONDS:
                raise BenchError(f"the isolated server keeps its brokers for over {_PATIENCE_SECONDS:g} s")
    return time.monotonic() - began


def two_dead(seconds: int) -> list[Figure]:
    """Two of three servers are dead for so long."""
    return loops.run(lambda: _two_dead(seconds))


async def _two_dead(seconds: int) -> list[Figure]:
    async def outage() -> None:
        fleet.kill(0)
        fleet.kill(1)
        await asyncio.sleep(seconds)

    async with Fleet() as fleet:
        return figures(await _watched(fleet, outage))


def all_dead(trials: int) -> list[Figure]:
    """All servers are dead, an application starts, and they come back."""
    return loops.run(lambda: _all_dead(trials))


async def _all_dead(trials: int) -> list[Figure]:
    ages, recovered, unanswered = [], [], 0
    # a proxy takes connections though nobody is behind it: not what dead hosts do
    async with Fleet(has_proxies=False) as fleet:
        snapshot = Path(fleet.daemons[0].data_dir).parent / "routes.json"
        for _ in range(trials):
            async with fleet.client(snapshot_file=snapshot) as client:
                await client.route(TOPIC, max_stale=0.0)
            for number in range(_SERVERS):
                fleet.kill(number)
            async with fleet.client(snapshot_file=snapshot) as client:
                # polls and watches fail meanwhile, as they do after ten minutes
                await asyncio.sleep(5.0)
                known = client.cached(TOPIC)
                unanswered += known is None or len((await client.route(TOPIC)).data.broker_datas) < BROKERS
                ages.append(0.0 if known is None else known.age)
                await fleet.start(0)
                began = time.monotonic()
                recovered.append(await _confirmed_after(client, began))
            for number in range(1, _SERVERS):
                await fleet.start(number)
            for agent in fleet.agents:
                await agent.registered(count=_SERVERS, timeout_seconds=_PATIENCE_SECONDS)
    return [
        none_of("unanswered", "starts without a route from disk", unanswered, f"of {trials}"),
        Figure("age", "reported age at least", "seconds", (min(ages),), Target(">=", 5.0)),
        latest("recovered", "confirmed after a server is back, at the latest", recovered, "seconds", 1.0, _BACK),
    ]


_BACK: Final = Target("<=", 5)


async def _confirmed_after(client: RouteClient, began: float) -> float:
    while True:
        known = client.cached(TOPIC)
        if known is not None and known.confirmed_at > began:
            return time.monotonic() - began
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise BenchError(f"no route is confirmed {_PATIENCE_SECONDS:g} s after a server is back")
        await asyncio.sleep(0.01)


def chaos(seconds: int) -> list[Figure]:
    """Random faults of servers and of the ways to them, one server at a time."""
    return loops.run(lambda: _chaos(seconds))


async def _chaos(seconds: int) -> list[Figure]:
    chosen, counts = random.Random(1), dict.fromkeys(("killed", "stopped", "cut off", "refused"), 0)

    async def outage() -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            kind, number, lasts = chosen.choice(list(counts)), chosen.randrange(_SERVERS), chosen.uniform(0.5, 6.0)
            counts[kind] += 1
            await _fault(fleet, kind, number, lasts)
            for agent in fleet.agents:
                await agent.registered(count=_SERVERS, timeout_seconds=_PATIENCE_SECONDS)

    async with Fleet() as fleet:
        seen = await _watched(fleet, outage)
    faults = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return [*figures(seen), Figure("faults", "faults of servers", "count", (sum(counts.values()),), behind=faults)]


async def _fault(fleet: Fleet, kind: str, number: int, seconds: float) -> None:
    daemon, proxy = fleet.daemons[number], fleet.proxies[number]
    match kind:
        case "killed":
            fleet.kill(number)
        case "stopped":
            daemon.send_signal(signal.SIGSTOP)
        case "cut off":
            proxy.stall()
        case "refused":
            proxy.cut()
    await asyncio.sleep(seconds)
    if kind == "killed":
        await fleet.start(number)
    elif kind == "stopped":
        daemon.send_signal(signal.SIGCONT)
    else:
        await proxy.heal()
