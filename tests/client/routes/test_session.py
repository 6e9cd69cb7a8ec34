"""Which NameServer is asked, and when it is another one."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgpack
import pytest

from namesrv_client import RouteUnavailableError
from namesrv_client.routes.cache import RouteCache
from namesrv_client.routes.route import Answer
from namesrv_client.routes.session import ServerSession
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.errors import RemotingError, RequestTimeoutError
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.dead_ends import refusing_port
from tests.support.fake_clock import FakeClock, settle
from tests.support.guard import GUARD_SECONDS
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import topic_config
from tests.support.passing_time import passing
from tests.support.raw_peer import until
from tests.support.route_clients import (
    BROKER_A,
    BROKER_B,
    INFO,
    PULL,
    address_of,
    asked,
    client_settings,
    finished,
    registered,
)
from tests.support.scripted_server import ScriptedServer
from tests.support.spelling import NATIVE, cut
from tests.support.tcp_proxy import TcpProxy


class Scene:
    """A session, the cache that takes its answers, and its clock."""

    def __init__(self, clock: FakeClock, **settings: object) -> None:
        self.clock = clock
        self.cache = RouteCache(clock)
        self.settings = client_settings("10.0.0.1:9876", **settings)
        self.session = ServerSession(
            self.settings, clock, self.cache.point, protocols=ServerProtocols(), shuffle=lambda _: None
        )
        self.answers: list[Answer] = []

    def take(self, answer: Answer) -> None:
        """Note an answer, and take it in."""
        self.answers.append(answer)
        self.cache.apply(answer, "pull")

    async def changes(self, *topics: str) -> list[str]:
        """Ask for changes; the topics that were told, in order."""
        self.answers.clear()
        await self.session.changes(topics, self.take)
        return [topic for answer in self.answers for topic in answer.routes]

    async def routes(self, *topics: str) -> dict[str, bool]:
        """Ask about topics; whether each exists.

        Raises:
            RouteUnavailableError: nobody could tell about one of them.
        """
        self.answers.clear()
        for reason in (await self.session.routes(topics, self.take)).values():
            raise RouteUnavailableError(reason)
        return {topic: route is not None for answer in self.answers for topic, route in answer.routes.items()}

    async def watch(self, *topics: str, wait_seconds: float = 25.0) -> bool:
        """Ask for changes, and have the server wait for them."""
        return await self.session.watch(topics, wait_seconds, self.take)


@asynccontextmanager
async def session_of(clock: FakeClock, *addresses: str, **settings: object) -> AsyncIterator[Scene]:
    """A session with these servers, asked in this order."""
    scene = Scene(clock, **settings)
    async with asyncio.timeout(GUARD_SECONDS):
        scene.session.use(addresses)
        try:
            yield scene
        finally:
            await finished(clock, scene.session.close())


@asynccontextmanager
async def servers(path: Path, count: int, clock: FakeClock) -> AsyncIterator[list[InProcess]]:
    """Some NameServers, each with a broker."""
    async with AsyncExitStack() as stack:
        found = []
        for number in range(count):
            server = await stack.enter_async_context(namesrv_in_process(path / str(number), clock=clock))
            await registered(server, BROKER_A)
            found.append(server)
        yield found


# -- choosing ---------------------------------------------------------------------------------------------------------


def test_the_first_server_is_any_of_them() -> None:
    """A thousand clients with the same list spread over its servers."""
    chosen = set()
    for seed in range(50):
        session = ServerSession(
            client_settings(""), FakeClock(), RouteCache(FakeClock()).point, shuffle=random.Random(seed).shuffle
        )
        session.use(("a:1", "b:1", "c:1"))
        chosen.add(session.chosen)

    assert {"a:1", "b:1", "c:1"} == chosen


async def test_the_chosen_server_stays(tmp_path: Path) -> None:
    """All questions go to it, and no other is even connected to."""
    clock = FakeClock()
    async with (
        servers(tmp_path, 2, clock) as (first, second),
        session_of(clock, address_of(first), address_of(second)) as scene,
    ):
        for _ in range(3):
            await scene.routes("orders")

        assert (3, 0) == (asked(first, PULL), asked(second, PULL))
        assert 1 == len(scene.session.socket_descriptors())


async def test_a_server_that_fails_is_left_for_the_next_and_not_come_back_to(tmp_path: Path) -> None:
    """The one that answers stays, whoever is back."""
    clock = FakeClock()
    async with (
        servers(tmp_path, 2, clock) as (first, second),
        TcpProxy(first.address) as proxy,
        session_of(clock, proxy.address, address_of(second)) as scene,
    ):
        await scene.routes("orders")
        proxy.cut()
        await scene.routes("orders")
        await proxy.heal()
        await scene.routes("orders")

        assert (1, 2) == (asked(first, PULL), asked(second, PULL))
        assert address_of(second) == scene.session.chosen
        assert proxy.address in scene.session.errors


async def test_a_silent_server_is_overtaken_by_the_next(tmp_path: Path) -> None:
    """The next one is asked as well after a part of the call's time, and is the chosen one if it answers first."""
    clock = FakeClock()
    async with (
        servers(tmp_path, 2, clock) as (first, second),
        TcpProxy(first.address) as proxy,
        session_of(clock, proxy.address, address_of(second)) as scene,
    ):
        await scene.routes("orders")
        proxy.stall()
        began = clock.monotonic()
        asking = asyncio.ensure_future(scene.routes("orders"))
        await passing(clock, asking.done)

        assert {"orders": True} == asking.result()
        assert 0.8 >= clock.monotonic() - began
        assert address_of(second) == scene.session.chosen
        assert f"no answer within 0.75 s, and {address_of(second)} answered" == scene.session.errors[proxy.address]


