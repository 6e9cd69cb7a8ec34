"""Routes in use stay current through polls, watches and failed sends."""

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import pytest

from namesrv_client import Route, RouteUnavailableError, TopicNotFoundError
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import FakeClock, passing, settle, until
from tests.support.in_process import namesrv_in_process
from tests.support.route_clients import (
    BROKER_A,
    BROKER_B,
    INFO,
    PULL,
    RouteScene,
    broker_names,
    register,
    registered,
    request_count,
    route_client,
    route_scene,
    topic_route,
    unregister,
)
from tests.support.scripted_server import ScriptedServer
from tests.support.tcp_proxy import TcpProxy

# settings in which only the watch brings changes
WATCH: dict[str, Any] = {"watch": True, "poll_seconds": 1000.0}
# access file; the placeholder is for the permission to read routes
ACCOUNT = '[accounts.clients]\nnetworks = ["127.0.0.0/8"]\nmay = ["broker-control", %s]\n'


async def pulled(scene: RouteScene, count: int) -> None:
    """Return when the first server has answered `count` pulls."""
    await until(lambda: scene.request_count() == count)


@pytest.mark.parametrize(("unit", "first", "then"), [(0.1, 3.0, 29.7), (0.5, 15.0, 28.5), (0.9, 27.0, 27.3)])
async def test_polls_have_jitter(tmp_path: Path, unit: float, first: float, then: float) -> None:
    """The first poll comes after a random part of 30 s, and the next ones come after 27 to 30 s."""
    async with route_scene(tmp_path, options={"random_unit": lambda: unit}) as scene:
        await scene.client.route("orders")
        for count, wait in enumerate((first, then, then), start=1):
            await scene.clock.advance(wait - 0.01)
            assert count == scene.request_count()
            await scene.clock.advance(0.01)
            await pulled(scene, count + 1)


async def test_poll_is_one_request_for_all_topics_in_use(tmp_path: Path) -> None:
    """A poll confirms unchanged routes and updates changed ones; forgotten topics are not polled."""
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
        assert (scene.request_count(), scene.client.cached("bills")) == (4, None)
        assert (scene.client.is_in_use("bills"), scene.client.is_in_use("orders")) == (False, True)


# 8,500 names of 765 bytes, which one request cannot name
LONG_NAMES = [f"{number:04}{'队' * 251}" for number in range(8_500)]


async def test_more_topics_than_one_request_can_name_are_polled(tmp_path: Path) -> None:
    """A poll takes two requests for the changes since the last poll, and confirms all topics at once."""
    async with route_scene(tmp_path) as scene:
        for topic in ("orders", *LONG_NAMES):
            scene.client._keeper.use(topic)
        assert await scene.client.refresh()
        requests, revision = scene.request_count(), scene.client._cache.point.revision
        await registered(scene.server, BROKER_B)
        await scene.clock.advance(1.0)

        assert await scene.client.refresh()
        assert (scene.request_count() - requests, scene.names()) == (2, ["broker-a", "broker-b"])
        assert scene.age() == 0.0
        # the revision has moved: the next poll asks for the changes since this one
        assert scene.client._cache.point.revision > revision


async def test_more_topics_than_one_request_can_name_are_not_watched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client logs a warning once, and sends nothing between the polls until enough topics are forgotten."""
    async with route_scene(tmp_path, **WATCH) as scene:
        for topic in LONG_NAMES:
            scene.client._keeper.use(topic)
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


async def test_no_request_without_topics(tmp_path: Path) -> None:
    """Without topics in use not even SERVER_INFO is sent."""
    async with route_scene(tmp_path, watch=True) as scene:
        await scene.clock.advance(100.0)

        assert (scene.request_count(PULL), scene.request_count(INFO)) == (0, 0)
        assert await scene.client.refresh()
        assert not scene.proxy.accepted


async def test_failed_poll_is_followed_by_the_next(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Routes stay and age during an outage; a failed send without a reachable server is not an error."""
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


