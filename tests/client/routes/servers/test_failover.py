"""Failover: the chosen server, and the next servers when it fails or is silent."""

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from namesrv_client import RouteUnavailableError
from namesrv_remoting.errors import TLS_REQUIRED_REMARK
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import FakeClock, passing, settle, until
from tests.support.in_process import namesrv_in_process
from tests.support.route_clients import BROKER_A, PULL, registered, request_count
from tests.support.route_sessions import MANY, Scene, native, session_of
from tests.support.scripted_server import ScriptedServer


def test_first_server_is_random() -> None:
    """A thousand clients with the same list spread over its servers."""
    chosen = set()
    for seed in range(50):
        scene = Scene(FakeClock(), random.Random(seed).shuffle)
        scene.session.use(("a:1", "b:1", "c:1"))
        chosen.add(scene.session.chosen)

    assert chosen == {"a:1", "b:1", "c:1"}


async def test_failed_attempts_count_as_failover_only_if_another_server_answers(tmp_path: Path) -> None:
    """An outage of all servers is no failover if the chosen server is the first one to answer again."""
    async with native(tmp_path) as (scene, servers, proxy):
        scene.session.use((proxy.address, "127.0.0.1:1"))
        await scene.changes("orders")
        proxy.cut()
        for _ in range(3):
            with pytest.raises(RouteUnavailableError):
                await scene.changes("orders")
        assert scene.session.failovers == 0
        await proxy.heal()
        await scene.clock.advance(2.0)
        await scene.changes("orders")
        assert (scene.session.chosen, scene.session.failovers) == (proxy.address, 0)

        scene.session.use((proxy.address, servers[1].where))
        proxy.cut()
        await scene.changes("orders")
        assert (scene.session.chosen, scene.session.failovers) == (servers[1].where, 1)


async def test_answer_of_another_server_than_the_chosen_one(caplog: pytest.LogCaptureFixture) -> None:
    """The chosen server fails, the next one only refuses the topic, and the third one answers.

    That is one failover, and the end of an outage: the next outage is logged at once.
    """
    busy, refused = 2, 16
    async with (
        ApacheServer() as one,
        ApacheServer() as two,
        ApacheServer() as three,
        session_of(one, two, three, protocol="rocketmq") as scene,
    ):

        async def outage() -> None:
            for server in (one, two, three):
                server.routes["orders"] = busy
            with pytest.raises(RouteUnavailableError):
                await scene.changes("orders")

        await outage()
        two.routes["orders"], three.routes["orders"] = refused, apache_route("broker-a")
        for _ in range(2):
            await scene.changes("orders")
            assert (scene.session.chosen, scene.session.failovers) == (two.address, 1)
        await outage()

        logged = [record.getMessage() for record in caplog.records if record.name == "namesrv_client.connection"]
        assert [message.partition(":")[0] for message in logged] == ["no NameServer could answer"] * 2


async def test_outage_is_logged_once_and_then_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The outage is logged once a minute although every request tries all servers."""
    caplog.set_level(logging.INFO, "namesrv_client")
    async with session_of() as scene:
        scene.session.use(("127.0.0.1:1", "127.0.0.1:2"))
        for _ in range(240):
            with pytest.raises(RouteUnavailableError):
                await scene.changes("orders")
            await scene.clock.advance(0.5)

    refused = "; ".join(f"no connection to 127.0.0.1:{port}: connection refused" for port in (1, 2))
    assert (caplog.messages[0], len(caplog.messages)) == (f"no NameServer could answer: {refused}", 2)


async def test_silent_server_is_overtaken_by_the_next(tmp_path: Path) -> None:
    """After part of the call's time the next server gets the request, too, and is chosen if it responds first."""
    async with native(tmp_path) as (scene, (_, second), proxy):
        await scene.routes("orders")
        proxy.stall()
        asking, took = await scene.timed(scene.routes("orders"))

        assert asking.result() == {"orders": True}
        assert 0.7 <= took <= 0.8
        assert second.where == scene.session.chosen
        assert scene.session.errors[proxy.address] == f"no response before that of {second.where}"