async def test_a_slow_server_has_the_whole_call_to_answer(tmp_path: Path) -> None:
    """Nothing that was asked is taken back because the others are as slow: the first answer counts, even at 2.9 s."""
    clock = FakeClock()
    async with (
        servers(tmp_path, 1, clock) as (slow,),
        TcpProxy(slow.address) as proxy,
        ScriptedServer() as hole,
        session_of(clock, proxy.address, hole.address) as scene,
    ):
        proxy.stall()
        asking = asyncio.ensure_future(scene.routes("orders"))
        await clock.advance(2.9)
        await proxy.heal()

        assert {"orders": True} == await asking
        assert (proxy.address, 1) == (scene.session.chosen, hole.connections)


async def test_a_server_that_goes_on_answering_is_left_alone() -> None:
    """Only silence counts: five topics that come one by one, within 2.5 s, are nobody else's business."""
    clock, topics = FakeClock(), [f"t{number}" for number in range(5)]
    async with (
        ScriptedServer() as steady,
        ScriptedServer() as other,
        session_of(clock, steady.address, other.address, protocol="rocketmq") as scene,
    ):
        asking = asyncio.ensure_future(scene.changes(*topics))
        peer = await steady.accept()
        for number, question in enumerate([await peer.receive() for _ in topics], start=1):
            await clock.advance(0.5)
            peer.answer(question.opaque, code=17)
            while len(scene.answers) < number:
                await settle()

        assert topics == sorted(await asking)
        assert 0 == other.connections


async def test_each_server_is_tried_once_in_a_call() -> None:
    """Then the call fails, and says what was wrong with each."""
    clock = FakeClock()
    with refusing_port() as one, refusing_port() as other:
        addresses = [f"127.0.0.1:{port.getsockname()[1]}" for port in (one, other)]
        async with session_of(clock, *addresses) as scene:
            with pytest.raises(RouteUnavailableError) as raised:
                await scene.routes("orders")

            for address in addresses:
                assert 1 == str(raised.value).count(f"{address}: no connection to {address}")
            assert sorted(addresses) == sorted(scene.session.errors)


