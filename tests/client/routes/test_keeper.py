"""Routes in use stay fresh, whatever happens to the servers."""

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import pytest

from namesrv_client import RouteUnavailableError, TopicNotFoundError
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import FakeClock, passing, settle, until
from tests.support.route_clients import (
    BROKER_A,
    BROKER_B,
    INFO,
    PULL,
    RouteScene,
    asked,
    broker_names,
    register,
    registered,
    route_client,
    route_scene,
    unregister,
)
from tests.support.scripted_server import ScriptedServer

# with the watch alone to bring news
WATCH: dict[str, Any] = {"watch": True, "poll_seconds": 1000.0}


async def pulled(scene: RouteScene, count: int) -> None:
    """Return when the first server has answered so many pulls."""
    await until(lambda: scene.asked() == count)


@pytest.mark.parametrize(("unit", "first", "then"), [(0.1, 3.0, 27.6), (0.5, 15.0, 30.0), (0.9, 27.0, 32.4)])
async def test_polls_come_every_30_seconds_more_or_less(tmp_path: Path, unit: float, first: float, then: float) -> None:
    """The first after a random part of 30 s, the others 10 % earlier or later: clients that start together part."""
    async with route_scene(tmp_path, options={"random_unit": lambda: unit}) as scene:
        await scene.client.route("orders")
        for count, wait in enumerate((first, then, then), start=1):
            await scene.clock.advance(wait - 0.01)
            assert count == scene.asked()
            await scene.clock.advance(0.01)
            await pulled(scene, count + 1)


async def test_a_poll_is_one_question_for_all_topics_in_use(tmp_path: Path) -> None:
    """It confirms what did not change and brings what did; a topic that was forgotten is not asked about any more."""
    async with route_scene(tmp_path) as scene:
        await scene.client.route("orders")
        await scene.client.route("bills")
        await scene.clock.advance(15.0)
        await pulled(scene, 3)
        await settle()
        assert (scene.age("orders"), scene.age("bills")) == (0.0, 0.0)

        scene.client.forget("bills")
        await registered(scene.server, BROKER_B)
        assert scene.names() == ["broker-a"]
        await scene.clock.advance(30.0)
        await scene.shows("broker-a", "broker-b")
        assert (scene.asked(), scene.client.cached("bills")) == (4, None)
        assert (scene.client.is_in_use("bills"), scene.client.is_in_use("orders")) == (False, True)


async def test_without_topics_nobody_is_asked(tmp_path: Path) -> None:
    """Not even who it is."""
    async with route_scene(tmp_path, watch=True) as scene:
        await scene.clock.advance(100.0)

        assert (scene.asked(PULL), scene.asked(INFO)) == (0, 0)
        assert await scene.client.refresh()
        assert not scene.proxy.accepted


