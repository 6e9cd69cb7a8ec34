"""How soon a death is noticed: by the server, by a client that watches, and over a connection that is half open."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.figures import BenchError, Figure, Target
from namesrv_client import ClientSettings, RouteClient
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_runtime import loops
from tests.scoreboard.row import latest
from tests.support.daemon import Daemon
from tests.support.peer import Broker, Peer
from tests.support.tcp_proxy import TcpProxy

_ROUTE: Final = 105
_PULL_ROUTES: Final = 20001
_NO_SHARES: Final = ("--share-per-ip-percent", "100")
_EXPIRY_SECONDS: Final = 10.0
_SCAN_SECONDS: Final = 1.0
_PING_SECONDS: Final = 3.0


@contextmanager
def server(*flags: str) -> Iterator[Daemon]:
    """A NameServer with a fresh data directory, ready to serve."""
    with (
        tempfile.TemporaryDirectory(prefix="namesrv-scoreboard-") as root,
        Daemon(Path(root) / "data", *flags) as found,
    ):
        yield found.listening()


def _mortal() -> Broker:
    return Broker(name="mortal", addr="10.0.0.9:10911", topics=("orders", "bills"))


def closed_connections(trials: int) -> list[Figure]:
    """From the end of a broker's connection until no route has it."""
    took = []
    with server() as daemon, Peer(daemon.address) as client:
        for _ in range(trials):
            with Peer(daemon.address) as peer:
                _mortal().register(peer)
            began = time.perf_counter()
            while client.ask(_ROUTE, {"topic": "orders"}).code == 0:
                pass
            took.append(1000 * (time.perf_counter() - began))
    return [latest("removed", "removed, p99", took, "milliseconds", 0.99, Target("<=", 100))]


def told_watchers(trials: int) -> list[Figure]:
    """From the end of a broker's connection until a client that watches is told."""
    took = []
    with server() as daemon, Peer(daemon.address, native=True) as client:
        for _ in range(trials):
            with Peer(daemon.address) as peer:
                _mortal().register(peer)
                known = client.call(_PULL_ROUTES, topics=["orders"])
                asked = {"topics": ["orders"], "boot_id": known["boot_id"], "since": known["revision"]}
                opaque = client.send(_PULL_ROUTES, None, NATIVE.encode({**asked, "wait_ms": 60_000}))
            began = time.perf_counter()
            answer = client.receive()
            took.append(1000 * (time.perf_counter() - began))
            if answer.opaque != opaque:
                raise BenchError(f"answer to {answer.opaque}, not to the watch {opaque}")
    return [latest("told", "told, p99", took, "milliseconds", 0.99, Target("<=", 250))]


def silent_deaths(trials: int) -> list[Figure]:
    """From a broker's last sign of life until no route has it; its connection stays open, as in a partition."""
    flags = ("--broker-expiry-seconds", str(_EXPIRY_SECONDS), "--scan-interval-seconds", str(_SCAN_SECONDS))
    with server(*flags, *_NO_SHARES) as daemon, ExitStack() as stack:
        client = stack.enter_context(Peer(daemon.address))
        heard: dict[str, float] = {}
        for number in range(trials):
            topic = f"topic-{number}"
            broker = Broker(name=f"silent-{number}", addr=f"10.0.0.{number}:10911", topics=(topic, f"other-{number}"))
            peer = stack.enter_context(Peer(daemon.address))
            heard[topic] = time.monotonic()
            broker.register(peer)
            # at every moment between two scans
            time.sleep(3 * _SCAN_SECONDS / trials)
        took = _until_removed(client, heard)
    bound = _EXPIRY_SECONDS + _SCAN_SECONDS + 0.2
    return [latest("removed", "removed, at the latest", took, "seconds", 1.0, Target("<=", bound))]


def _until_removed(client: Peer, heard: dict[str, float]) -> list[float]:
    took = []
    remaining = dict(heard)
    while remaining:
        for topic, at in list(remaining.items()):
            # nobody goes before the expiry
            if time.monotonic() - at < _EXPIRY_SECONDS:
                break
            if client.ask(_ROUTE, {"topic": topic}).code != 0:
                took.append(time.monotonic() - at)
                del remaining[topic]
        time.sleep(0.005)
    return took


def half_open_connections(trials: int) -> list[Figure]:
    """From a way that falls silent until a client that watches has another server."""
    return loops.run(lambda: _half_open(trials))


async def _half_open(trials: int) -> list[Figure]:
    async with AsyncExitStack() as stack:
        # the first is reached through a proxy, which becomes a black hole
        first, second = (stack.enter_context(server(*_NO_SHARES)) for _ in range(2))
        for daemon in (first, second):
            peer = stack.enter_context(Peer(daemon.address))
            Broker().register(peer)
        proxy = await stack.enter_async_context(TcpProxy(first.address))
        settings = ClientSettings(name_servers=f"{proxy.address};{second.where}", watch=True, warm_up_seconds=0.0)
        clients = []
        for _ in range(trials):
            clients.append(await stack.enter_async_context(RouteClient(settings, shuffle=lambda _: None)))
            await clients[-1].route("orders")
            # they ask whether their server is there every three seconds
            await asyncio.sleep(_PING_SECONDS / trials)
        if {proxy.address} != {client.chosen_server for client in clients}:
            raise BenchError("not every client has chosen the first server")
        proxy.stall()
        began = time.monotonic()
        noticed = await asyncio.gather(*(_moved(client, second.where, began) for client in clients))
    return [latest("noticed", "has another server, at the latest", noticed, "seconds", 1.0, Target("<=", 5))]


async def _moved(client: RouteClient, where: str, began: float) -> float:
    while client.chosen_server != where:
        await asyncio.sleep(0.01)
        if time.monotonic() - began > 60:
            raise BenchError("a client has noticed nothing for a minute")
    return time.monotonic() - began
