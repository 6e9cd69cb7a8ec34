"""Costs of changes: the number of topic look-ups between two moments at which other tasks run."""

import asyncio
import gc
import sys
import threading
from collections.abc import Awaitable, KeysView
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from namesrv.heartbeat_log.log import HeartbeatLog
from namesrv.routeinfo.manager import REMOVALS_AT_ONCE
from namesrv.routeinfo.tables.records import Registration
from namesrv.routeinfo.tables.rows import CHUNK_TOPICS, RowChange, RowChanges
from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from namesrv.state.watchers import SharedResponses
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.errors import BadRequestError
from namesrv_runtime.line_log.files import Retention
from tests.support.fake_clock import until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, Spelling
from tests.support.route_builders import RouteScene, body, key, registration, topic

MANY = 20 * CHUNK_TOPICS
# how often a change may look up one topic in all tables
LOOKS = 8


class Topic(str):
    """A topic name that counts its look-ups in the event loop's thread."""

    __slots__ = ()
    looks = 0
    loop_thread = 0

    def __hash__(self) -> int:
        """A string's hash; a table that is copied as a whole reuses the stored hashes without a look-up."""
        Topic.looks += threading.get_ident() == Topic.loop_thread
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        """A string's comparison."""
        return str.__eq__(self, other)


async def max_looks_per_step(work: Awaitable[object]) -> int:
    """The largest number of look-ups between two moments at which other tasks run."""
    Topic.loop_thread = threading.get_ident()
    task, most = asyncio.ensure_future(work), 0
    while not task.done():
        before = Topic.looks
        await asyncio.sleep(0)
        most = max(most, Topic.looks - before)
    await task
    return most