@pytest.mark.parametrize("is_silent", [False, True])
async def test_chosen_server_that_only_refuses_stays_chosen(*, is_silent: bool) -> None:
    """A next server that fails or is silent causes no failover, and is tried last from then on."""
    busy, refused = 2, 16
    async with (
        ApacheServer() as one,
        ApacheServer() as failing,
        ScriptedServer() as silent,
        ApacheServer() as three,
        session_of(one, silent if is_silent else failing, three, protocol="rocketmq") as scene,
    ):
        one.routes["orders"], failing.routes["orders"] = refused, busy
        three.routes["orders"] = apache_route("broker-a")
        for _ in range(2):
            asking, _ = await scene.timed(scene.changes("orders"))
            assert asking.result() == ["orders"]

        assert (scene.session.chosen, scene.session.failovers) == (one.address, 0)
        assert silent.connections + len(failing.topics_asked) == 1
        pulls = {status.address: status.pulls for status in scene.session.statuses()}
        assert (pulls[one.address], pulls[three.address]) == ({"refused": 2}, {"answered": 2})


async def test_first_server_that_answers_replaces_a_silent_chosen_one() -> None:
    """A server between the two that only refuses is not chosen."""
    async with (
        ScriptedServer() as silent,
        ApacheServer() as refusing,
        ApacheServer() as three,
        session_of(silent, refusing, three, protocol="rocketmq") as scene,
    ):
        refusing.routes["orders"], three.routes["orders"] = 16, apache_route("broker-a")
        asking, _ = await scene.timed(scene.changes("orders"))

        assert asking.result() == ["orders"]
        assert (scene.session.chosen, scene.session.failovers) == (three.address, 1)


async def test_responses_that_arrive_together_overtake_no_server() -> None:
    """The chosen server stays, and each response counts once; a server that is asked later may still be silent."""
    async with (
        ScriptedServer() as one,
        ScriptedServer() as two,
        ScriptedServer() as three,
        session_of(one, two, three, protocol="rocketmq") as scene,
    ):
        asking = asyncio.ensure_future(scene.changes("orders"))
        peers = []
        for server in (one, two, three):
            peers.append((peer := await server.accept(), await peer.receive()))
            await scene.clock.advance(0.5 if server is not three else 0.1)
        for peer, request in peers[:2]:
            peer.answer(request.opaque, code=17)
        await asking

        assert (scene.session.chosen, scene.session.failovers) == (one.address, 0)
        assert [status.pulls for status in scene.session.statuses()] == [
            {"answered": 1},
            {"answered": 1},
            {"overtaken": 1},
        ]
        assert scene.session.errors == {three.address: f"no response before that of {one.address}"}


async def test_slow_server_may_use_the_whole_call(tmp_path: Path) -> None:
    """No request is cancelled before the call ends: the first response counts, even after 2.9 s."""
    async with native(tmp_path, 1) as (scene, _, proxy), ScriptedServer() as hole:
        scene.session.use((proxy.address, hole.address))
        proxy.stall()
        asking = asyncio.ensure_future(scene.routes("orders"))
        await scene.clock.advance(2.9)
        await proxy.heal()

        assert await asking == {"orders": True}
        assert (scene.session.chosen, hole.connections) == (proxy.address, 1)


async def test_steady_responses_prevent_a_failover() -> None:
    """Only silence counts: five topics answered one by one within 2.5 s reach no other server."""
    async with (
        ScriptedServer() as steady,
        ScriptedServer() as other,
        session_of(steady, other, protocol="rocketmq") as scene,
    ):
        asking = asyncio.ensure_future(scene.changes(*MANY[:5]))
        peer = await steady.accept()
        for number, request in enumerate([await peer.receive() for _ in range(5)], start=1):
            await scene.clock.advance(0.5)
            peer.answer(request.opaque, code=17)
            while len(scene.answers) < number:
                await settle()

        assert (await asking, other.connections) == (MANY[:5], 0)


async def test_call_ends_within_its_timeout() -> None:
    """Five silent servers all get the request in the first half of the call, and have the rest to respond."""
    async with AsyncExitStack() as stack:
        holes = [await stack.enter_async_context(ScriptedServer()) for _ in range(5)]
        async with session_of(*holes) as scene:
            asking, took = await scene.timed(scene.routes("orders"))

            with pytest.raises(RouteUnavailableError) as raised:
                asking.result()
            assert str(raised.value).count("no answer within") == len(scene.session.errors) == 5
            assert 2.9 <= took <= 3.1
            assert [hole.connections for hole in holes] == [1, 1, 1, 1, 1]


