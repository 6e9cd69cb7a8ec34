"""Rows about how soon a death is detected: by the server, by a watching client, over a half-open connection."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, at_most, latest
from benchmarks.harness.rounds import Bench, until, until_async
from benchmarks.harness.servers import Server, daemon, expiring
from benchmarks.harness.wire import Broker, Wire, route_request, topics
from benchmarks.scoreboard.programs import in_event_loop
from namesrv_client import ClientSettings, RouteClient
from tests.support.tcp_proxy import TcpProxy

EXPIRY_SECONDS: Final = 10.0
SCAN_SECONDS: Final = 1.0
TIMES: Final = expiring(EXPIRY_SECONDS, SCAN_SECONDS)
_PING_SECONDS: Final = 3.0
_ORDERS: Final = route_request("orders0")
_MORTAL: Final = Broker("mortal", "10.0.0.9:10911", topics("orders%d", 2))


def removals(times: int) -> list[Figure]:
    """Time from the end of a broker's connection until its route is gone."""

    def pull(client: Wire) -> None:
        until("a dead broker's route is gone", lambda: client.request(_ORDERS).code, every=0.0)

    return [latest("removed", "removed, p99", "milliseconds", _deaths(times, pull), part=0.99, target=at_most(100))]


def notifications(times: int) -> list[Figure]:
    """Time from the end of a broker's connection until a watching client is notified."""
    took = _deaths(times, Wire.receive, _watch)
    return [latest("notified", "notified, p99", "milliseconds", took, part=0.99, target=at_most(250))]


def _deaths(
    times: int, notice: Callable[[Wire], object], prepare: Callable[[Wire], object] = lambda _: None
) -> list[float]:
    """Milliseconds from the end of a broker's connection until `notice` returns; `prepare` runs before the end."""
    took = []
    with daemon(Bench()) as server, Wire(server) as client:
        for _ in range(times):
            with Wire(server) as wire:
                wire.success(_MORTAL.json_frame())
                prepare(client)
            began = time.perf_counter()
            notice(client)
            took.append(1000 * (time.perf_counter() - began))
    return took


def _watch(client: Wire) -> None:
    client.send(client.watch_frame(["orders0"]))


def silent_deaths(count: int) -> list[Figure]:
    """Time from a broker's last request until its route is gone; its connection stays open, as in a partition."""
    with daemon(Bench(), *TIMES) as server, ExitStack() as stack:
        client = stack.enter_context(Wire(server))
        last_seen: dict[str, float] = {}
        for number in range(count):
            topic = f"topic-{number}-0"
            broker = Broker(f"silent-{number}", f"10.0.0.{number}:10911", topics(f"topic-{number}-%d", 2))
            last_seen[topic] = time.monotonic()
            stack.enter_context(Wire(server)).success(broker.json_frame())
            # Deaths are spread evenly between scans.
            time.sleep(3 * SCAN_SECONDS / count)
        took = _until_removed(client, last_seen)
    bound = at_most(EXPIRY_SECONDS + SCAN_SECONDS + 0.2)
    return [latest("removed", "at the latest", "seconds", took, target=bound)]


def _until_removed(client: Wire, last_seen: dict[str, float]) -> list[float]:
    took: list[float] = []

    def are_removed() -> bool:
        for topic, at in list(last_seen.items()):
            # Later brokers cannot have expired either.
            if time.monotonic() - at < EXPIRY_SECONDS:
                break
            if client.request(route_request(topic)).code != 0:
                took.append(time.monotonic() - at)
                del last_seen[topic]
        return not last_seen

    until("all silent brokers are removed", are_removed, every=0.005)
    return took


def gone_after(server: Server, topic: str, began: float) -> float:
    """Wait until a server has no route of a topic, and return the seconds since `began`."""
    with Wire(server) as wire:
        until(f"{topic} is gone", lambda: wire.request(route_request(topic)).code)
    return time.monotonic() - began


@in_event_loop
async def half_open_connections(count: int) -> list[Figure]:
    """Time from when a network stops forwarding until a watching client has moved to another server."""
    async with AsyncExitStack() as stack:
        # Clients reach the first server through a proxy, which stops forwarding.
        first, second = (stack.enter_context(daemon(Bench())) for _ in range(2))
        for server in (first, second):
            stack.enter_context(Wire(server)).success(_MORTAL.json_frame())
        proxy = await stack.enter_async_context(TcpProxy(("127.0.0.1", first.port)))
        servers = f"{proxy.address};{second.address}"
        settings = ClientSettings(name_servers=servers, watch=True, warm_up_seconds=0.0)
        clients = []
        for _ in range(count):
            clients.append(await stack.enter_async_context(RouteClient(settings, shuffle=lambda _: None)))
            await clients[-1].route("orders0")
            # Clients probe their server every three seconds; the starts are spread over this time.
            await asyncio.sleep(_PING_SECONDS / count)
        if {client.chosen_server for client in clients} != {proxy.address}:
            raise BenchError("not every client has chosen the first server")
        proxy.stall()
        noticed = await asyncio.gather(*(_moved(client, second.address) for client in clients))
    return [latest("noticed", "at the latest", "seconds", noticed, target=at_most(5))]


async def _moved(client: RouteClient, address: str) -> float:
    return await until_async("a client uses another server", lambda: client.chosen_server == address)
