"""The client serves what it knows, asks for what it does not, and says why there is no route."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from namesrv_client import (
    BrokerAddress,
    ClientSettings,
    MessageQueue,
    NoQueueError,
    RouteClient,
    RouteError,
    RouteUnavailableError,
    TopicNotFoundError,
)
from namesrv_remoting.errors import RemotingError
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import FakeClock
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, topic_config
from tests.support.passing_time import passing
from tests.support.raw_peer import until
from tests.support.route_clients import (
    BROKER_A,
    BROKER_B,
    INFO,
    PULL,
    SLAVE_A,
    address_of,
    asked,
    broker_names,
    register,
    registered,
    route_client,
    unregister,
)
from tests.support.tcp_proxy import TcpProxy


@asynccontextmanager
async def scene(
    path: Path, *brokers: Broker, **settings: Any
) -> AsyncIterator[tuple[FakeClock, InProcess, RouteClient]]:
    """A server with brokers, which has run for a minute, and a client of it."""
    clock = FakeClock()
    async with namesrv_in_process(path / "server", clock=clock) as server:
        await registered(server, *brokers)
        clock.stall(60.0)
        async with route_client(clock, server, **settings) as client:
            yield clock, server, client


async def only_slaves(server: InProcess, *slaves: Broker) -> None:
    """A group whose master has gone: slaves alone bring no topics."""
    master = slaves[0]._replace(id=0, addr="10.0.99.99:10911")
    await unregister(await registered(server, master, *slaves), master)


def objects() -> Counter[str]:
    """How many objects of the client, of its connections and of routes there are, by class, and tasks besides."""
    gc.collect()
    ours = ("namesrv_client", "namesrv_remoting.aio.client", "namesrv_remoting.bodies", "_asyncio")
    kinds = (type(found) for found in gc.get_objects())
    return Counter(kind.__name__ for kind in kinds if str(kind.__module__).startswith(ours))


# -- routes -----------------------------------------------------------------------------------------------------------


async def test_a_route_is_asked_once_and_then_served_from_memory(tmp_path: Path) -> None:
    """testQueryTopicRouteData, testGetAnExistTopicRouteData: the second use of a topic asks nobody."""
    async with scene(tmp_path, BROKER_A, BROKER_B) as (clock, server, client):
        first = await client.route("orders")
        clock.stall(10.0)
        second = await client.route("orders")

        assert ["broker-a", "broker-b"] == [data.broker_name for data in first.data.broker_datas]
        assert (first, 10.0, "pull") == (second, second.age, second.source)
        assert (1, 1) == (asked(server, INFO), asked(server, PULL))
        assert client.chosen_server == address_of(server)


@pytest.mark.parametrize("listed", ["a:1;b:2", ["a:1", "b:2"]])
async def test_a_client_of_name_servers_alone_has_the_default_settings(listed: str | list[str]) -> None:
    """A string or a list; before it is started it says so."""
    client = RouteClient(listed)

    assert ClientSettings(name_servers="a:1;b:2", client_name=client.settings.client_name) == client.settings
    for asking in (client.route("t"), client.refresh(), client.select_queue("t"), client.subscribe_queues("t")):
        with pytest.raises(RuntimeError, match=r"^the client is not started$"):
            await asking


async def test_no_server_is_waited_for_at_the_start() -> None:
    """A producer starts while the NameServers do; what it cannot have is said when it asks."""
    async with route_client(FakeClock(), "127.0.0.1:1") as client:
        with pytest.raises(RouteUnavailableError, match=r"no NameServer could answer: 127\.0\.0\.1:1: no connection"):
            await client.route("orders")


async def test_the_cache_serves_for_ever_when_all_servers_are_down(tmp_path: Path) -> None:
    """As in RocketMQ; how old it is can be seen."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, TcpProxy(server.address) as proxy:
        await registered(server, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, proxy.address) as client:
            await client.route("orders")
            proxy.cut()
            clock.stall(86_400.0)

            known = await client.route("orders")

            assert 86_400.0 == known.age
            assert ["a0", "a1"] == [f"a{queue.queue_id}" for queue in await client.subscribe_queues("orders")][:2]
            assert "broker-a" == (await client.select_queue("orders")).broker_name


