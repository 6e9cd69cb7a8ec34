"""The session: choice of a server, failover, and the contents of requests."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgpack
import pytest

from namesrv_client import RouteUnavailableError
from namesrv_client.routes.cache import RouteCache, RouteResponse
from namesrv_client.routes.session import ServerSession
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.errors import TLS_REQUIRED_REMARK, RemotingError, RequestTimeoutError
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, completed, passing, settle, until
from tests.support.in_process import InProcess, frames_of_at_most, namesrv_in_process
from tests.support.namesrv_peer import Broker, topic_config
from tests.support.route_clients import (
    BROKER_A,
    BROKER_B,
    INFO,
    NO_CALLBACKS,
    PULL,
    client_settings,
    registered,
    request_count,
)
from tests.support.scripted_server import ScriptedRequest, ScriptedServer
from tests.support.spelling import NATIVE, cut
from tests.support.tcp_proxy import TcpProxy

T = TypeVar("T")

BROKER_C = Broker("broker-c", 0, "10.0.0.3:10911")
MANY = [f"t{number}" for number in range(40)]


class Scene:
    """A session with a clock and a cache that applies its responses."""

    def __init__(
        self, clock: FakeClock, shuffle: Callable[[list[str]], None] = lambda _: None, **settings: Any
    ) -> None:
        self.clock = clock
        self.cache = RouteCache(clock)
        chosen, protocols = client_settings("10.0.0.1:9876", **settings), ServerProtocols()
        self.session = ServerSession(
            chosen, clock, self.cache.point, protocols=protocols, shuffle=shuffle, events=NO_CALLBACKS
        )
        self.answers: list[RouteResponse] = []
        # the topics that each watch has left out
        self.refused: list[Collection[str]] = []

    def take(self, answer: RouteResponse) -> None:
        """Record a response and apply it."""
        self.answers.append(answer)
        self.cache.apply(answer, "pull", is_sync=True)

    async def timed(self, work: Coroutine[Any, Any, T]) -> tuple[asyncio.Future[T], float]:
        """Advance the clock until the work is done; return its result or error, and the seconds."""
        asking = asyncio.ensure_future(work)
        return asking, await passing(self.clock, asking.done)

    async def changes(self, *topics: str) -> list[str]:
        """Request changes; return the sorted topics of the responses."""
        self.answers.clear()
        await self.session.changes(topics, self.take)
        return sorted(topic for answer in self.answers for topic in answer.routes)

    async def routes(self, *topics: str) -> dict[str, bool]:
        """Request topics; return which of them exist, or raise RouteUnavailableError when one is unknown to all."""
        self.answers.clear()
        for reason in (await self.session.routes(topics, self.take)).values():
            raise RouteUnavailableError(reason)
        return {topic: route is not None for answer in self.answers for topic, route in answer.routes.items()}


@asynccontextmanager
async def session_of(
    *servers: InProcess | TcpProxy | ApacheServer | ScriptedServer, clock: FakeClock | None = None, **settings: Any
) -> AsyncIterator[Scene]:
    """A session with these servers in this order."""
    scene = Scene(clock or FakeClock(), **settings)
    async with asyncio.timeout(GUARD_SECONDS):
        scene.session.use(
            tuple(server.where if isinstance(server, InProcess) else server.address for server in servers)
        )
        try:
            yield scene
        finally:
            await completed(scene.clock, scene.session.close())


@asynccontextmanager
async def native(path: Path, count: int = 2, **settings: Any) -> AsyncIterator[tuple[Scene, list[InProcess], TcpProxy]]:
    """A session with NameServers that each have broker-a; the first is behind a proxy."""
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        servers = []
        for number in range(count):
            server = await stack.enter_async_context(namesrv_in_process(path / str(number), clock=clock))
            await registered(server, BROKER_A)
            servers.append(server)
        proxy = await stack.enter_async_context(TcpProxy(servers[0].address))
        yield await stack.enter_async_context(session_of(proxy, *servers[1:], clock=clock, **settings)), servers, proxy


def test_first_server_is_random() -> None:
    """A thousand clients with the same list spread over its servers."""
    chosen = set()
    for seed in range(50):
        scene = Scene(FakeClock(), random.Random(seed).shuffle)
        scene.session.use(("a:1", "b:1", "c:1"))
        chosen.add(scene.session.chosen)

    assert chosen == {"a:1", "b:1", "c:1"}


async def test_failover_stays_with_the_next_server(tmp_path: Path) -> None:
    """A recovered server is not chosen again, and no other server is connected."""
    async with native(tmp_path) as (scene, servers, proxy):
        await scene.routes("orders")
        assert len(scene.session.socket_descriptors()) == 1
        proxy.cut()
        await scene.routes("orders")
        await proxy.heal()
        await scene.routes("orders")

        assert [request_count(server, PULL) for server in servers] == [1, 2]
        assert servers[1].where == scene.session.chosen
        assert list(scene.session.errors) == [proxy.address]


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
        assert scene.session.errors[proxy.address] == f"no answer before that of {second.where}"


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
        assert scene.session.errors == {three.address: f"no answer before that of {one.address}"}


async def test_slow_server_may_use_the_whole_call(tmp_path: Path) -> None:
    """No request is cancelled before the call ends: the first response counts, even after 2.9 s."""
    async with native(tmp_path, 1) as (scene, _, proxy), ScriptedServer() as hole:
        scene.session.use((proxy.address, hole.address))
        proxy.stall()
        asking = asyncio.ensure_future(scene.routes("orders"))
        await scene.clock.advance(2.9)
        await proxy.heal()

        assert await asking == {"orders": True}
        assert (proxy.address, 1) == (scene.session.chosen, hole.connections)


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

        assert (MANY[:5], 0) == (await asking, other.connections)


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


async def test_error_response_does_not_change_the_chosen_server() -> None:
    """As Go's TestQueryTopicRouteInfoFromServer: two errors and then TOPIC_NOT_EXIST, which ends the call."""
    async with (
        ApacheServer() as one,
        ApacheServer() as two,
        ApacheServer() as three,
        session_of(one, two, three, protocol="rocketmq") as scene,
    ):
        one.routes |= {"bad": 1, "good": apache_route("broker-a")}
        two.routes["bad"] = 1
        assert await scene.routes("bad") == {"bad": False}
        assert await scene.routes("good") == {"good": True}

        assert one.address == scene.session.chosen
        assert [server.topics_asked for server in (one, two, three)] == [["bad", "good"], ["bad"], ["bad"]]


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
        assert (proxy.address, 1) == (scene.session.chosen, len(scene.session.socket_descriptors()))

        scene.session.use((third.where,))
        await scene.routes("orders")
        assert [request_count(server, PULL) for server in (first, second, third)] == [1, 0, 1]
        assert len(scene.session.socket_descriptors()) == 1


