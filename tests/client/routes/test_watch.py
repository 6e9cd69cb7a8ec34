"""Watches report changes of the topics in use at once, and are renewed."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from namesrv_client import Route
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import FakeClock, passing, settle, until
from tests.support.in_process import namesrv_in_process
from tests.support.route_clients import (
    ACCOUNT,
    BROKER_A,
    BROKER_B,
    LONG_NAMES,
    PULL,
    broker_names,
    register,
    registered,
    request_count,
    route_client,
    route_scene,
    topic_route,
    unregister,
)
from tests.support.tcp_proxy import TcpProxy

# settings in which only the watch brings changes
WATCH: dict[str, Any] = {"watch": True, "poll_seconds": 1000.0}


async def test_more_topics_than_one_request_can_name_are_not_watched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client logs a warning once, and sends nothing between the polls until enough topics are forgotten."""
    async with route_scene(tmp_path, **WATCH) as scene:
        for topic in LONG_NAMES:
            scene.client._keeper.topics.use(topic)
        assert await scene.client.refresh()
        await settle()
        requests = scene.request_count()
        for _ in range(10):
            await scene.clock.advance(1.0)
            await settle()
        assert scene.request_count() == requests
        assert caplog.text.count("no watch of 8500 topics") == 1

        for topic in LONG_NAMES[1:]:
            scene.client.forget(topic)
        await scene.watched()


async def test_watch_reports_changes_at_once_and_continues(tmp_path: Path) -> None:
    """A watch needs no clock, and is renewed after each response; an expired wait confirms the route."""
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
        before = scene.request_count()
        await scene.clock.advance(25.0)
        await scene.pulled(before + 1)
        await scene.watched()
        assert scene.age() == 0.0
        # a poll does not renew the watch
        assert await scene.client.refresh()
        await scene.clock.advance(1.0)
        assert (scene.request_count(), len(scene.server.namesrv.routes.watchers)) == (before + 2, 1)


async def test_new_topics_are_watched_in_one_request(tmp_path: Path) -> None:
    """Topics that come into use together share one further watch; the earlier one runs on for its 25 s."""
    async with route_scene(tmp_path, **WATCH) as scene:
        peer, topics = await scene.server.connect(), tuple(f"topic-{number}" for number in range(50))
        await register(peer, BROKER_B, topics=topics)
        await scene.client.route("orders")
        await scene.watched()

        for topic in topics:
            await scene.client.route(topic)
        await passing(scene.clock, lambda: len(scene.server.namesrv.routes.watchers) == 2)
        await register(peer, BROKER_A._replace(name="broker-c", addr="10.0.0.3:1"), topics=topics)

        await until(lambda: all(scene.names(topic) == ["broker-b", "broker-c"] for topic in topics))


@pytest.mark.parametrize("is_overtaken", [False, True])
async def test_dead_connection_under_a_watch_is_noticed_within_5_s(tmp_path: Path, *, is_overtaken: bool) -> None:
    """Pings notice it before the watch's 27 s, and the next server is watched, also after a call has failed over."""
    async with route_scene(tmp_path, [BROKER_A], [BROKER_A], **WATCH) as scene:
        await scene.client.route("orders")
        await scene.watched()
        await scene.clock.advance(2.0)

        scene.proxy.stall()
        if is_overtaken:
            refreshing = asyncio.ensure_future(scene.client.refresh())
            await passing(scene.clock, refreshing.done, at_most=1.0)

        assert await passing(scene.clock, lambda: scene.client.chosen_server != scene.proxy.address) <= 5.0
        await passing(scene.clock, lambda: len(scene.servers[1].namesrv.routes.watchers) == 1, at_most=5.0)
        await registered(scene.servers[1], BROKER_B)
        await scene.shows("broker-a", "broker-b")


async def test_restart_behind_a_proxy_renews_the_watch(tmp_path: Path) -> None:
    """The pending watch of the first server is lost while the client's connection stays open."""
    async with route_scene(tmp_path, [BROKER_A], [BROKER_A]) as scene:
        first, second = scene.servers
        async with route_client(scene.clock, scene.proxy.address, **WATCH) as client:
            await client.route("orders")
            await scene.watched(first)
            before = len(second.namesrv.slots.connections)

            scene.proxy.switch(second.address)
            await until(lambda: len(second.namesrv.slots.connections) == before + 1)

            assert await passing(scene.clock, lambda: len(second.namesrv.routes.watchers) == 1) <= 5.0


async def test_watch_answered_at_once_is_renewed_slowly(tmp_path: Path) -> None:
    """A draining server answers watches at once; the client waits between them."""
    async with route_scene(tmp_path, **WATCH) as scene:
        await scene.client.route("orders")
        await scene.watched()
        scene.server.namesrv.boot.is_draining = True
        before = scene.request_count()

        await scene.clock.advance(35.0)
        await settle()

        assert before + 9 <= scene.request_count() <= before + 15
        scene.server.namesrv.boot.is_draining = False