async def test_a_call_ends_in_its_own_time() -> None:
    """Five black holes are all asked in the first half of it, and all have the rest of it to answer."""
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        holes = [await stack.enter_async_context(ScriptedServer()) for _ in range(5)]
        async with session_of(clock, *(hole.address for hole in holes)) as scene:
            asking = asyncio.ensure_future(scene.routes("orders"))
            took = await passing(clock, asking.done)

            with pytest.raises(RouteUnavailableError) as raised:
                asking.result()
            assert 5 == str(raised.value).count("no answer within")
            assert 2.9 <= took <= 3.1
            assert [1, 1, 1, 1, 1] == [hole.connections for hole in holes]


async def test_two_errors_and_then_no_such_topic_are_three_questions_as_in_go() -> None:
    """TestQueryTopicRouteInfoFromServer: any answer, even TOPIC_NOT_EXIST, ends the call."""
    clock = FakeClock()
    async with ApacheServer() as one, ApacheServer() as two, ApacheServer() as three:
        one.routes["t"] = two.routes["t"] = 1
        async with session_of(clock, one.address, two.address, three.address, protocol="rocketmq") as scene:
            assert {"t": False} == await scene.routes("t")
            assert [1, 1, 1] == [len(server.topics_asked) for server in (one, two, three)]


async def test_a_server_that_refuses_a_question_stays_the_chosen_one() -> None:
    """Another one may do better with this question; that says nothing about the next."""
    clock = FakeClock()
    async with ApacheServer() as one, ApacheServer() as two:
        one.routes |= {"bad": 1, "good": apache_route("broker-a")}
        two.routes["bad"] = apache_route("broker-b")
        async with session_of(clock, one.address, two.address, protocol="rocketmq") as scene:
            await scene.routes("bad")
            await scene.routes("good")

            assert one.address == scene.session.chosen
            assert (["bad", "good"], ["bad"]) == (one.topics_asked, two.topics_asked)


async def test_a_server_that_is_not_ready_has_failed(tmp_path: Path) -> None:
    """It knows its brokers better in a while; meanwhile another one is asked."""
    clock = FakeClock()
    async with servers(tmp_path, 2, clock) as (first, second):
        first.namesrv.readiness._is_ready = False
        first.namesrv.readiness._ready_at = float("inf")
        async with session_of(clock, address_of(first), address_of(second)) as scene:
            await scene.routes("orders")

            assert address_of(second) == scene.session.chosen
            assert "name server not ready" in scene.session.errors[address_of(first)]


async def test_no_server_is_known() -> None:
    """As DefaultMQProducerTest's "No name server address": an error, at once."""
    async with session_of(FakeClock()) as scene:
        with pytest.raises(RouteUnavailableError, match="no NameServer is known"):
            await scene.routes("t")
        with pytest.raises(RouteUnavailableError, match="no NameServer is known"):
            await scene.watch("t")
        assert not await scene.session.ping()
        assert "<ServerSession [no server | 0 servers]>" == repr(scene.session)


async def test_another_list_keeps_the_chosen_server_if_it_is_in_it(tmp_path: Path) -> None:
    """And closes the connections to those that are not."""
    clock = FakeClock()
    async with servers(tmp_path, 3, clock) as (first, second, third):
        addresses = [address_of(server) for server in (first, second, third)]
        async with session_of(clock, *addresses[:2]) as scene:
            await scene.routes("orders")
            scene.session.use((addresses[2], addresses[0]))
            assert (addresses[0], addresses[2]) == scene.session.addresses
            assert 1 == len(scene.session.socket_descriptors())

            scene.session.use((addresses[2],))
            await scene.routes("orders")
            assert (1, 1, addresses[2]) == (asked(first, PULL), asked(third, PULL), scene.session.chosen)
            assert 1 == len(scene.session.socket_descriptors())
            await until(lambda: len(first.namesrv.connections) == 1)


async def test_a_server_that_leaves_the_list_during_a_call_is_not_asked_any_more() -> None:
    """Nor does anybody keep a connection to it."""
    clock = FakeClock()
    async with (
        ScriptedServer() as hole,
        ScriptedServer() as other,
        session_of(clock, hole.address, other.address) as scene,
    ):
        asking = asyncio.ensure_future(scene.routes("t"))
        await hole.accept()
        scene.session.use((hole.address,))
        await passing(clock, asking.done)

        assert isinstance(asking.exception(), RouteUnavailableError)
        assert 0 == other.connections