async def test_server_that_leaves_the_list_while_it_is_chosen_anew(tmp_path: Path) -> None:
    """The list changes with the response of the other server: the chosen one stays, and no error ends later choices."""
    async with native(tmp_path, shuffle=list.reverse) as (scene, _, _):
        chosen = scene.session.chosen
        assert chosen is not None

        def take(answer: RouteResponse) -> None:
            scene.take(answer)
            scene.session.use((chosen,))

        assert not await scene.session.choose_anew(["orders"], take)
        assert (scene.session.chosen, len(scene.answers)) == (chosen, 1)


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


@pytest.mark.parametrize(("others", "kept_seconds"), [((), 35.0), ((BROKER_C,), 0.0)])
async def test_server_that_was_cut_off_removes_no_broker(
    tmp_path: Path, others: tuple[Broker, ...], kept_seconds: float
) -> None:
    """A client changes to a server that has lost half of its brokers, and keeps its route; a third is believed gone."""

    def brokers() -> list[str]:
        route = scene.cache.get("orders")
        return [] if route is None else sorted(route.brokers)

    async with native(tmp_path, warm_up_seconds=0.0) as (scene, (one, two), proxy):
        for server in (one, two):
            await registered(server, *others)
        await registered(one, BROKER_B)
        last = await registered(two, BROKER_B)
        await scene.changes("orders")
        all_brokers = brokers()
        assert len(all_brokers) == 2 + len(others)
        last.close()
        await until(lambda: len(two.namesrv.manager.tables.broker_live_table) == 1 + len(others))
        proxy.cut()

        if kept_seconds:
            await scene.changes("orders")
            assert (scene.session.chosen, brokers()) == (two.where, all_brokers)
            await scene.clock.advance(kept_seconds)
        await scene.changes("orders")
        assert (scene.session.chosen, set(all_brokers) - set(brokers())) == (two.where, {"broker-b"})


async def test_request_continues_with_a_list_that_replaces_all_servers(tmp_path: Path) -> None:
    """The servers have moved: the request to a silent one goes on to the first one of the new list."""
    async with native(tmp_path, 1) as (scene, (server,), _), ScriptedServer() as silent:
        scene.session.use((silent.address,))
        request = asyncio.ensure_future(scene.routes("orders"))
        await silent.accept()
        scene.session.use((server.where,))

        assert await request == {"orders": True}