async def test_churn_leaves_nothing_behind(tmp_path: Path) -> None:
    """A server that restarts and routes that change 400 times: there are no more objects than after 100 times."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, TcpProxy(server.address) as proxy:
        peer = await registered(server, BROKER_A)
        async with route_client(clock, proxy.address, warm_up_seconds=0.0) as client:
            await client.route("orders")
            counts = []
            for number in range(1, 401):
                proxy.cut()
                await until(lambda: not client._session.socket_descriptors())
                await proxy.heal()
                await register(peer, BROKER_A, topics=(topic_config("orders", write=number),), counter=number + 1)
                assert await client.refresh()
                # time-outs of questions that were answered
                await clock.advance(5.0)
                if number in (100, 400):
                    counts.append(objects())

            known = client.cached("orders")
            assert known is not None
            assert 400 == known.data.queue_datas[0].write_queue_nums
            # 300 more changes; some that no route has any more may be remembered until there are 256
            assert 100 > max((counts[1] - counts[0]).values(), default=0)


async def test_a_cache_ttl_ends_that(tmp_path: Path) -> None:
    """Then it is an error rather than an old route, for consumers and producers."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, TcpProxy(server.address) as proxy:
        await registered(server, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, proxy.address, cache_ttl_seconds=100.0, poll_seconds=1000.0) as client:
            await client.route("orders")
            await client.select_queue("orders")
            proxy.cut()
            clock.stall(100.0)
            await client.route("orders")
            await client.select_queue("orders")

            clock.stall(0.1)
            with pytest.raises(RouteUnavailableError):
                await client.route("orders")
            with pytest.raises(RouteUnavailableError):
                await client.select_queue("orders")
            assert client.known_publish_info("orders") is None
            assert client.cached("orders") is not None
            # whoever wants to can still have it
            assert "orders" == (await client.route("orders", max_stale=1e9)).topic

            await proxy.heal()
            clock.stall(10.0)
            await client.route("orders")
            assert "broker-a" == (await client.select_queue("orders")).broker_name


async def test_a_caller_says_how_old_a_route_may_be(tmp_path: Path) -> None:
    """A younger one is asked for; 0 asks always."""
    async with scene(tmp_path, BROKER_A, poll_seconds=1000.0) as (clock, server, client):
        await client.route("orders")
        clock.stall(10.0)

        assert 10.0 == (await client.route("orders", max_stale=10.0)).age
        assert 1 == asked(server, PULL)
        assert 0.0 == (await client.route("orders", max_stale=9.9)).age
        assert 2 == asked(server, PULL)


async def test_too_old_and_nobody_to_ask(tmp_path: Path) -> None:
    """It cannot be told; that is not "does not exist"."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, TcpProxy(server.address) as proxy:
        await registered(server, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, proxy.address) as client:
            await client.route("orders")
            proxy.cut()
            clock.stall(10.0)

            with pytest.raises(RouteUnavailableError):
                await client.route("orders", max_stale=5.0)


async def test_too_old_and_only_a_young_server_to_ask(tmp_path: Path) -> None:
    """Its partial answer is not believed, and does not make the old route younger."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "1", clock=clock) as old,
        namesrv_in_process(tmp_path / "2", clock=clock) as young,
        TcpProxy(old.address) as proxy,
    ):
        await registered(old, BROKER_A, BROKER_B)
        clock.stall(60.0)
        async with route_client(clock, proxy.address, poll_seconds=1000.0) as client:
            await client.route("orders")
            # a new server, in the old one's place
            async with namesrv_in_process(tmp_path / "3", clock=clock) as newest:
                await registered(newest, BROKER_A)
                proxy.switch(newest.address)
                await until(lambda: len(newest.namesrv.connections) == 2)
                clock.stall(10.0)

                with pytest.raises(
                    RouteUnavailableError, match="the cached route is 10 s old, and no NameServer has confirmed"
                ):
                    await client.route("orders", max_stale=5.0)
                assert ["broker-a", "broker-b"] == broker_names(client)
        assert 0 == asked(young, PULL)


