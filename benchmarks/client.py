"""Benchmark of the client: a producer's wait for its queue, the cost of its poll, the memory of its routes."""

import asyncio
import gc
import statistics
import time
import tracemalloc
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from benchmarks.figures import BenchError, Figure, Target, spelt_medians
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, native_question, topics
from benchmarks.servers import Server, daemon
from namesrv_client import ClientSettings, RouteClient, SyncRouteClient
from namesrv_remoting.codes import RequestCode
from namesrv_runtime import loops

# of a large producer, on so many broker groups
TOPICS: Final = 10_000
GROUPS: Final = 8
TOPIC_NAME: Final = "TopicTest%d"
# topics that are sent to in turn
SENT_TO: Final = 1_000
# each of them so often, in each round
SENDS: Final = 200
POLLS: Final = 20
COLD_CLIENTS: Final = 20
_MOST_BYTES: Final = 100


def measure(bench: Bench) -> list[Figure]:
    """Queues for messages, the first route of a client, polls that bring nothing, memory."""
    with daemon(bench) as server, Wire(server) as wire:
        for group in range(GROUPS):
            wire.ask_well(_broker(group).json_frame())
        names = [topic.topic_name for topic in topics(TOPIC_NAME, TOPICS)]
        # no poll but those that are asked for
        settings = _settings(server, poll_seconds=86_400.0)
        with SyncRouteClient(settings) as client:
            for name in names[:SENT_TO]:
                client.select_queue(name)
            found = bench.in_turn(
                "the client",
                {
                    "threads": partial(_selects_in_a_thread, client, names[:SENT_TO]),
                    "tasks": partial(loops.run, partial(_selects_in_a_task, settings, names[:SENT_TO])),
                    "cold": partial(_first_route, settings, names[0]),
                },
            )
            for name in names[SENT_TO:]:
                client.route(name)
            # learns of which changes it knows
            client.refresh()
            polls = bench.in_turn("polls", {"unchanged": partial(_poll, client, server, wire)})["unchanged"]
        answer_bytes = _unchanged_answer_bytes(wire, names)
        bench.progress("memory of the client")
        route_bytes, producer_bytes = loops.run(partial(_memory, settings, names))
    return [
        _rate("threads", "SyncRouteClient.select_queue in one thread", found["threads"]),
        _rate("tasks", "RouteClient.select_queue in one task", found["tasks"]),
        Figure(
            "client.first_route",
            "first route of a client that has just started",
            "milliseconds",
            tuple(found["cold"]),
            Target("<=", 20),
        ),
        Figure(
            "client.poll.questions",
            f"polling {TOPICS:,} unchanged topics: questions",
            "times",
            tuple(questions for questions, _, _ in polls),
            Target("<=", 1),
        ),
        Figure(
            "client.poll.bytes",
            f"polling {TOPICS:,} unchanged topics: body of the answer / {_MOST_BYTES} bytes",
            "times",
            (answer_bytes / _MOST_BYTES,),
            Target("<=", 1),
            behind=f"{answer_bytes} bytes",
        ),
        Figure(
            "client.poll.server",
            f"polling {TOPICS:,} unchanged topics: server's computing time",
            "milliseconds",
            tuple(server_time for _, server_time, _ in polls),
            Target("<=", 5),
            behind=f"round trip {spelt_medians('milliseconds', [round_trip for _, _, round_trip in polls])}",
        ),
        _size("routes", "route", route_bytes),
        _size("producer", "route and whose turn it is", producer_bytes),
    ]


def _broker(group: int) -> Broker:
    return Broker("DefaultCluster", f"broker{group}", 0, f"127.0.0.1:{10911 + 10 * group}", topics(TOPIC_NAME, TOPICS))


def _settings(server: Server, **values: Any) -> ClientSettings:
    # so that a server that has just started is believed
    return ClientSettings(name_servers=f"127.0.0.1:{server.port}", warm_up_seconds=0.0, **values)


def _rate(name: str, what: str, rates: list[float]) -> Figure:
    return Figure(
        f"client.select.{name}", f"{what}, {SENT_TO:,} topics", "per_second", tuple(rates), Target(">=", 500_000)
    )


def _size(name: str, what: str, size: float) -> Figure:
    return Figure(
        f"client.memory.{name}",
        f"memory of a topic on {GROUPS} broker groups: {what}",
        "kibibytes",
        (size / 1024,),
        Target("<=", 4),
    )


# -- queues for messages ----------------------------------------------------------------------------------------------


def _selects_in_a_thread(client: SyncRouteClient, names: list[str]) -> float:
    began = time.perf_counter()
    for _ in range(SENDS):
        for name in names:
            client.select_queue(name)
    return SENDS * len(names) / (time.perf_counter() - began)


async def _selects_in_a_task(settings: ClientSettings, names: list[str]) -> float:
    async with RouteClient(settings) as client:
        for name in names:
            await client.select_queue(name)
        began = time.perf_counter()
        for _ in range(SENDS):
            for name in names:
                await client.select_queue(name)
        return SENDS * len(names) / (time.perf_counter() - began)


# -- routes -----------------------------------------------------------------------------------------------------------


def _first_route(settings: ClientSettings, name: str) -> float:
    """From nothing to a route: connecting, asking who it is, and asking; in milliseconds."""

    async def cold() -> float:
        began = time.perf_counter()
        async with RouteClient(settings) as client:
            await client.route(name)
            return time.perf_counter() - began

    return statistics.median(loops.run(cold) for _ in range(COLD_CLIENTS)) * 1000


def _poll(client: SyncRouteClient, server: Server, wire: Wire) -> tuple[float, float, float]:
    """Questions, computing time of the server and round trip, both in milliseconds, of a poll on average."""
    questions, cpu, wall = _questions(wire), server.cpu_seconds(), time.perf_counter()
    for _ in range(POLLS):
        if not client.refresh():
            raise BenchError("a poll was not answered")
    wall, cpu = time.perf_counter() - wall, server.cpu_seconds() - cpu
    return (_questions(wire) - questions) / POLLS, cpu * 1000 / POLLS, wall * 1000 / POLLS


def _questions(wire: Wire) -> int:
    """What clients have asked until now."""
    found = _ask(wire, RequestCode.LIST_CONNECTIONS, {"role": "client"})
    return sum(connection["requests"] for connection in found["connections"])


def _unchanged_answer_bytes(wire: Wire, names: list[str]) -> int:
    """The body of an answer that says that nothing has changed."""
    info = _ask(wire, RequestCode.SERVER_INFO, {})
    question = {"topics": names, "boot_id": info["boot_id"], "since": info["revision"], "wait_ms": 0}
    return len(wire.ask_well(native_question(RequestCode.PULL_ROUTES, question)).body)


def _ask(wire: Wire, code: RequestCode, question: Mapping[str, object]) -> Any:
    return msgspec.msgpack.decode(wire.ask_well(native_question(code, question)).body)


# -- memory -----------------------------------------------------------------------------------------------------------


async def _memory(settings: ClientSettings, names: list[str]) -> tuple[float, float]:
    """Bytes of a topic that is known, and of one that is sent to; of a client that has just got all of them."""
    async with RouteClient(settings) as client:
        tracemalloc.start()
        try:
            before = _traced()
            # as by a client that asks for each of them; the names are the caller's
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
