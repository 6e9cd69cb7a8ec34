"""Routes in use stay fresh, whatever happens to the servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from namesrv_client import RouteClient, RouteUnavailableError, TopicNotFoundError
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import FakeClock, settle
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.passing_time import passing
from tests.support.raw_peer import until
from tests.support.route_clients import (
    BROKER_A,
    BROKER_B,
    INFO,
    PULL,
    asked,
    broker_names,
    register,
    registered,
    route_client,
    unregister,
)
from tests.support.scripted_server import ScriptedServer
from tests.support.tcp_proxy import TcpProxy


@asynccontextmanager
async def scene(path: Path, **settings: Any) -> AsyncIterator[tuple[FakeClock, InProcess, RouteClient]]:
    """A server with broker-a, which has run for a minute, and a client of it."""
    clock = FakeClock()
    async with namesrv_in_process(path, clock=clock) as server:
        await registered(server, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, server, **settings) as client:
            yield clock, server, client


async def watched(server: InProcess, count: int = 1) -> None:
    """Return when that many questions are held."""
    await until(lambda: len(server.namesrv.watchers) == count)


async def pulled(server: InProcess, count: int) -> None:
    """Return when that many pulls were answered."""
    await until(lambda: asked(server, PULL) == count)


async def routed(client: RouteClient, names: list[str]) -> None:
    """Return when the route has these brokers."""
    await until(lambda: broker_names(client) == names)


# -- the poll ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "first", "then"), [(0.1, 3.0, 27.6), (0.5, 15.0, 30.0), (0.9, 27.0, 32.4)])
async def test_polls_come_every_30_seconds_more_or_less(tmp_path: Path, unit: float, first: float, then: float) -> None:
    """The first after a random part of 30 s, the others 10 % earlier or later: clients that start together part."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server:
        await registered(server, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, server, options={"random_unit": lambda: unit}) as client:
            await client.route("orders")
            for wait in (first, then, then):
                before = asked(server, PULL)
                await clock.advance(wait - 0.01)
                assert before == asked(server, PULL)
                await clock.advance(0.01)
                await pulled(server, before + 1)


async def test_a_poll_brings_what_changed(tmp_path: Path) -> None:
    """A broker that came, and its topics that are in use."""
    async with scene(tmp_path) as (clock, server, client):
        await client.route("orders")
        await registered(server, BROKER_B)
        assert ["broker-a"] == broker_names(client)

        await clock.advance(15.0)

        await until(lambda: broker_names(client) == ["broker-a", "broker-b"])
        assert broker_names(client, "bills") is None


async def test_a_poll_is_one_question_for_all_topics(tmp_path: Path) -> None:
    """However many are in use; and what did not change is confirmed."""
    async with scene(tmp_path) as (clock, server, client):
        await client.route("orders")
        await client.route("bills")
        before = asked(server, PULL)

        await clock.advance(15.0)
        await until(lambda: asked(server, PULL) == before + 1)
        await settle()

        assert (0.0, 0.0) == (client._cache.age("orders"), client._cache.age("bills"))


async def test_without_topics_nobody_is_asked(tmp_path: Path) -> None:
    """Not even who it is."""
    async with scene(tmp_path) as (clock, server, client):
        await clock.advance(100.0)

        assert (0, 0) == (asked(server, PULL), asked(server, INFO))
        assert await client.refresh()


async def test_a_topic_that_is_forgotten_is_not_polled_any_more(tmp_path: Path) -> None:
    """In RocketMQ the polled set only ever grows."""
    async with scene(tmp_path) as (clock, server, client):
        await client.route("orders")
        await client.route("bills")
        client.forget("bills")
        await registered(server, BROKER_B)

        await clock.advance(15.0)
        await until(lambda: broker_names(client) == ["broker-a", "broker-b"])

        assert (None, False, True) == (client.cached("bills"), client.is_in_use("bills"), client.is_in_use("orders"))