async def test_a_poll_that_fails_is_followed_by_the_next(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The routes stay meanwhile, and grow older; a failed send that finds nobody to ask is no error either."""
    caplog.set_level(logging.DEBUG, "namesrv_client")
    async with route_scene(tmp_path) as scene:
        await scene.client.route("orders")
        scene.proxy.cut()
        scene.client.report("broker-a", 0.1, failed=True)
        await scene.clock.advance(45.0)
        assert not await scene.client.refresh()
        assert scene.age() >= 45.0
        assert scene.proxy.address in scene.client.server_errors
        assert "routes not refreshed: " in caplog.text

        await scene.proxy.heal()
        await register(scene.peers[0], BROKER_B)
        await scene.clock.advance(1.0)
        scene.client.report("broker-a", 0.1, failed=True)
        await scene.shows("broker-a", "broker-b")
        await unregister(scene.peers[0], BROKER_B)
        await scene.clock.advance(30.0)
        await scene.shows("broker-a")


async def test_all_who_ask_at_the_same_time_share_a_question(tmp_path: Path) -> None:
    """As a large producer asks when it starts; each caller gets its own answer, also if it is an error."""
    async with route_scene(tmp_path) as scene:
        topics = tuple(f"topic-{number}" for number in range(200))
        await registered(scene.server, BROKER_B, topics=topics)

        wanted = [*topics, *["orders"] * 100, *["none"] * 100]
        found = await asyncio.gather(*(scene.client.route(topic) for topic in wanted), return_exceptions=True)

        assert scene.asked() == 1
        routes = [route for route in found if not isinstance(route, BaseException)]
        assert [(topic, "pull") for topic in wanted[:300]] == [(route.topic, route.source) for route in routes]
        assert {TopicNotFoundError} == {type(error) for error in found[300:]}
        with pytest.raises(TopicNotFoundError, match=r"topic none does not exist, according to 127\.0\.0\.1:"):
            await scene.client.route("none")
        assert scene.asked() == 2


async def test_a_topic_that_is_not_answered_does_not_hold_up_those_that_are() -> None:
    """Apache's server says nothing about one of three; the others' callers do not wait for that."""
    clock = FakeClock()
    async with ApacheServer() as apache:
        apache.routes |= {"t": apache_route("broker-a"), "u": apache_route("broker-a"), "silent": None}
        async with route_client(clock, apache.address, protocol="rocketmq") as client:
            silent, *others = [asyncio.ensure_future(client.route(topic)) for topic in ("silent", "t", "u")]
            await asyncio.wait(others)
            assert [task.result().topic for task in others] == ["t", "u"]
            assert not silent.done()

            await passing(clock, silent.done)
            with pytest.raises(RouteUnavailableError, match="topic silent"):
                silent.result()


async def test_whoever_gives_up_leaves_the_answer_to_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One of two callers has a shorter deadline; a failure that nobody waits for is not asyncio's to report."""
    async with route_scene(tmp_path) as scene:
        asking = [asyncio.ensure_future(scene.client.route(topic)) for topic in ("orders", "orders", "none")]
        await asyncio.sleep(0)
        asking[0].cancel()
        asking[2].cancel()

        assert (await asking[1]).topic == "orders"
        assert asking[0].cancelled()
        await until(lambda: not scene.client._keeper._fetches)
        asking.clear()
        gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_the_end_of_the_client_ends_its_questions() -> None:
    """Whoever waits gets an error that says so, and is not cancelled."""
    async with ScriptedServer() as hole:
        clock = FakeClock()
        async with route_client(clock, hole.address) as client:
            asking = asyncio.ensure_future(client.route("orders"))
            await hole.accept()
            ended = clock.monotonic()

        # it is not waited for
        assert clock.monotonic() - ended < 1.0
        for late in (asking, client.route("orders")):
            with pytest.raises(RouteUnavailableError, match="topic orders: the client is closed"):
                await late
        client.report("broker-a", 1.0, failed=True)
        assert hole.connections == 1


@pytest.mark.parametrize("is_warm", [False, True])
async def test_another_server_shrinks_a_route_when_it_is_warm(tmp_path: Path, *, is_warm: bool) -> None:
    """The chosen one died; what the next lacks is gone if that one has run for long, and else may be on its way."""
    async with route_scene(tmp_path, [BROKER_A, BROKER_B], [BROKER_B]) as scene:
        await scene.client.route("orders")
        if is_warm:
            scene.proxy.cut()
        else:
            await scene.restarted(BROKER_B)

        assert await scene.client.refresh()
        assert (["broker-b"] if is_warm else ["broker-a", "broker-b"]) == scene.names()

        scene.clock.stall(45.0)
        assert await scene.client.refresh()
        assert scene.names() == ["broker-b"]


async def test_a_watch_tells_of_changes_at_once_and_goes_on(tmp_path: Path) -> None:
    """No clock has to move; after an answer, or when the wait is over, which confirms the route, it is asked again."""
    async with route_scene(tmp_path, **WATCH) as scene:
        await scene.client.route("orders")
        for change in (register, unregister, register):
            await scene.watched()
            await change(scene.peers[0], BROKER_B)
            await scene.shows("broker-a", *["broker-b"] * (change is register))
        known = scene.client.cached("orders")
        assert known is not None
        assert known.source == "watch"

        await scene.watched()
        before = scene.asked()
        await scene.clock.advance(25.0)
        await pulled(scene, before + 1)
        await scene.watched()
        assert scene.age() == 0.0
        # the poll is no reason to ask anew
        assert await scene.client.refresh()
        await scene.clock.advance(1.0)
        assert (before + 2, 1) == (scene.asked(), len(scene.server.namesrv.watchers))


async def test_topics_that_come_into_use_join_the_watch(tmp_path: Path) -> None:
    """Together, if they come together: the server goes on holding the questions before for their 25 s."""
    async with route_scene(tmp_path, **WATCH) as scene:
        peer, topics = await scene.server.connect(), tuple(f"topic-{number}" for number in range(50))
        await register(peer, BROKER_B, topics=topics)
        await scene.client.route("orders")
        await scene.watched()

        for topic in topics:
            await scene.client.route(topic)
        await passing(scene.clock, lambda: len(scene.server.namesrv.watchers) == 2)
        await register(peer, BROKER_A._replace(name="broker-c", addr="10.0.0.3:1"), topics=topics)

        await until(lambda: all(scene.names(topic) == ["broker-b", "broker-c"] for topic in topics))


@pytest.mark.parametrize("is_overtaken", [False, True])
async def test_a_dead_connection_under_a_watch_is_noticed_within_five_seconds(
    tmp_path: Path, *, is_overtaken: bool
) -> None:
    """The watch itself would notice after 27 s, also when a call has chosen the other server. Then that is watched."""
    async with route_scene(tmp_path, [BROKER_A], [BROKER_A], **WATCH) as scene:
        await scene.client.route("orders")
        await scene.watched()
        await scene.clock.advance(2.0)

        scene.proxy.stall()
        if is_overtaken:
            refreshing = asyncio.ensure_future(scene.client.refresh())
            await passing(scene.clock, refreshing.done, at_most=1.0)

        assert await passing(scene.clock, lambda: scene.client.chosen_server != scene.proxy.address) <= 5.0
        await passing(scene.clock, lambda: len(scene.servers[1].namesrv.watchers) == 1, at_most=5.0)
        await registered(scene.servers[1], BROKER_B)
        await scene.shows("broker-a", "broker-b")


async def test_a_server_that_restarted_behind_a_proxy_is_watched_anew(tmp_path: Path) -> None:
    """The question that the first one held will never be answered, and our connection is fine."""
    async with route_scene(tmp_path, [BROKER_A], [BROKER_A]) as scene:
        first, second = scene.servers
        async with route_client(scene.clock, scene.proxy.address, **WATCH) as client:
            await client.route("orders")
            await scene.watched(first)
            before = len(second.namesrv.connections)

            scene.proxy.switch(second.address)
            await until(lambda: len(second.namesrv.connections) == before + 1)

            assert await passing(scene.clock, lambda: len(second.namesrv.watchers) == 1) <= 5.0


async def test_a_server_that_does_not_hold_the_watch_is_not_asked_all_the_time(tmp_path: Path) -> None:
    """One that drains answers at once; a client that asked again at once would keep both busy until it is gone."""
    async with route_scene(tmp_path, **WATCH) as scene:
        await scene.client.route("orders")
        await scene.watched()
        scene.server.namesrv.is_draining = True
        before = scene.asked()

        await scene.clock.advance(35.0)
        await settle()

        assert before + 9 <= scene.asked() <= before + 15
        scene.server.namesrv.is_draining = False


async def test_what_nobody_believed_is_left_to_the_poll(tmp_path: Path) -> None:
    """A watch would be told at once what a young server lacks, again and again."""
    async with route_scene(tmp_path, [BROKER_A, BROKER_B], watch=True) as scene:
        await scene.client.route("orders")
        await scene.watched()
        young, peer = await scene.restarted(BROKER_A)
        await passing(scene.clock, lambda: scene.client._cache.unconfirmed == {"orders"})
        before = asked(young, PULL)
        await scene.clock.advance(10.0)
        assert before >= asked(young, PULL)
        assert scene.names() == ["broker-a", "broker-b"]

        await register(peer, BROKER_B)
        await passing(scene.clock, lambda: len(young.namesrv.watchers) == 1, at_most=35.0)
        assert (set(), 1) == (scene.client._cache.unconfirmed, len(scene.client.server_errors))


async def test_with_an_apache_server_the_poll_does_the_work(caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to watch, and nothing to ping; it is asked now and then whether it is native by now."""
    clock = FakeClock()
    caplog.set_level(logging.DEBUG, "namesrv_client")
    async with ApacheServer() as apache:
        apache.routes["orders"] = apache_route("broker-a")
        async with route_client(clock, apache.address, protocol="auto", watch=True) as client:
            await client.route("orders")
            apache.routes["orders"] = apache_route("broker-a", "broker-b")
            connections = apache.connections

            await passing(clock, lambda: broker_names(client) == ["broker-a", "broker-b"], at_most=16.0)
            await clock.advance(60.0)

            assert (connections, 2) == (apache.connections, apache.refused)
            assert {"orders"} == set(apache.topics_asked)
            assert 60 <= caplog.text.count("does not support watches") <= 150
            assert f"connected to {apache.address}, which does not support watches" in caplog.messages


async def test_a_failed_send_asks_about_the_brokers_topics(tmp_path: Path) -> None:
    """At once, in one question, and only about those in use that it has; a success asks nobody, nor does a stranger."""
    async with route_scene(tmp_path) as scene:
        peer = await scene.server.connect()
        await register(peer, BROKER_B, topics=("orders", "refunds"))
        for topic in ("orders", "bills", "refunds"):
            await scene.client.route(topic)
        await unregister(peer, BROKER_B)
        scene.client.report("broker-b", 0.1)
        scene.client.report("stranger", 0.1, failed=True)
        await scene.clock.advance(5.0)
        assert scene.asked() == 3

        for broker in ("broker-b", "stranger"):
            scene.client.report(broker, 0.1, failed=True)

        await scene.shows("broker-a")
        assert scene.asked() == 4
        assert (scene.age("refunds"), scene.age("bills")) == (0.0, 5.0)


async def test_failed_sends_ask_once_a_second_at_most(tmp_path: Path) -> None:
    """A thousand failures of a producer in a hurry are one question now, and one when the second is over."""
    async with route_scene(tmp_path, poll_seconds=1000.0) as scene:
        await scene.client.route("orders")
        for _ in range(1_000):
            scene.client.report("broker-a", 0.1, failed=True)
            await asyncio.sleep(0)
        await pulled(scene, 2)
        for _ in range(1_000):
            scene.client.report("broker-a", 0.1, failed=True)
        await scene.clock.advance(0.99)
        assert scene.asked() == 2
        await scene.clock.advance(0.01)
        await pulled(scene, 3)

        await scene.clock.advance(10.0)
        assert scene.asked() == 3
