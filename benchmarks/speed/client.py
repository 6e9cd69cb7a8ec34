"""The client: a producer's wait for its queue, the cost of its poll, the memory of its routes."""

import asyncio
import gc
import statistics
import time
import tracemalloc
from functools import partial
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, at_least, at_most, medians
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Server, daemon
from benchmarks.harness.wire import TOPIC_NAME, Broker, Wire, register, topics
from namesrv_client import ClientSettings, RouteClient, SyncRouteClient
from namesrv_remoting.codes import RequestCode
from namesrv_runtime import loops

# topics of a large producer, each on so many broker groups
_TOPICS: Final = 10_000
_GROUPS: Final = 8
# topics to which the producer sends in turn, and how often to each in a round
_SENT_TO: Final = 1_000
_SENDS: Final = 200
_POLLS: Final = 20
_COLD_CLIENTS: Final = 20


def measure(bench: Bench) -> list[Figure]:
    """The client: a producer's wait for its queue, the cost of its poll, the memory of its routes."""
    with daemon(bench) as server, Wire(server) as wire:
        every = topics(TOPIC_NAME, _TOPICS)
        register(wire, [Broker(f"broker{group}", f"127.0.0.1:{10911 + group}", every) for group in range(_GROUPS)])
        names = [topic.topic_name for topic in every]
        sent_to = names[:_SENT_TO]
        # The client polls only when it is measured, and trusts a server that has just started.
        settings = ClientSettings(name_servers=server.address, warm_up_seconds=0.0, poll_seconds=86_400.0)
        with SyncRouteClient(settings) as client:
            for name in sent_to:
                client.select_queue(name)
            results = bench.in_turn(
                "the client",
                {
                    "threads": partial(_selects_in_a_thread, client, sent_to),
                    "tasks": partial(loops.run, partial(_selects_in_a_task, settings, sent_to)),
                    "cold": partial(_first_route, settings, names[0]),
                },
            )
            for name in names[_SENT_TO:]:
                client.route(name)
            # The first poll learns the revision of the server.
            client.refresh()
            polls = bench.in_turn("polls", {"unchanged": partial(_poll, client, server, wire)})["unchanged"]
        # A response which says that nothing has changed, as the watch does not wait for a change.
        body_bytes = len(wire.success(wire.watch_frame(names, wait_ms=0)).body)
        bench.progress("memory of the client")
        with_route, with_queue = loops.run(partial(_memory, settings, names))
    in_thread = f"SyncRouteClient.select_queue in one thread, {_SENT_TO:,} topics"
    in_task = f"RouteClient.select_queue in one task, {_SENT_TO:,} topics"
    first = "first route of a client that has just started"
    requests, cpu, wall = zip(*polls, strict=True)
    poll = f"polling {_TOPICS:,} unchanged topics"
    round_trip = f"round trip {medians('milliseconds', wall)}"
    route = f"memory of a topic on {_GROUPS} broker groups: route"
    return [
        Figure("client.select.threads", in_thread, "per_second", results["threads"], at_least(500_000)),
        Figure("client.select.tasks", in_task, "per_second", results["tasks"], at_least(500_000)),
        Figure("client.first_route", first, "milliseconds", results["cold"], at_most(20)),
        Figure("client.poll.requests", f"{poll}: requests", "times", requests, at_most(1)),
        Figure("client.poll.bytes", f"{poll}: bytes of the response's body", "count", (body_bytes,), at_most(100)),
        Figure("client.poll.server", f"{poll}: server's processor time", "milliseconds", cpu, at_most(5), round_trip),
        Figure("client.memory.routes", route, "kibibytes", (with_route / 1024,), at_most(4)),
        Figure(
            "client.memory.producer",
            f"{route} and the next queue to send to",
            "kibibytes",
            (with_queue / 1024,),
            at_most(4),
        ),
    ]


def _selects_in_a_thread(client: SyncRouteClient, names: list[str]) -> float:
    began = time.perf_counter()
    for _ in range(_SENDS):
        for name in names:
            client.select_queue(name)
    return _SENDS * len(names) / (time.perf_counter() - began)


async def _selects_in_a_task(settings: ClientSettings, names: list[str]) -> float:
    async with RouteClient(settings) as client:
        for name in names:
            await client.select_queue(name)
        began = time.perf_counter()
        for _ in range(_SENDS):
            for name in names:
                await client.select_queue(name)
        return _SENDS * len(names) / (time.perf_counter() - began)


def _first_route(settings: ClientSettings, name: str) -> float:
    """Milliseconds from a new client, which has to connect, to its first route."""

    async def cold() -> float:
        began = time.perf_counter()
        async with RouteClient(settings) as client:
            await client.route(name)
            return time.perf_counter() - began

    return statistics.median(loops.run(cold) for _ in range(_COLD_CLIENTS)) * 1000


def _poll(client: SyncRouteClient, server: Server, wire: Wire) -> tuple[float, float, float]:
    """Averages of a poll: requests, the server's processor time, and the round trip (both in milliseconds)."""
    requests, cpu, wall = _requests(wire), server.cpu_seconds(), time.perf_counter()
    for _ in range(_POLLS):
        if not client.refresh():
            raise BenchError("a poll failed")
    wall, cpu = time.perf_counter() - wall, server.cpu_seconds() - cpu
    return (_requests(wire) - requests) / _POLLS, cpu * 1000 / _POLLS, wall * 1000 / _POLLS


def _requests(wire: Wire) -> int:
    """The number of requests that all clients have sent."""
    response = wire.native(RequestCode.LIST_CONNECTIONS, role="client")
    return sum(connection["requests"] for connection in response["connections"])


async def _memory(settings: ClientSettings, names: list[str]) -> tuple[float, float]:
    """Bytes of memory per topic with its route, and with its route and the next queue."""
    async with RouteClient(settings) as client:
        tracemalloc.start()
        try:
            before = _traced()
            # The strings of the names exist already, as in an application.
            await asyncio.gather(*(client.route(name) for name in names))
            await client.refresh()
            known = _traced()
            for name in names:
                await client.select_queue(name)
            return (known - before) / len(names), (_traced() - before) / len(names)
        finally:
            tracemalloc.stop()


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