async def test_only_open_topics_go_to_the_next_server(tmp_path: Path) -> None:
    """A server in its warm-up denies no topic and stays the chosen one; topics that no server knows get a reason."""
    async with native(tmp_path, 1, protocol="auto") as (scene, _, proxy), ApacheServer() as two:
        scene.session.use((proxy.address, two.address))
        two.routes |= {"elsewhere": apache_route("broker-b"), "bad": 1}
        reasons = await scene.session.routes(["orders", "elsewhere", "none", "bad"], scene.take)

        assert list(reasons) == ["bad"]
        unknown = (
            f"{proxy.address}: has just started or lost its brokers, and may not know all brokers of topic bad yet"
        )
        assert unknown in reasons["bad"]
        assert f"{two.address}: a bug" in reasons["bad"]
        assert (["bad", "elsewhere", "none"], proxy.address) == (sorted(two.topics_asked), scene.session.chosen)
        known = {topic: scene.cache.get(topic) for topic in ("orders", "elsewhere")}
        assert {topic: list(route.brokers) for topic, route in known.items() if route is not None} == {
            "orders": ["broker-a"],
            "elsewhere": ["broker-b"],
        }


async def test_only_changed_topics_are_returned(tmp_path: Path) -> None:
    """One conditional request covers all topics, also over a new connection, but not topics that are new."""
    async with native(tmp_path, 1) as (scene, (server,), proxy):
        assert await scene.changes("orders", "bills", "none") == ["bills", "none", "orders"]
        proxy.cut()
        await proxy.heal()
        await until(lambda: not scene.session.socket_descriptors())

        assert await scene.changes("orders", "bills", "none") == []
        assert [answer.is_conditional for answer in scene.answers] == [True]
        assert (request_count(server, PULL), request_count(server, INFO)) == (2, 2)

        await registered(server, BROKER_A, topics=("orders", "bills", "refunds"), counter=2)
        assert await scene.changes("orders", "bills", "refunds") == ["refunds"]


async def test_failover_requests_all_topics_again(tmp_path: Path) -> None:
    """Revisions are per server; an Apache server has none and always gets requests for all topics."""
    async with native(tmp_path, protocol="auto") as (scene, (_, second), proxy), ApacheServer() as apache:
        apache.routes["orders"] = apache_route("broker-z")
        await scene.changes("orders", "bills")
        proxy.cut()
        assert await scene.changes("orders", "bills") == ["bills", "orders"]
        assert await scene.changes("orders", "bills") == []
        assert [answer.boot_id for answer in scene.answers] == [second.namesrv.boot.id]

        scene.session.use((apache.address,))
        for _ in range(2):
            assert await scene.changes("orders", "bills") == ["bills", "orders"]
            assert [answer.revision for answer in scene.answers] == [None, None]


async def test_many_topics_are_requested_in_batches(tmp_path: Path) -> None:
    """Batches of 500 fit into a frame and do not block the loop when they are decoded."""
    topics = sorted(f"topic-{number}" for number in range(1_200))
    async with native(tmp_path, 1) as (scene, (server,), _):
        await registered(server, BROKER_B, topics=tuple(topics))
        assert topics == await scene.changes(*topics)
        assert [len(answer.topics) for answer in scene.answers] == [500, 500, 200]

        assert await scene.changes(*topics) == []
        assert [len(answer.topics) for answer in scene.answers] == [1_200]


async def test_too_large_response_is_requested_in_halves(tmp_path: Path) -> None:
    """The server refuses the batch, and halves are requested, also for many changes and by a watch."""
    clock = FakeClock()
    # each route has about 230 bytes
    topics = tuple(sorted(f"topic-{number}" for number in range(400)))
    async with (
        namesrv_in_process(tmp_path, clock=clock, limits=frames_of_at_most(65_536)) as server,
        session_of(server, clock=clock) as scene,
    ):
        for counter in (1, 2, 3):
            configs = [topic_config(topic, write=counter) for topic in topics]
            await registered(server, BROKER_A, topics=tuple(configs[:200]), counter=counter)
            await registered(server, BROKER_B, topics=tuple(configs[200:]), counter=counter)
            if counter < 3:
                assert list(topics) == await scene.changes(*topics)
                assert [len(answer.topics) for answer in scene.answers] == [200, 200]
            else:
                assert await scene.session.watch(topics, 25.0, scene.take, on_refused=scene.refused.append)
            assert await scene.changes(*topics) == []