# -- no route ---------------------------------------------------------------------------------------------------------


async def test_no_such_topic_is_positive(tmp_path: Path) -> None:
    """A server that has had time to hear of all brokers says so; the topic is not kept an eye on."""
    async with scene(tmp_path, BROKER_A) as (_, _, client):
        with pytest.raises(TopicNotFoundError, match="topic none does not exist, according to"):
            await client.route("none")

        assert (None, False) == (client.cached("none"), client.is_in_use("none"))


async def test_a_server_that_has_just_started_cannot_tell(tmp_path: Path) -> None:
    """Its brokers may be on their way."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, route_client(clock, server) as client:
        with pytest.raises(RouteUnavailableError, match="has just started and may not know topic none yet"):
            await client.route("none")


def test_errors_are_of_one_family() -> None:
    """Whoever does not care why catches one class, which is one of the wire's as well."""
    for error in (TopicNotFoundError, RouteUnavailableError, NoQueueError):
        assert issubclass(error, RouteError)
    assert issubclass(RouteError, RemotingError)


async def test_a_topic_that_went_is_marked_and_still_served(tmp_path: Path) -> None:
    """Four upstream pull requests wanted to know; the caller decides."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server:
        peer = await registered(server, BROKER_A)
        clock.stall(60.0)
        async with route_client(clock, server) as client:
            await client.route("orders")
            await unregister(peer, BROKER_A)
            clock.stall(5.0)
            went = clock.monotonic()
            assert await client.refresh()
            clock.stall(5.0)
            assert await client.refresh()

            known = await client.route("orders")
            assert (went, 0.0, ["broker-a"]) == (known.confirmed_absent_since, known.age, list(known.brokers))
            assert "broker-a" == (await client.select_queue("orders")).broker_name

            await register(peer, BROKER_A)
            assert await client.refresh()
            assert (await client.route("orders")).confirmed_absent_since is None


# -- changes ----------------------------------------------------------------------------------------------------------


async def test_changes_are_told_with_what_differs(tmp_path: Path) -> None:
    """To callbacks and to those who iterate; a callback that fails harms nobody."""
    async with scene(tmp_path, BROKER_A) as (_, server, client):
        told = []

        def fail(_: object) -> None:
            raise ZeroDivisionError

        client.on_change(fail)
        end = client.on_change(lambda change: told.append((change.topic, change.brokers_added, change.queues_changed)))
        changes = client.changes()

        await client.route("orders")
        await registered(server, BROKER_B)
        await client.refresh()
        end()
        await registered(server, BROKER_A, topics=(topic_config("orders", write=2), "bills"), counter=2)
        await client.refresh()

        assert [("orders", ("broker-a",), ()), ("orders", ("broker-b",), ())] == told
        seen = [await anext(changes) for _ in range(3)]
        assert [(), ("broker-a",)] == [change.queues_changed for change in seen[1:]]
        assert seen[1].new == seen[2].old
    with pytest.raises(StopAsyncIteration):
        await anext(changes)


async def test_a_callback_sees_the_client_as_it_is_after_the_change(tmp_path: Path) -> None:
    """The new route, and queues that are not those of the old one."""
    async with scene(tmp_path, BROKER_A) as (_, server, client):
        await client.publish_info("orders")
        seen = []
        client.on_change(lambda change: seen.append((broker_names(client), client.known_publish_info(change.topic))))

        await registered(server, BROKER_B)
        await client.refresh()

        assert [(["broker-a", "broker-b"], None)] == seen


# -- producers --------------------------------------------------------------------------------------------------------


async def test_messages_go_round_the_queues(tmp_path: Path) -> None:
    """Broker by broker, each task in its own turn."""
    async with scene(tmp_path) as (_, server, client):
        await registered(server, BROKER_A, BROKER_B, topics=(topic_config("orders", write=2), "bills"))

        picked = [await client.select_queue("orders") for _ in range(8)]
        queues = list((await client.publish_info("orders")).queues)

        begin = queues.index(picked[0])
        assert [queues[(begin + number) % 4] for number in range(8)] == picked
        assert {"broker-a"} == {(await client.select_queue("orders", "broker-b")).broker_name for _ in range(10)}


async def test_every_task_has_its_own_turn(tmp_path: Path) -> None:
    """Two that send at the same time each go round all queues."""
    async with scene(tmp_path, BROKER_A) as (_, _, client):

        async def eight() -> list[MessageQueue]:
            return [await client.select_queue("orders") for _ in range(8)]

        for picked in await asyncio.gather(eight(), eight()):
            assert list(range(8)) == sorted(queue.queue_id for queue in picked)


async def test_a_topic_without_master_has_no_queue_to_write_to(tmp_path: Path) -> None:
    """There is a route, and consumers use it."""
    async with scene(tmp_path) as (_, server, client):
        await only_slaves(server, SLAVE_A)
        with pytest.raises(NoQueueError, match="topic orders has no queue that can be written to"):
            await client.select_queue("orders")
        assert 8 == len(await client.subscribe_queues("orders"))


async def test_an_unknown_topic_is_sent_to_the_default_topics_brokers(tmp_path: Path) -> None:
    """TestUpdateTopicRouteInfoFromNameServer in default mode: TBW102 has 8 queues, a new topic gets 4."""
    async with scene(tmp_path, poll_seconds=1000.0) as (clock, server, client):
        peer = await registered(server, BROKER_A, topics=(topic_config("TBW102", perm=7), "bills"))

        assert "broker-a" == (await client.select_queue("new")).broker_name
        assert 4 == (await client.publish_info("new")).count
        before = asked(server, PULL)
        for _ in range(100):
            await client.select_queue("new")
        assert before == asked(server, PULL)

        # the broker creates it at the first message
        await register(peer, BROKER_A, topics=("TBW102", "bills", topic_config("new", write=6)), counter=2)
        clock.stall(1.0)
        await client.select_queue("new")
        assert 6 == (await client.publish_info("new")).count


async def test_a_new_topic_is_watched_for(tmp_path: Path) -> None:
    """As soon as a broker has created it, its own queues are used."""
    async with scene(tmp_path, poll_seconds=1000.0, watch=True) as (clock, server, client):
        peer = await registered(server, BROKER_A, topics=("TBW102", "bills"))
        assert 4 == (await client.publish_info("new")).count
        await passing(clock, lambda: len(server.namesrv.watchers) == 1)

        await register(peer, BROKER_A, topics=("TBW102", "bills", "new"), counter=2)

        await passing(clock, lambda: client.cached("new") is not None, at_most=1.0)
        assert 8 == (await client.publish_info("new")).count


async def test_without_a_default_topic_an_unknown_topic_is_an_error(tmp_path: Path) -> None:
    """As DefaultMQProducerTest's "No route info of this topic"."""
    async with scene(tmp_path, BROKER_A) as (_, _, client):
        with pytest.raises(TopicNotFoundError):
            await client.select_queue("new")