async def test_a_poll_that_fails_is_followed_by_the_next(tmp_path: Path) -> None:
    """The routes stay meanwhile, and grow older."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, TcpProxy(server.address) as proxy:
        peer = await registered(server, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, proxy.address) as client:
            await client.route("orders")
            proxy.cut()
            await clock.advance(45.0)
            assert not await client.refresh()
            known = client.cached("orders")
            assert known is not None
            assert 45.0 <= known.age
            assert proxy.address in client.server_errors

            await proxy.heal()
            await register(peer, BROKER_B)
            await clock.advance(30.0)
            await until(lambda: broker_names(client) == ["broker-a", "broker-b"])


async def test_many_callers_of_one_topic_ask_once(tmp_path: Path) -> None:
    """A hundred tasks that send to a new topic."""
    async with scene(tmp_path) as (_, server, client):
        routes = await asyncio.gather(*(client.route("orders") for _ in range(100)))

        assert (1, 1) == (asked(server, PULL), len(set(map(id, (route.data for route in routes)))))


async def test_many_topics_at_the_same_time_are_one_question(tmp_path: Path) -> None:
    """As a large producer asks when it starts; each caller gets its own answer."""
    async with scene(tmp_path) as (_, server, client):
        topics = tuple(f"topic-{number}" for number in range(200))
        await registered(server, BROKER_B, topics=topics)

        found = await asyncio.gather(*(client.route(topic) for topic in (*topics, "none")), return_exceptions=True)

        assert 1 == asked(server, PULL)
        assert isinstance(found.pop(), TopicNotFoundError)
        assert topics == tuple(route.topic for route in found if not isinstance(route, BaseException))


async def test_a_topic_that_is_not_answered_does_not_hold_up_those_that_are() -> None:
    """Apache's server says nothing about one of three; the others' callers do not wait for that."""
    clock = FakeClock()
    async with ApacheServer() as apache:
        apache.routes |= {"t": apache_route("broker-a"), "u": apache_route("broker-a"), "silent": None}
        async with route_client(clock, apache.address, protocol="rocketmq") as client:
            asking = [asyncio.ensure_future(client.route(topic)) for topic in ("silent", "t", "u")]
            await asyncio.wait(asking[1:])
            assert ["t", "u"] == [task.result().topic for task in asking[1:]]
            assert not asking[0].done()

            await passing(clock, asking[0].done)
            with pytest.raises(RouteUnavailableError, match="topic silent"):
                asking[0].result()


async def test_many_callers_of_one_topic_share_the_error(tmp_path: Path) -> None:
    """And the next one asks again."""
    async with scene(tmp_path) as (_, server, client):
        errors = await asyncio.gather(*(client.route("none") for _ in range(100)), return_exceptions=True)

        assert {TopicNotFoundError} == {type(error) for error in errors}
        assert 1 == asked(server, PULL)
        with pytest.raises(TopicNotFoundError, match=r"topic none does not exist, according to 127\.0\.0\.1:"):
            await client.route("none")
        assert 2 == asked(server, PULL)


async def test_whoever_gives_up_leaves_the_answer_to_the_others(tmp_path: Path) -> None:
    """One of two callers has a shorter deadline."""
    async with scene(tmp_path) as (_, _, client):
        first, second = asyncio.ensure_future(client.route("orders")), asyncio.ensure_future(client.route("orders"))
        await asyncio.sleep(0)
        first.cancel()

        assert "orders" == (await second).topic
        assert first.cancelled()


async def test_a_question_that_everybody_gave_up_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its failure is nobody's any more, and not asyncio's either."""
    async with scene(tmp_path) as (_, server, client):
        asking = asyncio.ensure_future(client.route("none"))
        await asyncio.sleep(0)
        asking.cancel()
        await until(lambda: asked(server, PULL) == 1)
        await until(lambda: not client._keeper._asking)

    assert [] == [record for record in caplog.records if record.name == "asyncio"]


async def test_the_end_of_the_client_ends_its_questions() -> None:
    """Whoever waits gets an error that says so, and is not cancelled."""
    clock = FakeClock()
    async with ScriptedServer() as hole:
        async with route_client(clock, hole.address) as client:
            asking = asyncio.ensure_future(client.route("orders"))
            await hole.accept()

        with pytest.raises(RouteUnavailableError, match="topic orders: the client is closed"):
            await asking
        with pytest.raises(RouteUnavailableError, match="topic orders: the client is closed"):
            await client.route("orders")
        client.report("broker-a", 1.0, failed=True)


# -- what only a young server lacks -----------------------------------------------------------------------------------


@asynccontextmanager
async def restarted(path: Path, clock: FakeClock, proxy: TcpProxy) -> AsyncIterator[InProcess]:
    """A server that starts now, with nothing from before, and is where the proxy leads to."""
    async with namesrv_in_process(path, clock=clock) as server:
        proxy.cut()
        proxy.target = server.address
        await proxy.heal()
        yield server