async def test_failed_poll_is_repeated_soon(tmp_path: Path) -> None:
    """The pauses grow from half a second to half the interval; then a server is back, and the route is confirmed."""
    async with route_scene(tmp_path) as scene:
        await scene.client.route("orders")
        scene.proxy.cut()
        failed_at: list[float] = []
        for quarters in range(1, 4 * 60):
            await scene.clock.advance(0.25)
            if scene.client.status().unanswered > len(failed_at):
                failed_at.append(quarters / 4)
        assert failed_at == [15.0, 15.5, 16.5, 18.5, 22.5, 30.5, 45.5]

        await scene.proxy.heal()
        await scene.clock.advance(1.0)
        await until(lambda: scene.age() < 1.0)
        await scene.clock.advance(27.0)
        assert scene.request_count() == 2


async def test_concurrent_calls_share_a_request(tmp_path: Path) -> None:
    """Calls for 200 topics become one request, and each caller gets its own result or error."""
    async with route_scene(tmp_path) as scene:
        topics = tuple(f"topic-{number}" for number in range(200))
        await registered(scene.server, BROKER_B, topics=topics)

        wanted = [*topics, *["orders"] * 100, *["none"] * 100]
        found = await asyncio.gather(*(scene.client.route(topic) for topic in wanted), return_exceptions=True)

        assert scene.request_count() == 1
        routes = [route for route in found if not isinstance(route, BaseException)]
        assert [(topic, "pull") for topic in wanted[:300]] == [(route.topic, route.source) for route in routes]
        assert {type(error) for error in found[300:]} == {TopicNotFoundError}
        with pytest.raises(TopicNotFoundError, match=r"topic none does not exist, according to 127\.0\.0\.1:"):
            await scene.client.route("none")
        assert scene.request_count() == 2


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        # Half of a surrogate pair, as Python reads an invalid byte of a file name or argument, has no UTF-8.
        ("bad\udcff", r"topic 'bad\udcff' is not valid Unicode: surrogates not allowed"),
        ("", "topic name of 0 characters: must have 1 to 390"),
        ("x" * 391, "topic name of 391 characters: must have 1 to 390"),
    ],
    ids=["surrogate", "empty", "long"],
)
async def test_name_that_cannot_be_sent_does_not_affect_other_topics(
    tmp_path: Path, protocol: str, name: str, problem: str
) -> None:
    """An invalid name is refused before it becomes part of the request for all topics of the moment."""
    async with route_scene(tmp_path, protocol=protocol) as scene:
        found, error = await asyncio.gather(
            scene.client.route("orders"), scene.client.route(name), return_exceptions=True
        )

        assert (type(error), str(error)) == (ValueError, problem)
        assert isinstance(found, Route)


async def test_unanswered_topic_does_not_delay_others() -> None:
    """An Apache server answers two of three topics; callers of those two return at once."""
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