class Watching:
    """A watch of these topics."""

    def __init__(self, server: InProcess, topics: list[Topic]) -> None:
        self.topics: KeysView[str] = dict.fromkeys(topics).keys()
        self.has_ended = False
        server.namesrv.routes.watchers.add(self)

    def end(self, shared: SharedResponses) -> None:
        """Note the end."""
        self.has_ended = True


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({}, id="far from the limits", marks=pytest.mark.slow),
        pytest.param({"max_topics": 2 * MANY * 8 // 7 + 8}, id="near the limits"),
    ],
)
async def test_registration_of_many_topics_is_applied_in_chunks(tmp_path: Path, overrides: dict[str, Any]) -> None:
    """New, shared, changed, moved, dropped and watched topics of a large broker are all processed in chunks."""
    async with namesrv_in_process(tmp_path, heartbeat_log_dir="", audit_log_dir="", **overrides) as server:
        await server.connect()
        (connection_id,) = server.namesrv.slots.connections
        manager, cache = server.namesrv.manager, server.namesrv.routes.encoded.in_view(None).json
        topics = [Topic(f"topic-{number}") for number in range(MANY)]
        watcher = Watching(server, topics)

        def broker(name: str, addr: str, *names: Any, **fields: Any) -> Registration:
            table = body(*(topic(name, fields.pop("queues", 8)) for name in names))
            return registration(name, 0, addr, body=table, connection_id=connection_id, is_native=True, **fields)

        async def looks(*registrations: Registration) -> int:
            return max([await max_looks_per_step(manager.register(one)) for one in registrations])

        first = broker("b1", "m:1", *topics)
        assert await looks(first) <= LOOKS * CHUNK_TOPICS
        assert len(manager.tables.topic_queue_table) == MANY
        await until(lambda: watcher.has_ended)

        assert await looks(broker("b2", "o:1", *topics)) <= LOOKS * CHUNK_TOPICS
        assert await looks(replace(first, broker_addr="m:2")) <= LOOKS * CHUNK_TOPICS
        assert key("m:1") not in manager.tables.broker_live_table
        others = broker("b3", "p:1", *(Topic(f"other-{number}") for number in range(MANY)))
        assert await looks(others) <= LOOKS * CHUNK_TOPICS
        if overrides:
            more = [f"more-{number}" for number in range(MANY // 20)]
            with pytest.raises(BadRequestError, match=r"^\d+ topics of address 127\.0\.0\.1, limit \d+$"):
                await looks(broker("b4", "q:1", *topics, *more))
        # two tables drop each topic
        assert await looks(broker("b3", "p:1", "one")) <= 2 * MANY + LOOKS * CHUNK_TOPICS

        assert cache.find(topics[0])
        assert await looks(broker("b2", "o:1", *topics, queues=4)) <= LOOKS * CHUNK_TOPICS
        assert cache.find(topics[0])


@pytest.mark.parametrize("way", ["silent", "disconnected"])
async def test_many_brokers_are_removed_in_batches(way: str) -> None:
    """Removals of many brokers yield to the loop; a heartbeat keeps its broker, and another one may unregister."""
    scene, count = RouteScene(), 10 * REMOVALS_AT_ONCE
    await scene.register(*(registration(f"b{number}", 0, f"m:{number}", connection_id=1) for number in range(count)))
    scene.pass_time(121.0)
    work = scene.manager.evict_silent() if way == "silent" else scene.close(1)
    task, most, left = asyncio.ensure_future(work), 0, count
    alive, leaving = key(f"m:{count - 1}"), f"b{count - 2}"
    left_by_itself = asyncio.ensure_future(scene.manager.unregister(key(f"m:{count - 2}"), leaving, 1))
    while not task.done():
        await asyncio.sleep(0)
        remaining = len(scene.tables.broker_live_table)
        most, left = max(most, left - remaining), remaining
        scene.data_version(alive, 2)
    await task

    assert await left_by_itself
    assert list(scene.tables.broker_live_table) == [alive]
    # the broker that unregistered comes on top
    assert most <= REMOVALS_AT_ONCE + 1


class Address(str):
    """A broker's address that counts how often it is compared to find an order."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        Address.compared += 1
        return str.__lt__(self, other)


async def test_brokers_of_a_closed_connection_are_sorted_once() -> None:
    """The cost of removing a thousand brokers of one connection is in proportion to their number, or nearly."""
    scene, count = RouteScene(), 1_000
    await scene.register(*(registration(f"b{n}", 0, Address(f"m:{n}"), connection_id=1) for n in range(count)))
    Address.compared = 0

    await scene.close(1)

    assert scene.tables.broker_live_table == {}
    assert Address.compared <= 10 * count


def test_members_and_clusters_of_a_group_are_few() -> None:
    """The cost of a registration grows with the members of its group, and one broker could fill the table of clusters.

    A broker stays in each cluster that it has named. test_manager.py shows that the limits refuse registrations.
    """
    limits = Limits.of(Settings()).tables

    assert (limits.max_brokers_per_group, limits.max_clusters_per_group) == (100, 16)


@pytest.mark.parametrize(
    ("spelling", "kinds", "blocks_per_topic"),
    [("json", 1, 3), ("native", MANY, 12)],
    ids=["equal queues", "different queues"],
)
async def test_topics_of_a_large_registration_are_freed_in_chunks(
    tmp_path: Path, spelling: Spelling, kinds: int, blocks_per_topic: int
) -> None:
    """The decoded topics of a registration, and objects made of them, are freed in chunks."""
    topics = (TopicConfig(f"topic-{number}", number % kinds) for number in range(MANY))
    table = RegisterBrokerBody(list(topics), DataVersion(1, 1, 1))
    encoded = encode_native_body(table) if spelling == "native" else encode_json_body(table)
    async with namesrv_in_process(tmp_path, heartbeat_log_dir="") as server:
        peer = await server.connect()
        gc.collect()
        gc.disable()
        try:
            registering = asyncio.create_task(peer.register(Broker("b1"), encoded, spelling=spelling))
            most, blocks = 0, sys.getallocatedblocks()
            while not registering.done():
                await asyncio.sleep(0)
                most, blocks = max(most, blocks - sys.getallocatedblocks()), sys.getallocatedblocks()
        finally:
            gc.enable()
        assert (await registering).code == 0
        assert len(server.namesrv.manager.tables.topic_queue_table) == MANY
    assert most <= blocks_per_topic * 5000


async def test_heartbeat_log_processes_many_topics_in_chunks(tmp_path: Path) -> None:
    """The heartbeat log looks up no topic of a change, and those of late brokers in chunks."""
    scene = RouteScene()
    tables, clock = scene.tables, scene.clock
    log = HeartbeatLog(
        Settings(data_dir=tmp_path), Retention(1.0, 1), "b1", clock=clock, tables=tables, liveness=scene.liveness
    )
    topics = [Topic(f"topic-{number}") for number in range(MANY)]
    await scene.register(*(registration(name, 0, name, *map(topic, topics)) for name in ("b1", "b2")))
    row_changes = RowChanges(dict.fromkeys(topics), [[RowChange(topics, None, None)]])
    Topic.loop_thread, Topic.looks = threading.get_ident(), 0
    log.routes_published(1, row_changes)
    assert 0 == Topic.looks < log.lines.queued
    scene.pass_time(100.0)

    for alive, late in (([], MANY), ([], MANY), (["b1"], MANY), (["b1", "b2"], 0)):
        for addr in alive:
            scene.manager.touch(key(addr), 1)
        assert await max_looks_per_step(log.tick()) <= LOOKS * 5_000
        assert len(log.late.topics) == late
