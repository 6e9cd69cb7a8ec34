"""Responses to PULL_ROUTES (20001): batch, conditional pull and watch; tests/journeys has many watches at once."""

import asyncio
import gc
import tracemalloc
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.support.fake_clock import settle, until
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import (
    MASTER,
    OTHER,
    Broker,
    NamesrvPeer,
    native,
    native_registration,
    registration,
)

PULL = 20001


async def pull(peer: NamesrvPeer, *topics: str, **members: Any) -> dict[str, Any]:
    """The body of the response."""
    response = await peer.call(PULL, None, native({"topics": topics, **members}), spelling="native")
    assert response.outcome == (0, None)
    found: dict[str, Any] = response.value
    return found


async def watch(
    server: InProcess, peer: NamesrvPeer, *topics: str, wait_ms: int, ext: dict[str, str] | None = None, **members: Any
) -> int:
    """Send a watch, wait until the server has it, and return its opaque."""
    before = len(server.namesrv.routes.watchers)
    known = {"boot_id": server.namesrv.boot.id, "since": server.namesrv.manager.revisions.revision}
    body = native({"topics": topics, "wait_ms": wait_ms, **known, **members})
    opaque = peer.send_request(PULL, ext, body, spelling="native")
    await until(lambda: len(server.namesrv.routes.watchers) > before)
    return opaque


async def test_first_pull_gets_all_its_routes(server: InProcess, peer: NamesrvPeer) -> None:
    """The first response is full, with nil for an unknown topic, and has the revision for the next pull."""
    await peer.register(MASTER)
    await peer.register(OTHER, registration("U", "V"))

    found = await pull(peer, "T", "V", "absent")

    boot_id = server.namesrv.boot.id
    single = (await peer.call(105, {"topic": "T"}, spelling="native")).value
    routes = found.pop("routes")
    assert found == {"boot_id": boot_id, "revision": 2, "ready": True, "full": True}
    assert list(routes) == ["T", "V", "absent"]
    assert routes["absent"] is None
    assert single == routes["T"]
    assert [queues["broker_name"] for queues in routes["V"]["queue_datas"]] == ["broker-b"]


@pytest.mark.parametrize("is_silent", [False, True], ids=["disconnected", "silent"])
async def test_stop_of_the_process_does_not_end_the_wait_for_lost_brokers(
    server: InProcess, *, is_silent: bool
) -> None:
    """Lost brokers get the rest of their 35 s after the server was stopped, and meanwhile clients keep their routes."""
    broker = await server.connect()
    await broker.register(MASTER)
    if is_silent:
        await server.clock.advance(131)
    else:
        broker.close()
    await until(lambda: not server.namesrv.manager.tables.broker_live_table)
    peer = await server.connect()
    if is_silent:
        await peer.register(OTHER)
    await server.clock.advance(10)

    server.clock.stall(60)
    # The request is read before the tick that notices the stop.
    assert (await pull(peer, "T"))["ready"] is False
    await server.clock.advance(23)
    assert (await pull(peer, "T"))["ready"] is False
    await server.clock.advance(3)
    assert (await pull(peer, "T"))["ready"] is True


async def test_next_pull_gets_the_changed_routes(peer: NamesrvPeer) -> None:
    """A conditional pull gets the changed routes of its topics, nil for a removed one, or all after another boot."""
    await peer.register(MASTER, registration("T", "U", "V"))
    first = await pull(peer, "T", "U")
    await peer.call(216, {"topic": "T"})
    await peer.call(216, {"topic": "V"})

    for boot_id, since, full, routes in (
        (first["boot_id"], first["revision"], False, {"T": None}),
        # a watch is answered at once if a topic has already changed
        (first["boot_id"], 1, False, {"T": None}),
        (first["boot_id"], 3, False, {}),
        (None, 3, True, None),
        ("of another boot", 3, True, None),
    ):
        found = await pull(
            peer, "T", "U", boot_id=boot_id, since=since, wait_ms=0 if since == 3 and not full else 60_000
        )
        assert (found["revision"], found["full"]) == (3, full)
        assert (["T", "U"] if routes is None else list(routes)) == list(found["routes"])
        assert routes in (None, found["routes"])