async def test_cancelled_caller_does_not_cancel_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One of two callers is cancelled; a failure without a waiting caller is not reported by asyncio."""
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


async def test_closing_the_client_fails_pending_calls() -> None:
    """Pending callers get an error instead of a cancellation."""
    async with ScriptedServer() as hole:
        clock = FakeClock()
        async with route_client(clock, hole.address) as client:
            asking = asyncio.ensure_future(client.route("orders"))
            await hole.accept()
            ended = clock.monotonic()

        # closing does not wait for the pending request
        assert clock.monotonic() - ended < 1.0
        for late in (asking, client.route("orders")):
            with pytest.raises(RouteUnavailableError, match="topic orders: the client is closed"):
                await late
        client.report("broker-a", 1.0, failed=True)
        assert hole.connections == 1


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
        await pulled(scene, before + 1)
        await scene.watched()
        assert scene.age() == 0.0
        # a poll does not renew the watch
        assert await scene.client.refresh()
        await scene.clock.advance(1.0)
        assert (before + 2, 1) == (scene.request_count(), len(scene.server.namesrv.routes.watchers))


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


async def test_unconfirmed_routes_are_polled_not_watched(tmp_path: Path) -> None:
    """A watch would return the incomplete routes of a server in its warm-up again and again."""
    async with route_scene(tmp_path, [BROKER_A, BROKER_B], watch=True) as scene:
        await scene.client.route("orders")
        await scene.watched()
        young, peer = await scene.restarted(BROKER_A)
        await passing(scene.clock, lambda: scene.client._cache.unconfirmed == {"orders"})
        before = request_count(young, PULL)
        await scene.clock.advance(10.0)
        assert before >= request_count(young, PULL)
        assert scene.names() == ["broker-a", "broker-b"]

        await register(peer, BROKER_B)
        await passing(scene.clock, lambda: len(young.namesrv.routes.watchers) == 1, at_most=35.0)
        assert (set(), 1) == (scene.client._cache.unconfirmed, len(scene.client.server_errors))


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
        assert client._cache.unconfirmed == {"orders"}

        proxy.stall()
        refreshing = asyncio.ensure_future(client.refresh())
        waited = await passing(clock, refreshing.done, at_most=1.0)
        assert (client.chosen_server, client._cache.unconfirmed) == (second.where, {"bills"})
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

            assert (connections, 1) == (apache.connections, apache.refused)
            assert set(apache.topics_asked) == {"orders"}
            assert 60 <= caplog.text.count("does not support watches") <= 150
            assert f"connected to {apache.address}, which does not support watches" in caplog.messages


async def test_failed_send_refreshes_the_brokers_topics(tmp_path: Path) -> None:
    """One request covers the broker's topics in use; successful sends and unknown brokers cause none."""
    async with route_scene(tmp_path) as scene:
        peer = await scene.server.connect()
        await register(peer, BROKER_B, topics=("orders", "refunds"))
        for topic in ("orders", "bills", "refunds"):
            await scene.client.route(topic)
        await unregister(peer, BROKER_B)
        scene.client.report("broker-b", 0.1)
        scene.client.report("stranger", 0.1, failed=True)
        await scene.clock.advance(5.0)
        assert scene.request_count() == 3

        for broker in ("broker-b", "stranger"):
            scene.client.report(broker, 0.1, failed=True)

        await scene.shows("broker-a")
        assert scene.request_count() == 4
        assert (scene.age("refunds"), scene.age("bills")) == (0.0, 5.0)


async def test_failed_sends_cause_one_request_per_second(tmp_path: Path) -> None:
    """A thousand failed sends cause one request at once and one after a second."""
    async with route_scene(tmp_path, poll_seconds=1000.0) as scene:
        await scene.client.route("orders")
        for _ in range(1_000):
            scene.client.report("broker-a", 0.1, failed=True)
            await asyncio.sleep(0)
        await pulled(scene, 2)
        for _ in range(1_000):
            scene.client.report("broker-a", 0.1, failed=True)
        await scene.clock.advance(0.99)
        assert scene.request_count() == 2
        await scene.clock.advance(0.01)
        await pulled(scene, 3)

        await scene.clock.advance(10.0)
        assert scene.request_count() == 3


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


async def test_refused_topic_keeps_its_age(tmp_path: Path) -> None:
    """The route of a topic that the access file denies from now on is as old as its last confirmation."""
    access = tmp_path / "access.toml"
    access.write_text(ACCOUNT % '"route-read"')
    clock = FakeClock()
    async with namesrv_in_process(tmp_path / "data", clock=clock, access=str(access)) as server:
        await registered(server, BROKER_A)
        async with route_client(clock, server, poll_seconds=1000.0) as client:
            routes = [await client.route(topic) for topic in ("orders", "bills")]
            clock.stall(60.0)
            assert await client.refresh()
            access.write_text(ACCOUNT % '{ access = "route-read", topics = ["orders"] }')
            await server.reloader(f"--access={access}").reload()
            clock.stall(10.0)

            assert await client.refresh()
            known = [client.cached(route.topic) for route in routes]
            assert [route and route.age for route in known] == [0.0, 10.0]


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