async def test_invalid_topic_does_not_block_the_others(tmp_path: Path) -> None:
    """A name of 391 characters makes the server refuse the whole batch."""
    async with native(tmp_path, 1) as (scene, _, proxy):
        assert await scene.changes("orders", "x" * 391, "bills") == ["bills", "orders"]
        assert "PULL_ROUTES" in scene.session.errors[proxy.address]


async def test_poll_that_a_server_refuses_goes_to_the_next(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The access file of one server refuses all topics of a poll; if every server does, that is logged once.

    A refusal of some topics is logged once, too.
    """
    access = tmp_path / "access.toml"
    account = '[accounts.clients]\nnetworks = ["127.0.0.0/8"]\nmay = [%s]\n'
    access.write_text(account % '"broker-control", { access = "route-read", topics = ["bills"] }')
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "one", clock=clock, access=str(access)) as one,
        namesrv_in_process(tmp_path / "two", clock=clock) as two,
        session_of(one, two, clock=clock) as scene,
    ):
        for server in (one, two):
            await registered(server, BROKER_A)
        assert await scene.changes("orders") == ["orders"]
        assert [status.pulls for status in scene.session.statuses()] == [{"refused": 1}, {"answered": 1}]
        assert await scene.changes("orders", "bills") == ["bills"]
        assert await scene.changes("orders", "bills") == []

        scene.session.use((one.where,))
        for _ in range(2):
            with pytest.raises(RouteUnavailableError, match=r"lacks route-read for topic orders"):
                await scene.changes("orders")
        refusal = "account clients lacks route-read for topic orders (PULL_ROUTES)"
        assert [record.getMessage() for record in caplog.records if record.name == "namesrv_client.connection"] == [
            f"{one.where} gave no route for 1 of 2 topics, such as orders: {refusal}",
            f"no NameServer could answer: {one.where}: {refusal}",
        ]
        assert not await scene.session.watch(["orders"], 25.0, scene.take, on_refused=scene.refused.append)
        assert scene.refused == [["orders"]]


async def test_warning_of_refused_topics_names_the_server_that_answered(caplog: pytest.LogCaptureFixture) -> None:
    """The chosen server refuses all topics; the next one has bills, refuses orders, and has a broken route of rates.

    The reason is that of the topic that the warning names.
    """
    async with ApacheServer() as one, ApacheServer() as two, session_of(one, two, protocol="rocketmq") as scene:
        one.routes |= {"bills": 13, "orders": 13, "rates": 13}
        two.routes |= {"bills": apache_route("broker-a"), "orders": 16, "rates": b"{"}

        assert await scene.changes("bills", "orders", "rates") == ["bills"]
        assert one.address == scene.session.chosen
        assert [record.getMessage() for record in caplog.records if record.name == "namesrv_client.connection"] == [
            f"{two.address} gave no route for 2 of 3 topics, such as orders: a bug",
        ]


@pytest.mark.parametrize("others", [[], ["bills"]])
async def test_topics_of_one_request_have_their_own_reasons(others: list[str]) -> None:
    """The server refuses one topic, and its route of another one is malformed."""
    async with ApacheServer() as server, session_of(server, protocol="rocketmq") as scene:
        server.routes |= {"bills": apache_route("broker-a"), "orders": 16, "rates": b"{"}

        malformed = "body of TopicRouteData cannot be read: Input data was truncated"
        assert await scene.session.routes([*others, "rates", "orders"], scene.take) == {
            "orders": f"no NameServer could answer: {server.address}: a bug",
            "rates": f"no NameServer could answer: {server.address}: {malformed}",
        }


class SlowServer(ApacheServer):
    """Answers one topic every 0.8 s."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    async def _answer(self, request: ScriptedRequest, topic: str) -> bytes:
        await self.clock.sleep(0.8)
        return await super()._answer(request, topic)


async def test_call_for_many_topics_ends_within_its_timeout() -> None:
    """A RocketMQ server that answers slowly has no time for all topics of the call, and stays chosen."""
    clock, topics = FakeClock(), [f"topic-{number:02}" for number in range(20)]
    async with SlowServer(clock) as server, session_of(server, clock=clock, protocol="rocketmq") as scene:
        server.routes |= dict.fromkeys(topics, apache_route("broker-a"))
        asking, took = await scene.timed(scene.session.routes(topics, scene.take))

        assert 2.9 <= took <= 3.1
        answered = len(scene.answers)
        assert sorted(asking.result()) == topics[answered:]
        assert 1 <= answered <= 3
        assert scene.session.chosen == server.address
        assert asking.result()["topic-19"] == (
            f"no NameServer could answer: {server.address} did not answer for all topics within 3 s"
        )


async def test_call_for_many_batches_ends_within_its_timeout(tmp_path: Path) -> None:
    """The server answers the first batch after a second, and nothing from then on."""
    topics = [f"topic-{number:04}" for number in range(1_500)]
    async with native(tmp_path, 1) as (scene, (server,), proxy):
        await registered(server, BROKER_B, topics=tuple(topics))

        def take(answer: RouteResponse) -> None:
            scene.take(answer)
            proxy.stall()
            scene.clock.stall(1.0)

        asking, took = await scene.timed(scene.session.routes(topics, take))
        assert (sorted(asking.result()), proxy.address) == (topics[500:], scene.session.chosen)
        assert 2.9 <= took <= 3.1


async def test_halving_of_refused_batches_ends() -> None:
    """600 refused topics cause 24 requests."""
    refused = 0

    async def serve() -> None:
        nonlocal refused
        peer = await scripted.accept()
        while True:
            request = await peer.receive()
            is_pull = request.code == PULL
            refused += is_pull
            header = [int(is_pull), request.opaque, 1, 479, "a bug" if is_pull else None, None]
            peer.send(cut(NATIVE, msgpack.packb(header), b"" if is_pull else msgpack.packb({"boot_id": "b1"})))

    async with ScriptedServer() as scripted, session_of(scripted, protocol="auto") as scene:
        serving = asyncio.ensure_future(serve())
        with pytest.raises(RouteUnavailableError, match="a bug"):
            await scene.changes(*(f"topic-{number}" for number in range(600)))
        assert refused == 24
        serving.cancel()


async def test_failure_of_one_topic_does_not_affect_others() -> None:
    """An error, an invalid body and a missing response; in Java each of them ends the round."""
    async with ApacheServer() as apache, session_of(apache, protocol="rocketmq") as scene:
        apache.routes |= {**dict.fromkeys(MANY, apache_route("broker-a")), "error": 1, "garbage": b"{", "silent": None}
        asking = asyncio.ensure_future(scene.changes("error", "garbage", "silent", "none", *MANY))
        await until(lambda: len(scene.answers) == 41)
        await passing(scene.clock, asking.done)

        assert sorted(["none", *MANY]) == asking.result()
        assert [answer.routes["none"] for answer in scene.answers if "none" in answer.routes] == [None]
        assert (apache.address, 1) == (scene.session.chosen, apache.connections)
        assert "topic silent" in scene.session.errors[apache.address]


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
        assert (16, 40, two.address) == (len(one.topics_asked), len(two.topics_asked), scene.session.chosen)
        assert took <= (0.2 if dies else 1.3)


@pytest.mark.parametrize("is_cut", [False, True])
async def test_watch_on_a_dead_server_fails_over(tmp_path: Path, *, is_cut: bool) -> None:
    """A lost connection is noticed at once, a half-open one by the ping, and the next server is chosen."""
    async with native(tmp_path) as (scene, (first, second), proxy):
        assert await scene.session.watch(["orders"], 25.0, scene.take, on_refused=scene.refused.append)
        assert not await scene.session.ping(1.5)
        watching = asyncio.ensure_future(
            scene.session.watch(["orders"], 25.0, scene.take, on_refused=scene.refused.append)
        )
        await until(lambda: len(first.namesrv.routes.watchers) == 1)
        if is_cut:
            proxy.cut()
            await until(watching.done)
        else:
            proxy.stall()
            pinging = asyncio.ensure_future(scene.session.ping(1.5))
            assert await passing(scene.clock, lambda: pinging.done() and watching.done()) <= 1.6
            assert isinstance(pinging.exception(), RequestTimeoutError)

        assert isinstance(watching.exception(), RemotingError)
        assert second.where == scene.session.chosen


async def test_request_that_a_silent_server_fails_names_the_silence(tmp_path: Path) -> None:
    """A ping without a response ends the connection; a request under way fails for that reason, too."""
    async with native(tmp_path, 1) as (scene, _, proxy):
        await scene.routes("orders")
        proxy.stall()
        asking = asyncio.ensure_future(scene.changes("orders"))
        pinging = asyncio.ensure_future(scene.session.ping(1.5))
        await passing(scene.clock, lambda: pinging.done() and asking.done())
        assert isinstance(pinging.exception(), RequestTimeoutError)

        where = proxy.address
        reason = f"connection to {where} was closed on this side: request {INFO} to {where}: no answer within 1.5 s"
        assert str(asking.exception()) == f"no NameServer could answer: {reason}"