async def test_a_server_that_restarted_does_not_shrink_a_route(tmp_path: Path) -> None:
    """One of two brokers is back, and the poll comes; half the messages would go nowhere for 30 s.

    The other broker never comes back: when every broker has had time to, the route is believed, although nothing
    changes any more that the server would tell.
    """
    clock = FakeClock()
    async with namesrv_in_process(tmp_path / "1", clock=clock) as old, TcpProxy(old.address) as proxy:
        await registered(old, BROKER_A, BROKER_B)
        clock.stall(60.0)
        async with route_client(clock, proxy.address) as client:
            await client.route("orders")
            async with restarted(tmp_path / "2", clock, proxy) as young:
                await registered(young, BROKER_A)
                await clock.advance(15.0)
                await until(lambda: asked(young, PULL) == 1)
                await settle()
                assert (["broker-a", "broker-b"], 15.0) == (broker_names(client), client._cache.age("orders"))

                took = await passing(clock, lambda: broker_names(client) == ["broker-a"])
                # the poll at 45 s is the first after the warm-up
                assert 29.9 <= took <= 30.5


async def test_a_server_that_restarted_does_not_take_a_topic_away(tmp_path: Path) -> None:
    """It knows no broker yet; when one is back the route is as before, and was so all the time."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path / "1", clock=clock) as old, TcpProxy(old.address) as proxy:
        await registered(old, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, proxy.address) as client:
            await client.route("orders")
            changes = client.changes()
            async with restarted(tmp_path / "2", clock, proxy) as young:
                await clock.advance(15.0)
                await until(lambda: asked(young, PULL) == 1)
                await settle()
                known = client.cached("orders")
                assert known is not None
                assert known.confirmed_absent_since is None

                await registered(young, BROKER_A)
                assert await client.refresh()
                assert 0.0 == client._cache.age("orders")
        assert [] == [change async for change in changes]


async def test_another_server_that_is_young_does_not_shrink_a_route_either(tmp_path: Path) -> None:
    """The chosen one died, and the next has just been started."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path / "1", clock=clock) as old, TcpProxy(old.address) as proxy:
        await registered(old, BROKER_A, BROKER_B)
        clock.stall(60.0)
        async with (
            namesrv_in_process(tmp_path / "2", clock=clock) as young,
            route_client(clock, proxy.address, young) as client,
        ):
            await registered(young, BROKER_B)
            await client.route("orders")
            proxy.cut()
            assert await client.refresh()
            assert (1, ["broker-a", "broker-b"]) == (asked(young, PULL), broker_names(client))

            clock.stall(45.0)
            assert await client.refresh()
            assert ["broker-b"] == broker_names(client)


async def test_a_warm_server_shrinks_a_route_at_once(tmp_path: Path) -> None:
    """The other one has run for long: what it lacks is gone."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "1", clock=clock) as first,
        namesrv_in_process(tmp_path / "2", clock=clock) as second,
        TcpProxy(first.address) as proxy,
    ):
        await registered(first, BROKER_A, BROKER_B)
        await registered(second, BROKER_B)
        clock.stall(60.0)
        async with route_client(clock, proxy.address, second) as client:
            await client.route("orders")
            proxy.cut()

            assert await client.refresh()

            assert ["broker-b"] == broker_names(client)


async def test_a_young_server_tells_of_the_death_of_a_broker_that_it_knew(tmp_path: Path) -> None:
    """It has run for five seconds, and it saw the broker go."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server:
        peer = await registered(server, BROKER_A, BROKER_B)
        async with route_client(clock, server) as client:
            await client.route("orders")
            await unregister(peer, BROKER_B)

            assert await client.refresh()

            assert ["broker-a"] == broker_names(client)


# -- the watch --------------------------------------------------------------------------------------------------------


async def test_a_watch_tells_of_a_change_at_once(tmp_path: Path) -> None:
    """No clock has to move; the source says how the news came."""
    async with scene(tmp_path, watch=True) as (_, server, client):
        await client.route("orders")
        await watched(server)

        await registered(server, BROKER_B)

        await until(lambda: broker_names(client) == ["broker-a", "broker-b"])
        known = client.cached("orders")
        assert known is not None
        assert "watch" == known.source


async def test_a_watch_goes_on_after_each_answer(tmp_path: Path) -> None:
    """Whether something changed, or the wait was over."""
    async with scene(tmp_path, watch=True, poll_seconds=1000.0) as (clock, server, client):
        peer = await registered(server, BROKER_B)
        await client.route("orders")
        for number in range(3):
            await watched(server)
            await (unregister(peer, BROKER_B) if number % 2 == 0 else register(peer, BROKER_B))
            expected = ["broker-a"] if number % 2 == 0 else ["broker-a", "broker-b"]
            await routed(client, expected)
        await watched(server)
        before = asked(server, PULL)

        await clock.advance(25.0)
        await until(lambda: asked(server, PULL) == before + 1)
        await watched(server)