# -- a young server ---------------------------------------------------------------------------------------------------


async def test_a_young_servers_word_is_not_taken_for_a_topic_that_others_may_know(tmp_path: Path) -> None:
    """It has just started, and knows no broker yet; the other one knows the topic. The chosen one stays."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "young", clock=clock) as young,
        servers(tmp_path, 1, clock) as (old,),
        session_of(clock, address_of(young), address_of(old)) as scene,
    ):
        assert {"orders": True} == await scene.routes("orders")

        assert [young.namesrv.boot_id, old.namesrv.boot_id] == [answer.run for answer in scene.answers]
        assert address_of(young) == scene.session.chosen


async def test_when_only_young_servers_deny_a_topic_nobody_can_tell(tmp_path: Path) -> None:
    """A second later a broker may register with it."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as young, session_of(clock, address_of(young)) as scene:
        with pytest.raises(RouteUnavailableError, match="has just started and may not know topic t yet"):
            await scene.routes("t")

        await clock.advance(45.0)
        assert {"t": False} == await scene.routes("t")


async def test_only_what_the_first_could_not_tell_is_asked_of_the_next(tmp_path: Path) -> None:
    """And what neither can tell is named with its reason."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path / "1", clock=clock) as one, ApacheServer() as two:
        await registered(one, BROKER_A)
        two.routes |= {"elsewhere": apache_route("broker-b"), "bad": 1}
        async with session_of(clock, address_of(one), two.address, protocol="auto") as scene:
            reasons = await scene.session.routes(["orders", "elsewhere", "none", "bad"], scene.take)

            assert ["bad"] == list(reasons)
            assert f"{address_of(one)}: has just started" in reasons["bad"]
            assert f"{two.address}: topic bad: a bug" in reasons["bad"]
            assert ["bad", "elsewhere", "none"] == sorted(two.topics_asked)
            assert ["broker-a", "broker-b"] == sorted(
                broker.broker_name
                for answer in scene.answers
                for route in answer.routes.values()
                for broker in (() if route is None else route.broker_datas)
            )


# -- changes ----------------------------------------------------------------------------------------------------------


async def test_unchanged_topics_are_one_question_with_nothing_in_its_answer(tmp_path: Path) -> None:
    """However many there are."""
    clock = FakeClock()
    async with servers(tmp_path, 1, clock) as (server,), session_of(clock, address_of(server)) as scene:
        assert ["bills", "none", "orders"] == sorted(await scene.changes("orders", "bills", "none"))
        assert [] == await scene.changes("orders", "bills", "none")

        assert (2, 1) == (asked(server, PULL), asked(server, INFO))
        assert [True] == [answer.is_conditional for answer in scene.answers]


async def test_only_what_changed_is_told(tmp_path: Path) -> None:
    """And a topic that was not known yet."""
    clock = FakeClock()
    async with servers(tmp_path, 1, clock) as (server,), session_of(clock, address_of(server)) as scene:
        await scene.changes("orders", "bills")
        await registered(server, BROKER_A, topics=("orders", "bills", "refunds"), counter=2)

        assert ["refunds"] == await scene.changes("orders", "bills", "refunds")


async def test_another_server_is_asked_about_everything(tmp_path: Path) -> None:
    """Its changes are not those of the first; and neither are the first one's when it is back."""
    clock = FakeClock()
    async with (
        servers(tmp_path, 2, clock) as (first, second),
        TcpProxy(first.address) as proxy,
        session_of(clock, proxy.address, address_of(second)) as scene,
    ):
        await scene.changes("orders", "bills")
        proxy.cut()
        assert ["bills", "orders"] == sorted(await scene.changes("orders", "bills"))
        assert [] == await scene.changes("orders", "bills")
        assert [second.namesrv.boot_id] == [answer.run for answer in scene.answers]