@pytest.mark.settings(admin_enabled=True)
async def test_watch_is_answered_when_a_topic_changes(server: InProcess, peer: NamesrvPeer) -> None:
    """New, reordered, deleted and evicted topics end a watch at once; changes of other topics do not."""
    watcher, order = await server.connect(), {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"}

    async def woken(by: Coroutine[Any, Any, Any]) -> dict[str, Any]:
        opaque = await watch(server, watcher, "T", "X", wait_ms=1_500)
        await by
        found: dict[str, Any] = (await watcher.response_to(opaque)).value
        assert len(server.namesrv.routes.watchers) == 0
        return found

    assert list((await woken(peer.register(MASTER)))["routes"]) == ["T"]
    # a changed setting may change every route
    found = await woken(peer.call(318, None, b"orderMessageEnable=true"))
    assert (found["full"], list(found["routes"])) == (True, ["T", "X"])
    found = await woken(peer.call(100, order))
    assert found["routes"]["T"]["order_topic_conf"] == "broker-a:8"
    found = await woken(peer.call(216, {"topic": "T"}))
    assert (found["revision"], found["full"], found["routes"]) == (4, False, {"T": None})
    await peer.register(MASTER)
    assert (await woken(server.hang_up(peer)))["routes"] == {"T": None}

    opaque = await watch(server, watcher, "T", wait_ms=1_500)
    await (await server.connect()).register(OTHER, registration("V", "W"))
    await server.clock.advance(1.49)
    assert len(server.namesrv.routes.watchers) == 1
    await server.clock.advance(0.01)
    found = (await watcher.response_to(opaque)).value
    assert (found["revision"], found["full"], found["routes"]) == (7, False, {})


async def test_watches_of_a_topic_share_an_encoded_response(server: InProcess, peer: NamesrvPeer) -> None:
    """Watches from the same revision are answered in order, each with its opaque; from another, with other routes."""
    await peer.register(MASTER, registration("T", "U"))
    await peer.call(216, {"topic": "U"})
    watchers = [await server.connect() for _ in range(3)]
    opaques = [await watch(server, watcher, "T", "U", wait_ms=60_000) for watcher in watchers]
    order = [await watch(server, watchers[0], "T", wait_ms=60_000, since=2) for _ in range(200)]
    before = server.namesrv.counters.requests["watch"].count

    await peer.call(216, {"topic": "T"})

    for watcher, opaque in zip(watchers, opaques, strict=True):
        response = await watcher.receive()
        assert (response.opaque, response.value["routes"], response.value["revision"]) == (opaque, {"T": None}, 3)
    assert [(await watchers[0].receive()).opaque for _ in order] == order
    assert server.namesrv.counters.requests["watch"].count == before + 203


async def test_watch_keeps_no_header(server: InProcess, peer: NamesrvPeer) -> None:
    """A watch takes a few KiB at most, however large the header of the request was."""
    await peer.register(MASTER)
    watcher = await server.connect()
    tracemalloc.start()
    try:
        for _ in range(100):
            await watch(server, watcher, "T", wait_ms=60_000, ext={"field": "x" * 30_000})
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 100 * 4096


async def test_watch_that_ends_with_its_connection_leaves_nothing(server: InProcess, peer: NamesrvPeer) -> None:
    """The task that was to answer the watch is cancelled before its first step."""
    watcher = await server.connect()
    await watch(server, watcher, *(f"topic-{number}" for number in range(300)), wait_ms=60_000)
    connection = server.connection_of(watcher)

    def abort_with_change() -> None:
        assert connection.in_flight == 1
        server.namesrv.routes.watchers.wake(None)
        connection.abort()

    asyncio.get_running_loop().call_soon(abort_with_change)
    assert await watcher.at_end()
    await until(lambda: not connection.in_flight)
    gc.collect()


@pytest.mark.parametrize("topics", [250, 300])
async def test_watch_that_shares_no_response_is_answered(server: InProcess, peer: NamesrvPeer, topics: int) -> None:
    """Responses beyond 60 KiB, and watches of many topics, end in tasks of their own."""
    names = [f"topic-{number}" for number in range(topics)]
    watcher = await server.connect()
    used = server.namesrv.slots.budget.used_bytes
    members = {"topics": names, "boot_id": server.namesrv.boot.id, "since": 0, "wait_ms": 60_000}
    opaque = watcher.send_request(PULL, None, native(members), spelling="native")
    connection = server.connection_of(watcher)
    await until(lambda: len(server.namesrv.routes.watchers) == 1 == connection.in_flight)
    assert server.namesrv.slots.budget.used_bytes == used + 2048 + topics * 512

    await peer.register(Broker("b" * 100), registration(*names))

    response = await watcher.receive()
    assert (response.opaque, list(response.value["routes"])) == (opaque, names)
    assert topics == 300 or len(response.body) > 60 * 1024
    await until(lambda: not connection.in_flight)
    assert server.namesrv.slots.budget.used_bytes == used


async def test_request_for_many_topics_is_processed_in_chunks(server: InProcess, peer: NamesrvPeer) -> None:
    """The search for changed topics, before a watch and after it, yields to other tasks."""
    await peer.register(MASTER)
    await peer.register(OTHER, registration("changed", "another"))
    topics = [f"topic-{number}" for number in range(50_000)]
    iterations = 0

    async def count() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    async def iterations_for(*asked: str, since: int, wait_ms: int = 0) -> int:
        before = iterations
        found = await pull(peer, *asked, boot_id=server.namesrv.boot.id, since=since, wait_ms=wait_ms)
        assert {"changed": None}.keys() & asked == found["routes"].keys()
        return iterations - before

    counting = asyncio.create_task(count())
    # without a change only decoding the request takes iterations
    read = await iterations_for(*topics, since=2)
    assert await iterations_for(*topics, since=1) - read > 35
    watching = asyncio.create_task(iterations_for(*topics, "changed", since=1, wait_ms=60_000))
    assert await watching - read > 70
    watching = asyncio.create_task(iterations_for(*topics, "changed", since=2, wait_ms=60_000))
    await until(lambda: len(server.namesrv.routes.watchers) > 0)
    await (await server.connect()).call(216, {"topic": "changed"})
    assert await watching - read > 35
    counting.cancel()


@pytest.mark.settings(max_memory_bytes=64 << 20)
async def test_watched_topics_are_limited(server: InProcess, peer: NamesrvPeer) -> None:
    """A watch and its topics are charged, and refused with code 2 beyond the budget; their end frees the memory."""
    before = server.namesrv.slots.budget.used_bytes
    opaque = await watch(server, peer, "T", "U", wait_ms=60_000)
    known = {"boot_id": server.namesrv.boot.id, "since": 0, "wait_ms": 60_000}
    request = native({"topics": [f"topic-{number}" for number in range(40_000)], **known})
    refused = (2, "no memory for a watch (topics: 40000)")
    assert (await peer.call(PULL, None, request, spelling="native")).outcome == refused
    await server.clock.advance(61)
    assert list((await peer.response_to(opaque)).value["routes"]) == []

    await watch(server, peer, "T", "U", "V", "W", wait_ms=60_000)
    await server.hang_up(peer)
    await until(lambda: not len(server.namesrv.routes.watchers))
    other = await server.connect()
    await watch(server, other, "T", "U", "V", "W", wait_ms=60_000)
    assert server.namesrv.slots.budget.used_bytes == before + 2048 + 4 * 512


async def test_watches_are_freed_with_their_connection(server: InProcess, peer: NamesrvPeer) -> None:
    """The memory of watches is freed without the garbage collector."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(4):
            await watch(server, peer, *(f"topic-{number}" for number in range(5_000)), wait_ms=60_000)
        during, _ = tracemalloc.get_traced_memory()
        await server.hang_up(peer)
        await until(lambda: not len(server.namesrv.routes.watchers))
        await settle()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()

    assert during - before > 1_000_000
    assert after - before < 250_000


async def test_peer_that_does_not_read_has_one_large_response_at_a_time(server: InProcess) -> None:
    """Responses to many watches are encoded one by one as the peer reads, and all arrive."""
    names = [f"topic-{number}" for number in range(2_000)]
    broker, watcher = await server.connect(), await server.connect()
    opaques = [await watch(server, watcher, *names, wait_ms=60_000) for _ in range(10)]
    connection = server.connection_of(watcher)
    await broker.register(MASTER, native_registration(*names), spelling="native")
    await until(lambda: not len(server.namesrv.routes.watchers))
    most = 0
    for _ in range(1_000):
        most = max(most, connection.unsent_bytes)
        await asyncio.sleep(0)

    found = [await watcher.receive() for _ in opaques]
    assert {len(names)} == {len(response.value["routes"]) for response in found}
    assert set(opaques) == {response.opaque for response in found}
    assert most < max(len(response.body) for response in found) + 64 * 1024 + 200


async def test_registration_is_visible_as_a_whole(server: InProcess) -> None:
    """While a large registration is applied in chunks, responses have all of its topics or none."""
    names = [f"topic-{n}" for n in range(5_000)]
    broker, client = await server.connect(), await server.connect()
    await broker.register(MASTER, native_registration(*names), spelling="native")

    async def routed() -> tuple[str, ...]:
        routes = (await pull(client, "topic-0", "topic-4999", "T"))["routes"]
        return tuple(topic for topic, route in routes.items() if route is not None)

    seen = {await routed()}
    whole = native_registration("T", counter=2)
    registering = asyncio.create_task(broker.register(MASTER, whole, spelling="native"))
    while not registering.done():
        seen.add(await routed())
    seen.add(await routed())

    assert seen == {("topic-0", "topic-4999"), ("T",)}


@pytest.mark.settings(drain_seconds=60.0)
async def test_draining_server_holds_no_watch(server: InProcess) -> None:
    """A draining server answers a watch at once, since the client is to leave, not at the end of the connection."""
    broker, _, client = await server.connect(), await server.connect(), await server.connect()
    await broker.register(MASTER)
    revision = (await pull(client, "T"))["revision"]
    server.controller.ask_to_stop()
    # The drain begins with the connection of the other client.
    await until(lambda: len(server.namesrv.slots.connections) < 3)

    connection = server.connection_of(client)
    seen = connection.peer.requests
    body = {"topics": ["T"], "boot_id": server.namesrv.boot.id, "since": revision, "wait_ms": 300_000}
    opaque = client.send_request(PULL, None, native(body), spelling="native")
    await until(lambda: connection.peer.requests > seen)
    await settle()

    assert not server.namesrv.routes.watchers
    answer = (await client.response_to(opaque)).value
    assert (answer["routes"], answer["revision"]) == ({}, revision)
    assert (await client.call(20002, spelling="native")).value["draining"]