async def test_topics_that_come_into_use_join_the_watch(tmp_path: Path) -> None:
    """Together, if they come together: the server goes on holding the questions before for their 25 s."""
    async with scene(tmp_path, watch=True, poll_seconds=1000.0) as (clock, server, client):
        peer = await server.connect()
        topics = tuple(f"topic-{number}" for number in range(50))
        await register(peer, BROKER_B, topics=topics)
        await client.route("orders")
        await watched(server)

        for topic in topics:
            await client.route(topic)
        await passing(clock, lambda: len(server.namesrv.watchers) == 2)
        await register(peer, BROKER_A._replace(name="broker-c", addr="10.0.0.3:1"), topics=topics)

        await until(lambda: all(broker_names(client, topic) == ["broker-b", "broker-c"] for topic in topics))


async def test_a_watch_waits_for_the_first_topic(tmp_path: Path) -> None:
    """There is nothing to hold before."""
    async with scene(tmp_path, watch=True) as (clock, server, client):
        await clock.advance(10.0)
        assert 0 == asked(server, PULL)

        await client.route("orders")
        await watched(server)


async def test_topics_from_disk_join_the_watch_when_they_are_used(tmp_path: Path) -> None:
    """And are asked about fully: that they did not change since a moment ago says nothing about yesterday."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path / "1", clock=clock) as server:
        peer = await registered(server, BROKER_A, BROKER_B)
        clock.stall(60.0)
        snapshot = tmp_path / "routes.json"
        async with route_client(clock, server, snapshot_file=snapshot) as client:
            await client.route("orders")
            await client.route("bills")
        await unregister(peer, BROKER_B)

        async with route_client(clock, server, snapshot_file=snapshot, watch=True) as client:
            await client.route("orders")
            await until(lambda: broker_names(client) == ["broker-a"])
            await watched(server)
            found = await client.route("bills")
            assert ("disk", 2) == (found.source, len(found.data.broker_datas))
            await passing(clock, lambda: broker_names(client, "bills") == ["broker-a"], at_most=1.0)


async def test_a_dead_connection_under_a_watch_is_noticed_within_five_seconds(tmp_path: Path) -> None:
    """The watch itself would notice after 27 s. And then the other server is watched."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "1", clock=clock) as first,
        namesrv_in_process(tmp_path / "2", clock=clock) as second,
        TcpProxy(first.address) as proxy,
    ):
        await registered(first, BROKER_A)
        await registered(second, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, proxy.address, second, watch=True, poll_seconds=1000.0) as client:
            await client.route("orders")
            await watched(first)
            await clock.advance(2.0)

            proxy.stall()

            assert 5.0 >= await passing(clock, lambda: client.chosen_server != proxy.address)
            await passing(clock, lambda: len(second.namesrv.watchers) == 1, at_most=5.0)
            await registered(second, BROKER_B)
            await until(lambda: broker_names(client) == ["broker-a", "broker-b"])


async def test_a_server_that_restarted_behind_a_proxy_is_watched_anew(tmp_path: Path) -> None:
    """The question that the first one held will never be answered, and our connection is fine."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "1", clock=clock) as first,
        namesrv_in_process(tmp_path / "2", clock=clock) as second,
        TcpProxy(first.address) as proxy,
    ):
        await registered(first, BROKER_A)
        await registered(second, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, proxy.address, watch=True, poll_seconds=1000.0) as client:
            await client.route("orders")
            await watched(first)

            proxy.switch(second.address)
            await until(lambda: len(second.namesrv.connections) == 2)

            assert 5.0 >= await passing(clock, lambda: len(second.namesrv.watchers) == 1)


async def test_the_poll_is_the_net_under_the_watch(tmp_path: Path) -> None:
    """It goes on as without one."""
    async with scene(tmp_path, watch=True) as (clock, server, client):
        await client.route("orders")
        await watched(server)
        before = asked(server, PULL)

        await clock.advance(15.0)

        await until(lambda: asked(server, PULL) == before + 1)
        assert 1 == len(server.namesrv.watchers)


async def test_a_server_that_does_not_hold_the_watch_is_not_asked_all_the_time(tmp_path: Path) -> None:
    """One that drains answers at once; a client that asked again at once would keep both busy until it is gone."""
    async with scene(tmp_path, watch=True, poll_seconds=1000.0) as (clock, server, client):
        await client.route("orders")
        await watched(server)
        server.namesrv.is_draining = True
        before = asked(server, PULL)

        await clock.advance(35.0)
        await settle()

        assert before + 9 <= asked(server, PULL) <= before + 15
        server.namesrv.is_draining = False


async def test_what_nobody_believed_is_left_to_the_poll(tmp_path: Path) -> None:
    """A watch would be told at once what a young server lacks, again and again."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path / "1", clock=clock) as old, TcpProxy(old.address) as proxy:
        await registered(old, BROKER_A, BROKER_B)
        clock.stall(60.0)
        async with route_client(clock, proxy.address, watch=True) as client:
            await client.route("orders")
            await watched(old)
            async with restarted(tmp_path / "2", clock, proxy) as young:
                peer = await registered(young, BROKER_A)
                await passing(clock, lambda: client._cache.doubted == {"orders"})
                before = asked(young, PULL)
                await clock.advance(10.0)
                assert before >= asked(young, PULL)
                assert ["broker-a", "broker-b"] == broker_names(client)

                await register(peer, BROKER_B)
                await passing(clock, lambda: len(young.namesrv.watchers) == 1, at_most=35.0)
                assert (set(), 0) == (client._cache.doubted, len(client.server_errors) - 1)


