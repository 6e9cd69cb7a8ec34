"""The route client: cached routes, requests for missing ones, and errors without a route."""

import asyncio
import gc
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from namesrv_client import BrokerAddress, MessageQueue, RouteClient, RouteUnavailableError, TopicNotFoundError
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, passing, settle, until
from tests.support.hanging_list import opened_by_reader
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import Broker, topic_config
from tests.support.route_clients import (
    BROKER_A,
    BROKER_B,
    client_settings,
    register,
    registered,
    route_client,
    route_scene,
    unregister,
)


async def only_slaves(server: InProcess, *slaves: Broker) -> None:
    """Register a group and remove its master, because slaves alone bring no topics."""
    master = slaves[0]._replace(id=0, addr="10.0.99.99:10911")
    await unregister(await registered(server, master, *slaves), master)


def objects() -> Counter[str]:
    """Number of objects by class, of the client, its connections and routes, and asyncio's."""
    gc.collect()
    ours = ("namesrv_client", "namesrv_remoting.aio.client", "namesrv_remoting.bodies", "_asyncio")
    kinds = (type(found) for found in gc.get_objects())
    return Counter(kind.__name__ for kind in kinds if str(kind.__module__).startswith(ours))


async def test_client_starts_once() -> None:
    """A second start would leave the tasks of the first one running for ever."""
    client = RouteClient("127.0.0.1:1")
    async with client:
        with pytest.raises(RuntimeError, match=r"^the client is already started$"):
            await client.__aenter__()
    with pytest.raises(RuntimeError, match=r"^the client is closed; make another one$"):
        await client.__aenter__()