async def test_a_connection_that_was_lost_is_no_reason_to_ask_about_everything(tmp_path: Path) -> None:
    """The run goes on, and its changes as well."""
    clock = FakeClock()
    async with (
        servers(tmp_path, 1, clock) as (server,),
        TcpProxy(server.address) as proxy,
        session_of(clock, proxy.address) as scene,
    ):
        await scene.changes("orders", "bills")
        proxy.cut()
        await proxy.heal()
        await until(lambda: not scene.session.socket_descriptors())

        assert [] == await scene.changes("orders", "bills")


async def test_many_topics_are_asked_about_in_parts(tmp_path: Path) -> None:
    """500 at a time: the answer about 10,000 would not fit into a frame, and decoding it would hold up the loop."""
    clock = FakeClock()
    topics = [f"topic-{number}" for number in range(1_200)]
    async with namesrv_in_process(tmp_path, clock=clock) as server:
        await registered(server, BROKER_A, topics=tuple(topics))
        async with session_of(clock, address_of(server)) as scene:
            assert sorted(topics) == sorted(await scene.changes(*topics))
            assert [500, 500, 200] == [len(answer.topics) for answer in scene.answers]

            assert [] == await scene.changes(*topics)
            assert [1_200] == [len(answer.topics) for answer in scene.answers]


async def test_an_answer_that_does_not_fit_into_a_frame_is_asked_for_in_smaller_parts(tmp_path: Path) -> None:
    """The server says so, and halves are tried; also when so much has changed."""
    clock = FakeClock()
    # each route has about 230 bytes
    topics = tuple(f"topic-{number}" for number in range(400))
    async with namesrv_in_process(tmp_path, clock=clock, max_frame_bytes=65_536) as server:
        await registered(server, BROKER_A, topics=topics[:200])
        await registered(server, BROKER_B, topics=topics[200:])
        async with session_of(clock, address_of(server)) as scene:
            assert sorted(topics) == sorted(await scene.changes(*topics))
            assert [200, 200] == [len(answer.topics) for answer in scene.answers]
            assert [] == await scene.changes(*topics)

            fewer = [topic_config(topic, write=4) for topic in topics]
            await registered(server, BROKER_A, topics=tuple(fewer[:200]), counter=2)
            await registered(server, BROKER_B, topics=tuple(fewer[200:]), counter=2)
            assert sorted(topics) == sorted(await scene.changes(*topics))
            assert [] == await scene.changes(*topics)


async def test_one_bad_topic_does_not_keep_the_others_from_being_asked_about(tmp_path: Path) -> None:
    """A name of 256 bytes is refused, and the whole question with it."""
    clock = FakeClock()
    async with servers(tmp_path, 1, clock) as (server,), session_of(clock, address_of(server)) as scene:
        found = await scene.changes("orders", "x" * 256, "bills")

        assert ["bills", "orders"] == sorted(found)
        assert "PULL_ROUTES" in scene.session.errors[address_of(server)]


async def test_a_server_that_refuses_everything_is_not_asked_for_ever() -> None:
    """Halving ends."""
    clock = FakeClock()
    async with ScriptedServer() as scripted, session_of(clock, scripted.address, protocol="auto") as scene:
        asking = asyncio.ensure_future(scene.changes(*(f"topic-{number}" for number in range(600))))
        questions = await _refusing(scripted, asking.done)

        with pytest.raises(RouteUnavailableError, match="a bug"):
            await asking
        assert 24 == questions