async def test_a_failed_broker_is_left_out(tmp_path: Path) -> None:
    """With fault tolerance; and back when a send got through."""
    async with scene(tmp_path, BROKER_A, BROKER_B, fault_tolerance=True) as (_, _, client):
        client.report("broker-a", 0.1, failed=True)
        assert {"broker-b"} == {(await client.select_queue("orders")).broker_name for _ in range(20)}
        assert [] == client.unreachable_brokers

        client.report("broker-a", 0.01)
        assert {"broker-a", "broker-b"} == {(await client.select_queue("orders")).broker_name for _ in range(20)}


async def test_a_broker_that_can_be_reached_again_is_found_by_the_probe(tmp_path: Path) -> None:
    """Every 3 s somebody connects to its master."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server, TcpProxy(server.address) as listening:
        await registered(server, BROKER_A._replace(addr=listening.address), BROKER_B)
        async with route_client(clock, server, fault_tolerance=True, probe="connect") as client:
            await client.route("orders")
            listening.cut()
            client.report("broker-a", 0.1, failed=True)
            await clock.advance(12.0)
            assert ["broker-a"] == client.unreachable_brokers

            await listening.heal()
            await passing(clock, lambda: not client.unreachable_brokers, at_most=3.5)
            assert {"broker-a", "broker-b"} == {(await client.select_queue("orders")).broker_name for _ in range(20)}


async def test_a_probe_of_the_applications_own(tmp_path: Path) -> None:
    """It is told whom to look at, and says who is back."""
    async with scene(tmp_path, BROKER_A, fault_tolerance=True, probe="own") as (_, _, client):
        client.report("broker-a", 0.1, failed=True)
        assert ["broker-a"] == client.unreachable_brokers

        client.reached("broker-a")
        assert [] == client.unreachable_brokers


# -- brokers ----------------------------------------------------------------------------------------------------------


def instances(*ids: int) -> list[Broker]:
    """broker-a with these ids."""
    return [Broker("broker-a", broker_id, f"10.0.{broker_id}.1:10911") for broker_id in ids]


@pytest.mark.parametrize(
    ("ids", "wanted", "only_this", "expected"),
    [
        # MQClientInstanceTest.testFindBrokerAddressInSubscribe and Go's TestFindBrokerAddressInSubscribe
        ((0, 1, 2), 0, False, 0),
        ((0, 1, 2), 0, True, 0),
        ((0, 1, 2), 1, False, 1),
        ((0, 1, 2), 1, True, 1),
        # ids shift by one after an election: 1 is gone, and 2 is what is meant
        ((0, 2, 3), 1, False, 2),
        ((0, 2, 3), 1, True, 2),
        # Go: any that is there
        ((0, 1, 2), 4, False, 0),
        ((0, 1, 2), 4, True, None),
        # …WithOneBroker: only the master is there
        ((0,), 1, False, 0),
        ((0,), 1, True, None),
        # a master that is missing is replaced by a slave for readers, and by nobody for those who need it
        ((1, 2), 0, False, 1),
        ((1, 2), 0, True, None),
        ((2,), 0, False, 2),
    ],
)
async def test_finding_an_instance_of_a_broker(
    ids: tuple[int, ...],
    wanted: int,
    only_this: bool,  # noqa: FBT001 - a case
    expected: int | None,
    tmp_path: Path,
) -> None:
    """Section 3.1: that id, or the next one, or any unless only this one will do."""
    async with scene(tmp_path) as (_, server, client):
        await (registered(server, *instances(*ids)) if 0 in ids else only_slaves(server, *instances(*ids)))
        await client.route("orders")

        found = client.find_broker("broker-a", wanted, only_this=only_this)

        if expected is None:
            assert found is None
        else:
            assert BrokerAddress("broker-a", expected, f"10.0.{expected}.1:10911") == found
            assert (expected != 0) == found.is_slave


async def test_messages_are_written_to_masters_only(tmp_path: Path) -> None:
    """findBrokerAddressInAdmin, ClientMetadataTest: the master's address, or nothing."""
    async with scene(tmp_path, *instances(0, 1)) as (_, server, client):
        await only_slaves(server, Broker("broker-s", 1, "10.0.9.9:1"))
        await client.route("orders")

        assert ("10.0.0.1:10911", None, None) == (
            client.master_of("broker-a"), client.master_of("broker-s"), client.master_of("stranger"),
        )  # fmt: skip
        assert client.find_broker("stranger", 0, only_this=False) is None