async def test_start_does_not_wait_for_a_hanging_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After three seconds the client starts with the routes of its snapshot; servers are used once they are known."""
    snapshot, pipe = tmp_path / "routes.json", tmp_path / "servers"
    os.mkfifo(pipe)
    async with route_scene(tmp_path, snapshot_file=snapshot) as scene:
        await scene.client.route("orders")
        await scene.client.__aexit__(None, None, None)
        settings = client_settings(f"file:{pipe}", snapshot_file=snapshot)
        client = RouteClient(settings, clock=scene.clock, random_unit=lambda: 0.5)
        starting = asyncio.create_task(client.__aenter__())
        with await opened_by_reader(pipe) as silent:
            await passing(scene.clock, starting.done, at_most=3.0)
            assert f"name servers from file:{pipe}: no answer yet" in caplog.messages
            assert (await client.route("orders")).source == "disk"
            with pytest.raises(RouteUnavailableError, match="no NameServer is known"):
                await client.route("bills")
            silent.write(scene.server.where)
        await until(lambda: client.chosen_server)
        assert (await client.route("bills")).source == "pull"
        await client.__aexit__(None, None, None)


async def test_unreadable_list_of_servers_is_named(tmp_path: Path) -> None:
    """Without a server the error of a request says why the list could not be read."""
    missing = tmp_path / "missing"
    async with RouteClient(client_settings(f"file:{missing}")) as client:
        with pytest.raises(RouteUnavailableError) as raised:
            await client.route("orders")

    reason = f"name servers from file:{missing}: [Errno 2] No such file or directory: '{missing}'"
    assert str(raised.value) == f"topic orders: no NameServer is known: {reason}"


async def test_new_list_is_polled_at_once_during_an_outage(tmp_path: Path) -> None:
    """Routes become fresh as soon as the list has a live server, however long the pause between polls has become.

    If the servers of a new list do not answer at once, the next poll follows soon.
    """
    source = tmp_path / "servers"
    async with route_scene(tmp_path) as scene:
        source.write_text(scene.proxy.address)
        async with route_client(scene.clock, f"file:{source}", poll_seconds=600.0) as client:
            await client.route("orders")
            scene.proxy.cut()
            for polls, pause in enumerate((300.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)):
                await scene.clock.advance(pause)
                await until(lambda: client.status().unanswered > polls)  # noqa: B023 - called in this iteration
            unanswered = client.status().unanswered
            source.write_text("127.0.0.1:1")
            await passing(scene.clock, lambda: client.status().unanswered > unanswered, at_most=16.0)
            assert await passing(scene.clock, lambda: client.status().unanswered > unanswered + 1) <= 2.0
            source.write_text(scene.server.where)

            await scene.clock.advance(15.0)
            await until(lambda: client.status().is_ready)


async def test_churn_leaves_nothing_behind(tmp_path: Path) -> None:
    """400 server restarts and route changes leave no more objects than 100 do."""
    async with route_scene(tmp_path, warm_up_seconds=0.0) as scene:
        await scene.client.route("orders")
        counts = []
        for number in range(1, 401):
            scene.proxy.cut()
            await until(lambda: not scene.client._session.socket_descriptors())
            await scene.proxy.heal()
            config = topic_config("orders", write=number)
            await register(scene.peers[0], BROKER_A, topics=(config,), counter=number + 1)
            assert await scene.client.refresh()
            if number in (100, 400):
                # expire the timeouts of answered requests
                await scene.clock.advance(5.0)
                counts.append(objects())

        known = scene.client.cached("orders")
        assert known is not None
        assert known.data.queue_datas[0].write_queue_nums == 400
        # 300 more changes; up to 256 unused objects may stay interned
        assert max((counts[1] - counts[0]).values(), default=0) < 100


async def test_max_stale_limits_the_age_of_a_route(tmp_path: Path) -> None:
    """`max_stale` forces a request for an older route; without it a cached route is served for ever."""
    async with route_scene(tmp_path, poll_seconds=80_000.0) as scene:
        client = scene.client
        await client.route("orders")
        scene.clock.stall(10.0)
        assert (await client.route("orders", max_stale=10.0)).age == 10.0
        assert scene.request_count() == 1
        assert (await client.route("orders", max_stale=9.9)).age == 0.0
        assert scene.request_count() == 2

        scene.proxy.cut()
        scene.clock.stall(86_400.0)
        assert (await client.route("orders")).age == 86_400.0
        assert len(await client.subscribe_queues("orders")) == 8
        assert (await client.select_queue("orders")).broker_name == "broker-a"
        with pytest.raises(RouteUnavailableError):
            await client.route("orders", max_stale=5.0)


async def test_route_that_a_restarted_server_cannot_confirm_is_confirmed_by_another(tmp_path: Path) -> None:
    """The chosen server has restarted and lacks a broker of the route; a call with `max_stale` asks the next server."""
    brokers = [BROKER_A, BROKER_B]
    async with route_scene(tmp_path, brokers, brokers, poll_seconds=80_000.0) as scene:
        await scene.client.route("orders")
        await scene.restarted(BROKER_A)
        scene.clock.stall(5.0)

        route = await scene.client.route("orders", max_stale=1.0)
        assert (route.age, sorted(route.brokers)) == (0.0, ["broker-a", "broker-b"])
        assert scene.client.chosen_server == scene.proxy.address


async def test_unknown_topic_is_a_positive_answer(tmp_path: Path) -> None:
    """Only a server past its warm-up denies a topic; a denied topic is not refreshed."""
    async with route_scene(tmp_path) as scene:
        for asking in (scene.client.route("none"), scene.client.select_queue("none")):
            with pytest.raises(TopicNotFoundError, match="does not exist, according to"):
                await asking
        assert (scene.client.cached("none"), scene.client.is_in_use("none")) == (None, False)

        await scene.restarted(BROKER_A)
        with pytest.raises(RouteUnavailableError, match="has just started or lost its brokers, and may not know all"):
            await scene.client.route("none")
        assert (await scene.client.route("orders")).topic == "orders"


async def test_removed_topic_is_marked_and_still_served(tmp_path: Path) -> None:
    """`confirmed_absent_since` lets the caller decide about a removed topic."""
    async with route_scene(tmp_path) as scene:
        client = scene.client
        await client.route("orders")
        await unregister(scene.peers[0], BROKER_A)
        went = scene.clock.monotonic()
        for _ in range(2):
            assert await client.refresh()
            scene.clock.stall(5.0)

        known = await client.route("orders")
        assert (known.confirmed_absent_since, known.age, list(known.brokers)) == (went, 5.0, ["broker-a"])
        assert (await client.select_queue("orders")).broker_name == "broker-a"
        assert client.master_of("broker-a") == "10.0.0.1:10911"

        await register(scene.peers[0], BROKER_A)
        assert await client.refresh()
        assert (await client.route("orders")).confirmed_absent_since is None


async def test_unknown_topic_uses_the_default_topics_brokers(tmp_path: Path) -> None:
    """TestUpdateTopicRouteInfoFromNameServer: TBW102 has 8 queues, a new topic gets 4 until a broker has created it."""
    async with route_scene(tmp_path, [], poll_seconds=1000.0, watch=True) as scene:
        peer = await registered(scene.server, BROKER_A, topics=(topic_config("TBW102", perm=7), "bills"))

        assert (await scene.client.select_queue("new")).broker_name == "broker-a"
        assert (await scene.client.publish_info("new")).count == 4
        await passing(scene.clock, lambda: len(scene.server.namesrv.routes.watchers) == 1)

        await register(peer, BROKER_A, topics=("TBW102", "bills", topic_config("new", write=6)), counter=2)
        await passing(scene.clock, lambda: scene.client.cached("new") is not None, at_most=1.0)
        assert (await scene.client.publish_info("new")).count == 6


@pytest.mark.parametrize(
    ("ids", "wanted", "this_one", "any_one"),
    [
        # MQClientInstanceTest.testFindBrokerAddressInSubscribe and Go's TestFindBrokerAddressInSubscribe
        ((0, 1, 2), 0, 0, 0),
        ((0, 1, 2), 1, 1, 1),
        ((0, 1, 2), 4, None, 0),
        # ids shift by one after an election: 1 is gone, and 2 replaces it
        ((0, 2, 3), 1, 2, 2),
        # …WithOneBroker: only the master exists
        ((0,), 1, None, 0),
        # a slave replaces a missing master for readers only
        ((1, 2), 0, None, 1),
    ],
)
async def test_find_broker_by_id(
    ids: tuple[int, ...], wanted: int, this_one: int | None, any_one: int, tmp_path: Path
) -> None:
    """Section 3.1: the id, else the next one, else any, unless only this one is wanted."""
    instances = {broker_id: Broker("broker-a", broker_id, f"10.0.{broker_id}.1:10911") for broker_id in ids}
    async with route_scene(tmp_path, []) as scene:
        await (registered if 0 in ids else only_slaves)(scene.server, *instances.values())
        await scene.client.route("orders")

        for only_this, expected in ((True, this_one), (False, any_one)):
            found = scene.client.find_broker("broker-a", wanted, only_this=only_this)
            assert found == (None if expected is None else BrokerAddress(*instances[expected][:3]))
            assert found is None or (expected != 0) == found.is_slave
        assert scene.client.master_of("broker-a") == ("10.0.0.1:10911" if 0 in ids else None)
        assert scene.client.find_broker("stranger", 0) is None


async def test_a_queue_is_its_own_brokers_unless_its_topic_is_static() -> None:
    """ClientMetadataTest: a queue belongs to its broker; a mapped static queue belongs to its current broker."""
    async with ApacheServer() as apache:
        apache.routes["plain"] = apache_route("broker-a")
        apache.routes["static"] = apache_route("broker-a")[:-1] + (
            b',"topicQueueMappingByBroker":{"broker-a":{"topic":"static","bname":"broker-a","scope":"__global__",'
            b'"epoch":1,"totalQueues":2,"currIdMap":{0:0}}}}'
        )
        async with route_client(FakeClock(), apache.address, protocol="rocketmq") as client:
            plain = await client.select_queue("plain")
            await client.route("static")

            logical = [MessageQueue("static", "__syslo__global__", number) for number in range(2)]
            assert await client.subscribe_queues("static") == logical
            queues = (plain, *logical, MessageQueue("unknown", "broker-z", 3))
            assert list(map(client.broker_of, queues)) == ["broker-a", "broker-a", "__syslo__none__", "broker-z"]


@pytest.mark.parametrize("is_called_again", [False, True])
async def test_close_goes_on_when_its_caller_is_cancelled(tmp_path: Path, *, is_called_again: bool) -> None:
    """No connection or task is left, and the snapshot is written all the same; a second caller waits for that."""
    snapshot = tmp_path / "routes.json"
    options: dict[str, Any] = {"snapshot_file": snapshot, "watch": True, "fault_tolerance": True, "probe": "connect"}
    async with route_scene(tmp_path, **options) as scene:
        await scene.client.route("orders")
        await scene.watched()
        assert len(scene.client._session.socket_descriptors()) == 1
        tasks = set(scene.client._lifecycle._tasks)
        closing = asyncio.create_task(scene.client.__aexit__(None, None, None))
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()

        if is_called_again:
            await scene.client.__aexit__(None, None, None)
        else:
            await until(lambda: snapshot.exists() and not scene.client._session.socket_descriptors())
        assert (snapshot.exists(), scene.client._session.socket_descriptors()) == (True, [])
        assert all(task.done() for task in tasks)
        await until(lambda: len(scene.server.namesrv.slots.connections) == 1)


async def test_hanging_disk_does_not_hang_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client waits two seconds for its snapshot, logs a warning, and closes its connections."""
    released = threading.Event()
    fsync = os.fsync

    def hanging(descriptor: int) -> None:
        if ".routes.json." in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            released.wait(GUARD_SECONDS)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", hanging)
    async with route_scene(tmp_path, snapshot_file=tmp_path / "routes.json") as scene:
        await scene.client.route("orders")
        closing = asyncio.create_task(scene.client.__aexit__(None, None, None))
        try:
            assert await passing(scene.clock, closing.done) == pytest.approx(2.0, abs=0.2)
        finally:
            released.set()
        assert "route snapshot not written within 2 s" in caplog.text
        assert scene.client._session.socket_descriptors() == []


