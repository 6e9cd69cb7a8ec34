"""Answers to PULL_ROUTES (20001): batch, conditional pull and watch; many watches are in tests/journeys."""

import asyncio
import gc
import tracemalloc
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_clock import settle, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import MASTER, OTHER, NamesrvPeer, native, native_registration, registration

PULL = 20001


async def pull(peer: NamesrvPeer, *topics: str, **members: Any) -> dict[str, Any]:
    """The answer's body."""
    response = await peer.call(PULL, None, native({"topics": topics, **members}), spelling="native")
    assert response.outcome == (0, None)
    found: dict[str, Any] = response.value
    return found


async def watch(server: InProcess, peer: NamesrvPeer, *topics: str, wait_ms: int, **members: Any) -> int:
    """Ask and return once the server waits; the question's opaque."""
    before = len(server.namesrv.watchers)
    known = {"boot_id": server.namesrv.boot_id, "since": server.namesrv.manager.revisions.revision}
    body = native({"topics": topics, "wait_ms": wait_ms, **known, **members})
    opaque = peer.tell(PULL, None, body, spelling="native")
    await until(lambda: len(server.namesrv.watchers) > before)
    return opaque


async def test_first_pull_gets_everything_it_asks_for(server: InProcess, peer: NamesrvPeer) -> None:
    """Full, with nil for what is positively absent, and the revision from which to go on."""
    await peer.register(MASTER)
    await peer.register(OTHER, registration("U", "V"))

    found = await pull(peer, "T", "V", "absent")

    boot_id = server.namesrv.boot_id
    single = (await peer.call(105, {"topic": "T"}, spelling="native")).value
    routes = found.pop("routes")
    assert {"boot_id": boot_id, "revision": 2, "ready": True, "full": True} == found
    assert list(routes) == ["T", "V", "absent"]
    assert routes["absent"] is None
    assert single == routes["T"]
    assert [queues["broker_name"] for queues in routes["V"]["queue_datas"]] == ["broker-b"]


async def test_next_pull_gets_what_changed(peer: NamesrvPeer) -> None:
    """Only asked topics, only those that changed, nil for one that has gone; all in another run of the server."""
    await peer.register(MASTER, registration("T", "U", "V"))
    first = await pull(peer, "T", "U")
    await peer.call(216, {"topic": "T"})
    await peer.call(216, {"topic": "V"})

    for boot_id, since, full, routes in (
        (first["boot_id"], first["revision"], False, {"T": None}),
        # a watch that missed a change does not wait
        (first["boot_id"], 1, False, {"T": None}),
        (first["boot_id"], 3, False, {}),
        (None, 3, True, None),
        ("of another run", 3, True, None),
    ):
        found = await pull(
            peer, "T", "U", boot_id=boot_id, since=since, wait_ms=0 if since == 3 and not full else 60_000
        )
        assert (3, full) == (found["revision"], found["full"])
        assert (["T", "U"] if routes is None else list(routes)) == list(found["routes"])
        assert routes in (None, found["routes"])


async def test_an_observers_pull_is_in_no_clients_cache(server: InProcess, peer: NamesrvPeer) -> None:
    """The heartbeat log does not say that it was served; a client's pull of the same topic is there."""
    await peer.register(MASTER)

    await pull(peer, "T", observes=True)
    assert await server.lines("served") == []
    await pull(peer, "T")

    assert [line["topics"] for line in await server.lines("served")] == [["T"]]