async def test_a_queue_is_its_own_brokers_unless_its_topic_is_static() -> None:
    """ClientMetadataTest: an unknown topic ⇒ its own broker; a mapped queue ⇒ the broker that has it now."""
    clock = FakeClock()
    async with ApacheServer() as apache:
        apache.routes["plain"] = apache_route("broker-a")
        apache.routes["static"] = apache_route("broker-a")[:-1] + (
            b',"topicQueueMappingByBroker":{"broker-a":{"topic":"static","bname":"broker-a","scope":"__global__",'
            b'"epoch":1,"totalQueues":2,"currIdMap":{0:0}}}}'
        )
        async with route_client(clock, apache.address, protocol="rocketmq") as client:
            plain = await client.select_queue("plain")
            await client.route("static")

            logical = [MessageQueue("static", "__syslo__global__", number) for number in range(2)]
            assert logical == await client.subscribe_queues("static")
            assert ("broker-a", "broker-a", "__syslo__none__", "broker-z") == (
                client.broker_of(plain), client.broker_of(logical[0]), client.broker_of(logical[1]),
                client.broker_of(MessageQueue("unknown", "broker-z", 3)),
            )  # fmt: skip


# -- where the servers are --------------------------------------------------------------------------------------------


async def test_servers_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NAMESRV_ADDR when nothing is said, as RocketMQ's clients look."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server:
        await registered(server, BROKER_A)
        monkeypatch.setenv("NAMESRV_ADDR", address_of(server))
        async with route_client(clock, "") as client:
            await client.route("orders")
            assert address_of(server) == client.chosen_server