async def test_routes_to_request_again_are_polled_not_watched(tmp_path: Path) -> None:
    """A watch would return the incomplete routes of a server in its warm-up again and again."""
    async with route_scene(tmp_path, [BROKER_A, BROKER_B], watch=True) as scene:
        await scene.client.route("orders")
        await scene.watched()
        young, peer = await scene.restarted(BROKER_A)
        await passing(scene.clock, lambda: scene.client._cache.to_request_again == {"orders"})
        before = request_count(young, PULL)
        await scene.clock.advance(10.0)
        assert before >= request_count(young, PULL)
        assert scene.names() == ["broker-a", "broker-b"]

        await register(peer, BROKER_B)
        await passing(scene.clock, lambda: len(young.namesrv.routes.watchers) == 1, at_most=35.0)
        assert (scene.client._cache.to_request_again, len(scene.client.server_errors)) == (set(), 1)


async def test_response_that_confirms_one_topic_and_rejects_another_renews_the_watch(tmp_path: Path) -> None:
    """The watch is renewed with the response, and not with the next ping or watch."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "1", clock=clock) as first,
        namesrv_in_process(tmp_path / "2", clock=clock) as second,
        TcpProxy(first.address) as proxy,
        route_client(clock, proxy.address, second, **WATCH) as client,
    ):
        for server, complete_topic in ((first, "bills"), (second, "orders")):
            await registered(server, BROKER_A)
            await registered(server, BROKER_B, topics=(complete_topic, "other"))
        for topic in ("orders", "bills"):
            client._cache.restore([Route(topic, topic_route("broker-a", "broker-b"), "disk", 0.0, None, clock)])
            await client.route(topic)
        await passing(clock, lambda: len(first.namesrv.routes.watchers) == 1, at_most=1.0)
        assert client._cache.to_request_again == {"orders"}

        proxy.stall()
        refreshing = asyncio.ensure_future(client.refresh())
        waited = await passing(clock, refreshing.done, at_most=1.0)
        assert (client.chosen_server, client._cache.to_request_again) == (second.where, {"bills"})
        # The next ping comes 3 s after the start.
        await passing(clock, lambda: len(second.namesrv.routes.watchers) == 1, at_most=1.5 - waited)


async def test_apache_server_is_polled(caplog: pytest.LogCaptureFixture) -> None:
    """An Apache server has no watches and no pings, and is retried natively now and then."""
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

            assert (apache.connections, apache.refused) == (connections, 1)
            assert set(apache.topics_asked) == {"orders"}
            assert 60 <= caplog.text.count("does not support watches") <= 150
            assert f"connected to {apache.address}, which does not support watches" in caplog.messages


async def test_watch_brings_no_forgotten_topic_back(tmp_path: Path) -> None:
    """A forgotten topic is requested when it is used again, although a watch has reported a change of it meanwhile."""
    async with route_scene(tmp_path, **WATCH) as scene:
        for topic in ("orders", "bills"):
            await scene.client.route(topic)
        await passing(scene.clock, lambda: len(scene.server.namesrv.routes.watchers) == 2)
        scene.client.forget("orders")

        for change, expected in ((register, ["broker-a", "broker-b"]), (unregister, ["broker-a"])):
            await change(scene.peers[0], BROKER_B)
            await scene.shows(*expected, topic="bills")
            assert scene.client.cached("orders") is None
            await scene.clock.advance(25.0)
            await scene.watched()

        assert list((await scene.client.route("orders")).brokers) == ["broker-a"]


async def test_topic_forgotten_during_a_poll_does_not_make_watches_spin(tmp_path: Path) -> None:
    """Watches that do not name every topic of the sync point would return the same change again and again."""
    async with route_scene(tmp_path, **WATCH) as scene:
        for topic in ("orders", "bills"):
            await scene.client.route(topic)
        await scene.watched()
        scene.client._cache.point.retain(())
        scene.proxy.stall()
        refreshing = asyncio.ensure_future(scene.client.refresh())
        await settle()
        scene.client.forget("orders")
        await scene.proxy.heal()
        assert await refreshing
        await scene.clock.advance(25.0)
        await scene.watched()
        before = scene.request_count()

        await register(scene.peers[0], BROKER_B)
        await scene.shows("broker-a", "broker-b", topic="bills")
        for _ in range(40):
            await settle()

        assert scene.request_count() == before + 1
        await scene.watched()


async def test_refused_topic_is_polled_not_watched(tmp_path: Path) -> None:
    """The access file denies one topic of the client for a while, and the other topic stays watched."""
    access = tmp_path / "access.toml"
    access.write_text(ACCOUNT % '"route-read"')
    clock = FakeClock()
    async with namesrv_in_process(tmp_path / "data", clock=clock, access=str(access)) as server:
        await registered(server, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, server, **WATCH) as client:
            for topic in ("orders", "bills"):
                await client.route(topic)
            access.write_text(ACCOUNT % '{ access = "route-read", topics = ["orders"] }')
            await server.reloader(f"--access={access}").reload()
            await clock.advance(30.0)
            await settle()
            before = request_count(server, PULL)
            for _ in range(20):
                await clock.advance(1.0)
                await settle()
            assert request_count(server, PULL) - before <= 2
            await registered(server, BROKER_B)
            await until(lambda: broker_names(client) == ["broker-a", "broker-b"])

            access.write_text(ACCOUNT % '"route-read"')
            await server.reloader(f"--access={access}").reload()
            assert await client.refresh()
            await passing(clock, lambda: [watch.topics for watch in client.status().watches] == [2])