async def test_server_that_is_not_ready_causes_a_failover(tmp_path: Path) -> None:
    """The next server gets the request while the first one waits for its brokers."""
    async with native(tmp_path) as (scene, (first, second), proxy):
        first.namesrv.boot.readiness._is_ready = False
        first.namesrv.boot.readiness._ready_at = float("inf")
        await scene.routes("orders")

        assert second.where == scene.session.chosen
        assert "name server not ready" in scene.session.errors[proxy.address]


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_server_that_requires_tls_causes_a_failover(tmp_path: Path, protocol: str) -> None:
    """It refuses the first request and closes the connection, and counts as never connected."""
    clock = FakeClock()
    async with (
        ScriptedServer() as script,
        namesrv_in_process(tmp_path, clock=clock) as second,
        session_of(script, second, clock=clock, protocol=protocol) as scene,
    ):
        await registered(second, BROKER_A)
        fetching = asyncio.create_task(scene.routes("orders"))
        peer = await script.accept()
        peer.answer((await peer.receive()).opaque, code=1, remark=TLS_REQUIRED_REMARK)
        peer.writer.close()
        await fetching

        assert second.where == scene.session.chosen
        assert TLS_REQUIRED_REMARK in scene.session.errors[script.address]
        assert [status.last_response for status in scene.session.statuses() if status.address == script.address] == [
            None
        ]


async def test_new_server_list_keeps_the_chosen_server(tmp_path: Path) -> None:
    """Connections to servers that left the list are closed."""
    async with native(tmp_path, 3) as (scene, (first, second, third), proxy):
        await scene.routes("orders")
        scene.session.use((third.where, proxy.address))
        assert (scene.session.chosen, len(scene.session.socket_descriptors())) == (proxy.address, 1)

        scene.session.use((third.where,))
        await scene.routes("orders")
        assert [request_count(server, PULL) for server in (first, second, third)] == [1, 0, 1]
        assert len(scene.session.socket_descriptors()) == 1


async def test_server_removed_during_a_call_gets_no_request() -> None:
    """No connection to it is opened, nor to any server after the session's end."""
    async with ScriptedServer() as hole, ScriptedServer() as other, session_of(hole, other) as scene:
        asking = asyncio.ensure_future(scene.routes("t"))
        await hole.accept()
        scene.session.use((hole.address,))
        await passing(scene.clock, asking.done)

        assert isinstance(asking.exception(), RouteUnavailableError)
        await scene.session.close()
        with pytest.raises(RouteUnavailableError, match="the client is closed"):
            await scene.routes("t")
        assert other.connections == 0


async def test_request_continues_with_a_list_that_replaces_all_servers(tmp_path: Path) -> None:
    """The servers have moved: the request to a silent one goes on to the first one of the new list."""
    async with native(tmp_path, 1) as (scene, (server,), _), ScriptedServer() as silent:
        scene.session.use((silent.address,))
        request = asyncio.ensure_future(scene.routes("orders"))
        await silent.accept()
        scene.session.use((server.where,))

        assert await request == {"orders": True}


@pytest.mark.parametrize("dies", [False, True])
async def test_silent_or_dead_rocketmq_server_causes_a_failover(*, dies: bool) -> None:
    """A second without any response, or a lost connection with pending requests, causes the failover."""
    async with ApacheServer() as one, ApacheServer() as two, session_of(one, two, protocol="rocketmq") as scene:
        two.routes |= dict.fromkeys(MANY, apache_route("broker-b"))
        one.routes |= dict.fromkeys(MANY)
        asking = asyncio.ensure_future(scene.changes(*MANY))
        await until(lambda: len(one.topics_asked) == 16)
        if dies:
            await one.stop()
        took = await passing(scene.clock, asking.done)

        assert sorted(MANY) == asking.result()
        assert (len(one.topics_asked), len(two.topics_asked), scene.session.chosen) == (16, 40, two.address)
        assert took <= (0.2 if dies else 1.3)