async def test_servers_that_cannot_be_looked_up(tmp_path: Path) -> None:
    """The error says why; when they can, they are used."""
    clock = FakeClock()
    listed = tmp_path / "servers"
    async with namesrv_in_process(tmp_path / "data", clock=clock) as server:
        await registered(server, BROKER_A)
        async with route_client(clock, f"file:{listed}") as client:
            with pytest.raises(RouteUnavailableError, match="no NameServer is known"):
                await client.route("orders")
            assert client.name_servers_error is not None
            assert "servers" in client.name_servers_error

            listed.write_text(address_of(server))
            await clock.advance(1.0)
            await until(lambda: client.chosen_server is not None)
            await client.route("orders")
            assert client.name_servers_error is None


async def test_a_server_that_leaves_the_list_is_left(tmp_path: Path) -> None:
    """With its connection; the next look is after 120 s."""
    clock = FakeClock()
    listed = tmp_path / "servers"
    async with (
        namesrv_in_process(tmp_path / "1", clock=clock) as first,
        namesrv_in_process(tmp_path / "2", clock=clock) as second,
    ):
        await registered(first, BROKER_A)
        await registered(second, BROKER_A)
        listed.write_text(address_of(first))
        async with route_client(clock, f"file:{listed}", poll_seconds=1000.0) as client:
            await client.route("orders")
            listed.write_text(address_of(second))
            await clock.advance(119.0)
            assert address_of(first) == client.chosen_server

            # read by a thread, while no time passes
            await clock.advance(1.0)
            await until(lambda: client.chosen_server == address_of(second))
            await until(lambda: len(first.namesrv.connections) == 1)


# -- life -------------------------------------------------------------------------------------------------------------


async def test_the_end_leaves_nothing_behind(tmp_path: Path) -> None:
    """No connection and no task."""
    async with scene(tmp_path, BROKER_A, watch=True, fault_tolerance=True, probe="connect") as (_, server, client):
        await client.route("orders")
        await until(lambda: len(server.namesrv.watchers) == 1)
        assert 1 == len(client._session.socket_descriptors())
        tasks = set(client._tasks)

        await client.__aexit__(None, None, None)

        await until(lambda: len(server.namesrv.connections) == 1)
        assert all(task.done() for task in tasks)
        assert [] == client._session.socket_descriptors()


async def test_a_bug_is_said_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A client that silently stopped polling would be the worst of all."""
    async with scene(tmp_path, BROKER_A) as (clock, _, client):
        await client.route("orders")
        client._keeper._changed = None  # type: ignore[assignment]  # the bug
        client._cache.forget("orders")

        await passing(clock, lambda: "a route client task crashed" in caplog.text)


async def test_what_is_shown(tmp_path: Path) -> None:
    """For logs."""
    async with scene(tmp_path, BROKER_A) as (_, server, client):
        assert f"<RouteClient [{address_of(server)} | <RouteCache [0 topics" in repr(client)