async def test_with_an_apache_server_the_poll_does_the_work() -> None:
    """There is nothing to watch, and nothing to ping; it is asked now and then whether it is native by now."""
    clock = FakeClock()
    async with ApacheServer() as apache:
        apache.routes["orders"] = apache_route("broker-a")
        async with route_client(clock, apache.address, protocol="auto", watch=True) as client:
            await client.route("orders")
            apache.routes["orders"] = apache_route("broker-a", "broker-b")
            connections = apache.accepted

            await passing(clock, lambda: broker_names(client) == ["broker-a", "broker-b"], at_most=16.0)
            await clock.advance(60.0)

            assert (connections, 2) == (apache.accepted, apache.refused)
            assert {"orders"} == set(apache.topics_asked)


# -- brokers that fail ------------------------------------------------------------------------------------------------


async def test_a_failed_send_asks_about_the_brokers_topics(tmp_path: Path) -> None:
    """At once, in one question, and only about those in use that it has."""
    async with scene(tmp_path) as (_, server, client):
        peer = await server.connect()
        await register(peer, BROKER_B, topics=("orders", "refunds"))
        for topic in ("orders", "bills", "refunds"):
            await client.route(topic)
        await unregister(peer, BROKER_B)
        before = asked(server, PULL)

        client.report("broker-b", 0.1, failed=True)

        await until(lambda: broker_names(client) == ["broker-a"])
        assert before + 1 == asked(server, PULL)
        known = client.cached("refunds")
        assert known is not None
        assert known.confirmed_absent_since is not None


async def test_failed_sends_ask_once_a_second_at_most(tmp_path: Path) -> None:
    """A thousand failures of a producer in a hurry are one question now, and one when the second is over."""
    async with scene(tmp_path, poll_seconds=1000.0) as (clock, server, client):
        await client.route("orders")
        before = asked(server, PULL)

        for _ in range(1_000):
            client.report("broker-a", 0.1, failed=True)
            await asyncio.sleep(0)
        await until(lambda: asked(server, PULL) == before + 1)
        for _ in range(1_000):
            client.report("broker-a", 0.1, failed=True)
        await clock.advance(0.99)
        assert before + 1 == asked(server, PULL)
        await clock.advance(0.01)
        await until(lambda: asked(server, PULL) == before + 2)

        await clock.advance(10.0)
        assert before + 2 == asked(server, PULL)


async def test_a_success_asks_nobody(tmp_path: Path) -> None:
    """Nor does the failure of a broker that is in no route."""
    async with scene(tmp_path) as (clock, server, client):
        await client.route("orders")
        before = asked(server, PULL)

        client.report("broker-a", 0.1)
        client.report("stranger", 0.1, failed=True)
        await clock.advance(5.0)

        assert before == asked(server, PULL)


async def test_a_refresh_that_fails_is_not_an_error(tmp_path: Path) -> None:
    """The servers are down as well; the next failure asks again."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, TcpProxy(server.address) as proxy:
        await registered(server, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, proxy.address) as client:
            await client.route("orders")
            proxy.cut()
            client.report("broker-a", 0.1, failed=True)
            await clock.advance(2.0)
            await proxy.heal()
            await until(lambda: client._keeper._refreshing is not None and client._keeper._refreshing.done())
            before = asked(server, PULL)

            client.report("broker-a", 0.1, failed=True)
            await passing(clock, lambda: asked(server, PULL) == before + 1)