def _either(*conditions: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: any(condition() for condition in conditions)


async def _refusing(scripted: ScriptedServer, is_over: Callable[[], bool]) -> int:
    """A native server with a bug; how many pulls it refused."""
    peer, refused = await scripted.accept(), 0
    while not is_over():
        receiving = asyncio.ensure_future(peer.receive())
        await until(_either(receiving.done, is_over))
        if not receiving.done():
            receiving.cancel()
            break
        question = receiving.result()
        header: list[object] = [0, question.opaque, 1, 479, None, None]
        if question.code == INFO:
            peer.send(cut(NATIVE, msgpack.packb(header), msgpack.packb({"boot_id": "b1"})))
        else:
            refused += 1
            header[0], header[4] = 1, "a bug"
            peer.send(cut(NATIVE, msgpack.packb(header)))
    return refused


# -- RocketMQ's protocol ----------------------------------------------------------------------------------------------


async def test_rocketmq_topics_are_asked_one_by_one() -> None:
    """One GET_ROUTEINFO_BY_TOPIC each."""
    clock = FakeClock()
    async with ApacheServer() as apache:
        apache.routes |= {"t": apache_route("broker-a"), "u": apache_route("broker-b")}
        async with session_of(clock, apache.address, protocol="rocketmq") as scene:
            assert ["t", "u", "v"] == sorted(await scene.changes("t", "u", "v"))
            assert ["t", "u", "v"] == sorted(apache.topics_asked)
            assert {"t": True, "u": True, "v": False} == {
                topic: route is not None for answer in scene.answers for topic, route in answer.routes.items()
            }


async def test_the_failure_of_one_topic_does_not_touch_the_others() -> None:
    """An error, a body that is no route, and no answer at all: in Java each of them ends the round."""
    clock = FakeClock()
    async with ApacheServer() as apache:
        good = {f"t{number}": apache_route("broker-a") for number in range(40)}
        apache.routes |= {**good, "error": 1, "garbage": b"not json", "silent": None}
        async with session_of(clock, apache.address, protocol="rocketmq") as scene:
            asking = asyncio.ensure_future(scene.changes("error", "garbage", "silent", *good))
            await until(lambda: len(scene.answers) == 40)
            await passing(clock, asking.done)

            assert sorted(good) == sorted(asking.result())
            assert apache.address == scene.session.chosen
            assert "topic silent" in scene.session.errors[apache.address]
            assert 1 == apache.accepted


async def test_a_rocketmq_server_that_falls_silent_is_left_for_the_next() -> None:
    """When it answers nothing at all any more, after one second; what it has answered until then is kept."""
    clock = FakeClock()
    topics = [f"t{number}" for number in range(40)]
    async with ApacheServer() as one, ApacheServer() as two:
        two.routes |= dict.fromkeys(topics, apache_route("broker-b"))
        one.routes |= dict.fromkeys(topics)
        async with session_of(clock, one.address, two.address, protocol="rocketmq") as scene:
            asking = asyncio.ensure_future(scene.changes(*topics))
            took = await passing(clock, asking.done)

            assert sorted(topics) == sorted(asking.result())
            assert (16, 40) == (len(one.topics_asked), len(two.topics_asked))
            assert 1.3 >= took
            assert two.address == scene.session.chosen


async def test_a_rocketmq_server_that_dies_in_the_middle_is_left_for_the_next() -> None:
    """The connection is lost with questions on it."""
    clock = FakeClock()
    topics = [f"t{number}" for number in range(40)]
    async with ApacheServer() as one, ApacheServer() as two:
        two.routes |= dict.fromkeys(topics, apache_route("broker-b"))
        one.routes |= dict.fromkeys(topics)
        async with session_of(clock, one.address, two.address, protocol="rocketmq") as scene:
            asking = asyncio.ensure_future(scene.changes(*topics))
            await until(lambda: len(one.topics_asked) == 16)
            await one.stop()

            assert sorted(topics) == sorted(await asking)


async def test_auto_speaks_with_servers_of_both_kinds(tmp_path: Path) -> None:
    """Each is asked in its own protocol."""
    clock = FakeClock()
    async with servers(tmp_path, 1, clock) as (native,), ApacheServer() as apache, TcpProxy(native.address) as proxy:
        apache.routes["orders"] = apache_route("broker-z")
        async with session_of(clock, proxy.address, apache.address, protocol="auto") as scene:
            assert ["orders"] == await scene.changes("orders")
            assert native.namesrv.boot_id == scene.answers[0].run
            proxy.cut()
            assert ["orders"] == await scene.changes("orders")
            assert scene.answers[0].revision is None
            # without revisions it is always asked about everything
            assert ["orders"] == await scene.changes("orders")


async def test_a_rocketmq_server_has_nothing_to_watch() -> None:
    """And is not pinged with a question that it would hang up on."""
    clock = FakeClock()
    async with ApacheServer() as apache, session_of(clock, apache.address, protocol="auto") as scene:
        with pytest.raises(RouteUnavailableError, match="does not support watches"):
            await scene.watch("t")
        connections = apache.accepted

        assert not await scene.session.ping()
        await scene.routes("t")
        assert (connections, 2) == (apache.accepted - 1, apache.refused)


# -- watching ---------------------------------------------------------------------------------------------------------


async def test_a_watch_is_answered_when_something_changes(tmp_path: Path) -> None:
    """And begins with everything that is not known yet."""
    clock = FakeClock()
    async with servers(tmp_path, 1, clock) as (server,), session_of(clock, address_of(server)) as scene:
        assert await scene.watch("orders", "refunds")
        assert {"orders", "refunds"} == {topic for answer in scene.answers for topic in answer.routes}
        scene.answers.clear()

        watching = asyncio.ensure_future(scene.watch("orders", "refunds"))
        await until(lambda: len(server.namesrv.watchers) == 1)
        await registered(server, BROKER_A, topics=("refunds", "returns"))

        assert await watching
        assert [["refunds"]] == [list(answer.routes) for answer in scene.answers]


async def test_a_watch_ends_by_itself(tmp_path: Path) -> None:
    """With nothing new, which confirms what is known."""
    clock = FakeClock()
    async with servers(tmp_path, 1, clock) as (server,), session_of(clock, address_of(server)) as scene:
        await scene.watch("orders")
        watching = asyncio.ensure_future(scene.watch("orders", wait_seconds=25.0))
        await until(lambda: len(server.namesrv.watchers) == 1)
        await clock.advance(25.0)

        assert not await watching
        assert 0.0 == scene.cache.age("orders")


async def test_a_watch_on_a_dead_server_fails_and_moves_on(tmp_path: Path) -> None:
    """Whoever watches asks again, and it is another server."""
    clock = FakeClock()
    async with (
        servers(tmp_path, 2, clock) as (first, second),
        TcpProxy(first.address) as proxy,
        session_of(clock, proxy.address, address_of(second)) as scene,
    ):
        await scene.watch("orders")
        watching = asyncio.ensure_future(scene.watch("orders"))
        await until(lambda: len(first.namesrv.watchers) == 1)
        proxy.cut()

        with pytest.raises(RemotingError, match="closed"):
            await watching
        assert address_of(second) == scene.session.chosen


async def test_a_ping_that_is_not_answered_ends_the_watch_beside_it(tmp_path: Path) -> None:
    """The connection is half open: nothing else would ever tell."""
    clock = FakeClock()
    async with (
        servers(tmp_path, 2, clock) as (first, second),
        TcpProxy(first.address) as proxy,
        session_of(clock, proxy.address, address_of(second)) as scene,
    ):
        await scene.watch("orders")
        assert not await scene.session.ping()
        watching = asyncio.ensure_future(scene.watch("orders"))
        await until(lambda: len(first.namesrv.watchers) == 1)
        proxy.stall()

        pinging = asyncio.ensure_future(scene.session.ping())
        await passing(clock, lambda: pinging.done() and watching.done())

        assert isinstance(pinging.exception(), RequestTimeoutError)
        assert isinstance(watching.exception(), RemotingError)
        assert address_of(second) == scene.session.chosen


async def test_a_ping_notices_another_run(tmp_path: Path) -> None:
    """Behind a balancer that keeps our connection open."""
    clock = FakeClock()
    async with (
        servers(tmp_path, 2, clock) as (first, second),
        TcpProxy(first.address) as proxy,
        session_of(clock, proxy.address) as scene,
    ):
        await scene.routes("orders")
        proxy.switch(second.address)
        # what is sent before the way is open again is lost
        await until(lambda: len(second.namesrv.connections) == 2)

        assert await scene.session.ping()
        assert not await scene.session.ping()


async def test_after_the_end_nothing_is_asked() -> None:
    """No connection is made that nobody would close."""
    clock = FakeClock()
    async with ScriptedServer() as server, session_of(clock, server.address) as scene:
        await scene.session.close()

        with pytest.raises(RouteUnavailableError, match="the client is closed"):
            await scene.routes("t")
        assert 0 == server.connections