@pytest.mark.settings(admin_enabled=True)
async def test_watch_is_answered_as_soon_as_something_changes(server: InProcess, peer: NamesrvPeer) -> None:
    """A topic appears, gets its order, goes, goes with its broker; a change of others wakes nobody, nor does time."""
    watcher, order = await server.connect(), {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"}

    async def woken(by: Coroutine[Any, Any, Any]) -> dict[str, Any]:
        opaque = await watch(server, watcher, "T", "X", wait_ms=1_500)
        await by
        found: dict[str, Any] = (await watcher.answer_to(opaque)).value
        assert len(server.namesrv.watchers) == 0
        return found

    assert list((await woken(peer.register(MASTER)))["routes"]) == ["T"]
    # a setting may have changed every route
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
    assert len(server.namesrv.watchers) == 1
    await server.clock.advance(0.01)
    found = (await watcher.answer_to(opaque)).value
    assert (found["revision"], found["full"], found["routes"]) == (7, False, {})


async def test_question_about_many_topics_is_looked_through_in_steps(server: InProcess, peer: NamesrvPeer) -> None:
    """Which of them have changed, before a watch begins and after it has ended; others run in between."""
    await peer.register(MASTER)
    await peer.register(OTHER, registration("changed", "another"))
    topics = [f"topic-{number}" for number in range(50_000)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def turns_for(*asked: str, since: int, wait_ms: int = 0) -> int:
        before = turns
        found = await pull(peer, *asked, boot_id=server.namesrv.boot_id, since=since, wait_ms=wait_ms)
        assert {"changed": None}.keys() & asked == found["routes"].keys()
        return turns - before

    counting = asyncio.create_task(count())
    # nothing has happened since, and only the question itself takes turns
    read = await turns_for(*topics, since=2)
    assert await turns_for(*topics, since=1) - read > 35
    watching = asyncio.create_task(turns_for(*topics, "changed", since=1, wait_ms=60_000))
    assert await watching - read > 70
    watching = asyncio.create_task(turns_for(*topics, "changed", since=2, wait_ms=60_000))
    await until(lambda: len(server.namesrv.watchers) > 0)
    await (await server.connect()).call(216, {"topic": "changed"})
    assert await watching - read > 35
    counting.cancel()


async def test_watched_topics_are_limited(tmp_path: Path) -> None:
    """Code 2 for more than there is memory for; when a watch ends, or its connection, others have its room."""
    async with namesrv_in_process(tmp_path, max_memory_bytes=64 << 20) as server:
        peer = await server.connect()
        before = server.namesrv.budget.used_bytes
        opaque = await watch(server, peer, "T", "U", wait_ms=60_000)
        known = {"boot_id": server.namesrv.boot_id, "since": 0, "wait_ms": 60_000}
        question = native({"topics": [f"topic-{number}" for number in range(40_000)], **known})
        refused = (2, "no memory for a watch of 40000 topics")
        assert (await peer.call(PULL, None, question, spelling="native")).outcome == refused
        await server.clock.advance(61)
        assert list((await peer.answer_to(opaque)).value["routes"]) == []

        await watch(server, peer, "T", "U", "V", "W", wait_ms=60_000)
        await server.hang_up(peer)
        await until(lambda: not len(server.namesrv.watchers))
        other = await server.connect()
        await watch(server, other, "T", "U", "V", "W", wait_ms=60_000)
        assert before + 4 * 512 == server.namesrv.budget.used_bytes


async def test_watches_of_many_topics_are_given_back_with_their_connection(
    server: InProcess, peer: NamesrvPeer
) -> None:
    """At once, without a collection of garbage."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(4):
            await watch(server, peer, *(f"topic-{number}" for number in range(20_000)), wait_ms=60_000)
        during, _ = tracemalloc.get_traced_memory()
        await server.hang_up(peer)
        await until(lambda: not len(server.namesrv.watchers))
        await settle()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()

    assert during - before > 4_000_000
    assert after - before < 1_000_000


async def test_peer_that_does_not_read_is_made_one_large_answer(server: InProcess) -> None:
    """However many of its watches end at once; when it reads, it gets all of them."""
    names = [f"topic-{number}" for number in range(2_000)]
    broker, watcher = await server.connect(), await server.connect()
    opaques = [await watch(server, watcher, *names, wait_ms=60_000) for _ in range(30)]
    connection = server.connection_of(watcher)
    await broker.register(MASTER, native_registration(*names), spelling="native")
    await until(lambda: not len(server.namesrv.watchers))
    most = 0
    for _ in range(3_000):
        most = max(most, connection.unsent_bytes)
        await asyncio.sleep(0)

    found = [await watcher.receive() for _ in opaques]
    assert {len(names)} == {len(response.value["routes"]) for response in found}
    assert set(opaques) == {response.opaque for response in found}
    assert most < max(len(response.body) for response in found) + 64 * 1024 + 200


async def test_nobody_sees_half_of_a_registration(server: InProcess) -> None:
    """While a large one is worked out in chunks, answers have all of its topics or none."""
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

    assert {("topic-0", "topic-4999"), ("T",)} == seen
