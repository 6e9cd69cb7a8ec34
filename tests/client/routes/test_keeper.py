"""Routes in use stay current through polls and failed sends."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.support.fake_clock import FakeClock, settle, until
from tests.support.in_process import namesrv_in_process
from tests.support.route_clients import (
    ACCOUNT,
    BROKER_A,
    BROKER_B,
    INFO,
    LONG_NAMES,
    PULL,
    register,
    registered,
    route_client,
    route_scene,
    unregister,
)


@pytest.mark.parametrize(("unit", "first", "then"), [(0.1, 3.0, 29.7), (0.5, 15.0, 28.5), (0.9, 27.0, 27.3)])
async def test_polls_have_jitter(tmp_path: Path, unit: float, first: float, then: float) -> None:
    """The first poll comes after a random part of 30 s, and the next ones come after 27 to 30 s."""
    async with route_scene(tmp_path, options={"random_unit": lambda: unit}) as scene:
        await scene.client.route("orders")
        for count, wait in enumerate((first, then, then), start=1):
            await scene.clock.advance(wait - 0.01)
            assert scene.request_count() == count
            await scene.clock.advance(0.01)
            await scene.pulled(count + 1)


async def test_poll_is_one_request_for_all_topics_in_use(tmp_path: Path) -> None:
    """A poll confirms unchanged routes and updates changed ones; forgotten topics are not polled."""
    async with route_scene(tmp_path) as scene:
        await scene.client.route("orders")
        await scene.client.route("bills")
        await scene.clock.advance(15.0)
        await scene.pulled(3)
        await settle()
        assert (scene.age("orders"), scene.age("bills")) == (0.0, 0.0)

        scene.client.forget("bills")
        await registered(scene.server, BROKER_B)
        assert scene.names() == ["broker-a"]
        await scene.clock.advance(30.0)
        await scene.shows("broker-a", "broker-b")
        assert (scene.request_count(), scene.client.cached("bills")) == (4, None)
        assert (scene.client.is_in_use("bills"), scene.client.is_in_use("orders")) == (False, True)


async def test_more_topics_than_one_request_can_name_are_polled(tmp_path: Path) -> None:
    """A poll takes two requests for the changes since the last poll, and confirms all topics at once."""
    async with route_scene(tmp_path) as scene:
        for topic in ("orders", *LONG_NAMES):
            scene.client._keeper.topics.use(topic)
        assert await scene.client.refresh()
        requests, revision = scene.request_count(), scene.client._cache.point.revision
        await registered(scene.server, BROKER_B)
        await scene.clock.advance(1.0)

        assert await scene.client.refresh()
        assert (scene.request_count() - requests, scene.names()) == (2, ["broker-a", "broker-b"])
        assert scene.age() == 0.0
        # the revision has moved: the next poll asks for the changes since this one
        assert scene.client._cache.point.revision > revision


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
        await scene.pulled(2)
        for _ in range(1_000):
            scene.client.report("broker-a", 0.1, failed=True)
        await scene.clock.advance(0.99)
        assert scene.request_count() == 2
        await scene.clock.advance(0.01)
        await scene.pulled(3)

        await scene.clock.advance(10.0)
        assert scene.request_count() == 3


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