async def hanging_start(directory: Path) -> tuple[RouteClient, asyncio.Task[RouteClient], threading.Event]:
    """A client whose start waits for the snapshot's file, the task of its start, and the event that ends the wait."""
    executor, released = ThreadPoolExecutor(1), threading.Event()
    asyncio.get_running_loop().set_default_executor(executor)
    executor.submit(released.wait)
    files = {"snapshot_file": directory / "routes.json", "heartbeat_log_dir": directory / "log"}
    client = RouteClient(client_settings("127.0.0.1:1", **files), clock=FakeClock())
    starting = asyncio.create_task(client.__aenter__())
    await settle()
    return client, starting, released


async def test_client_whose_start_was_cancelled_is_closed(tmp_path: Path) -> None:
    """A start waits for the snapshot's file, which may hang."""
    client, starting, released = await hanging_start(tmp_path)
    starting.cancel()
    await asyncio.wait([starting])
    released.set()
    assert (starting.cancelled(), client.status().is_started) == (True, False)


async def test_client_that_is_closed_during_its_start_begins_no_tasks(tmp_path: Path) -> None:
    """No later call would end them."""
    client, starting, released = await hanging_start(tmp_path)
    await client.__aexit__(None, None, None)
    released.set()
    with pytest.raises(RuntimeError, match=r"^the client is closed; make another one$"):
        await starting
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_crash_of_a_task_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A client must never stop polling silently."""
    async with route_scene(tmp_path) as scene:
        await scene.client.route("orders")
        scene.client._keeper.topics._changed = None  # type: ignore[assignment]  # the bug
        scene.client._cache.forget("orders")

        await passing(scene.clock, lambda: "a route client task crashed" in caplog.text)
