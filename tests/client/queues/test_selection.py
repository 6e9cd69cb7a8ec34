"""Choice of the next message's queue, and isolation of failed brokers."""

import asyncio
from typing import Any

import msgpack
import pytest

from namesrv_client import (
    ClientSettings,
    MessageQueue,
    NoQueueError,
    Route,
    RouteError,
    RouteUnavailableError,
    TopicNotFoundError,
)
from namesrv_client.queues.selection import BrokerFaults, QueueSelector, connects
from namesrv_client.queues.topic_queues import PublishInfo, QueueRange
from namesrv_client.routes.cache import KnownRoutes
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from namesrv_remoting.codes import FLAG_RESPONSE
from tests.support.dead_ends import full_queue, refusing_port
from tests.support.fake_clock import FakeClock, until
from tests.support.route_clients import group, route_client, topic_route
from tests.support.scripted_server import ScriptedRequest, ScriptedServer
from tests.support.spelling import native_frame
from tests.support.threads import without_new_threads

ME = 1
UNAVAILABLE = RouteUnavailableError("no NameServer could answer")


class Scene:
    """A selector and the routes that it finds."""

    def __init__(self, routes: dict[str, TopicRouteData | RouteError] | None = None, **settings: Any) -> None:
        self.clock = FakeClock(monotonic=100.0)
        chosen = ClientSettings(name_servers="10.0.0.1:9876", **settings)
        self.faults = BrokerFaults(chosen, self.clock)
        # topic -> its route, or the error without one
        self.routes = routes or {}
        self.requested: list[str] = []
        self.used: list[str] = []
        self.cache = KnownRoutes(self.clock)
        self.selector = QueueSelector(chosen, self.clock, self.cache, route=self.route, use=self.used.append)
        # one sender that last used the second queue of broker-b
        self.info = PublishInfo("t", [QueueRange("broker-a", 0, 2), QueueRange("broker-b", 0, 2)])
        self.info._positions[ME] = 3

    async def route(self, topic: str) -> Route:
        """The client's method `route`."""
        self.requested.append(topic)
        found = self.routes.get(topic, TopicNotFoundError(f"topic {topic} does not exist"))
        if isinstance(found, RouteError):
            raise found
        route = Route(topic, found, "pull", 100.0)
        self.cache.forget(topic)
        self.cache.restore([route])
        return route

    async def runs(self, topic: str) -> list[tuple[object, ...]]:
        """Ranges of writable queues: broker, first id, count."""
        return [tuple(run) for run in (await self.selector.find(topic)).ranges]

    def fail(self, *brokers: str) -> None:
        """Report a failed send to each broker."""
        for broker in brokers:
            self.faults.report(broker, 0.1, failed=True)

    def picks(self, count: int, last_broker: str | None = None) -> list[str]:
        """The sender's next queues."""
        picked = [self.faults.next_queue(self.info, ME, last_broker) for _ in range(count)]
        return [f"{queue.broker_name[-1]}{queue.queue_id}" for queue in picked]


def native_response(request: ScriptedRequest, body: object) -> bytes:
    """A native response."""
    return native_frame(0, request.opaque, body=msgpack.packb(body), flag=FLAG_RESPONSE)


def pulled(broker: str, revision: int) -> dict[str, Any]:
    """The body of a response to PULL_ROUTES with topic t on one broker."""
    queue = {"broker_name": broker, "read_queue_nums": 4, "write_queue_nums": 4, "perm": 6}
    data = {"cluster": "cluster-1", "broker_name": broker, "broker_addrs": {0: "10.0.0.1:10911"}}
    routes = {"t": {"broker_datas": [data], "queue_datas": [queue]}}
    return {"boot_id": "b1", "revision": revision, "ready": True, "full": revision == 1, "routes": routes}


async def test_queues_are_cached_until_the_route_changes() -> None:
    """The same object keeps the senders' positions."""
    scene = Scene({"t": topic_route("broker-a")})

    first = await scene.selector.find("t")

    assert first is await scene.selector.find("t")
    assert first is scene.selector.ready("t")
    assert scene.requested == ["t"]
    scene.selector.forget("t")
    assert scene.selector.ready("t") is None


async def test_change_right_after_a_response_is_not_lost() -> None:
    """The response to a request and that to a watch may arrive in one packet: the queues are those of the second."""
    clock = FakeClock()
    settings: dict[str, Any] = {"watch": True, "poll_seconds": 1000.0, "cache_ttl_seconds": 10.0}
    async with ScriptedServer() as script, route_client(clock, script.address, **settings) as client:
        first = asyncio.ensure_future(client.publish_info("t"))
        peer = await script.accept()
        peer.send(native_response(await peer.receive(), {"boot_id": "b1", "uptime_seconds": 1000.0}))
        peer.send(native_response(await peer.receive(), pulled("broker-a", 1)))
        assert [run.broker_name for run in (await first).ranges] == ["broker-a"]
        watch = await peer.receive()
        clock.stall(10.1)

        second = asyncio.ensure_future(client.publish_info("t"))
        request = await peer.receive()
        peer.send(native_response(request, pulled("broker-a", 1)) + native_response(watch, pulled("broker-b", 2)))
        await second

        info = client.known_publish_info("t")
        assert info is not None
        assert [run.broker_name for run in info.ranges] == ["broker-b"]


@pytest.mark.parametrize(("read", "write", "count"), [(8, 8, 4), (3, 8, 3), (8, 3, 4), (1, 16, 1)])
async def test_unknown_topic_gets_the_default_topics_queues(read: int, write: int, count: int) -> None:
    """A broker will create min(4, readQueueNums) of TBW102 queues."""
    scene = Scene({"TBW102": TopicRouteData([group("broker-a")], [QueueData("broker-a", read, write, 7, 1)])})

    assert await scene.runs("new") == [("broker-a", 0, count)]
    assert (await scene.selector.find("new")).queues[0] == MessageQueue("new", "broker-a", 0)
    # the topic is in use, so that it is polled
    assert (scene.requested, scene.used) == (["new", "TBW102"], ["new"])


async def test_unknown_topic_is_requested_again_until_it_exists() -> None:
    """At most one request a second, for any number of messages; positions stay, also during an outage."""
    scene = Scene({"TBW102": topic_route("broker-a")})
    first = await scene.selector.find("new")
    assert first is await scene.selector.find("new")
    assert len(scene.requested) == 2

    scene.clock.stall(1.0)
    assert scene.selector.ready("new") is None
    assert first is await scene.selector.find("new")
    assert scene.requested == ["new", "TBW102", "new", "TBW102"]

    scene.clock.stall(60.0)
    scene.routes["new"] = UNAVAILABLE
    assert first is await scene.selector.find("new")

    scene.clock.stall(1.0)
    scene.routes["new"] = topic_route("broker-b")
    assert await scene.runs("new") == [("broker-b", 0, 4)]
    assert await scene.selector.find("new") is scene.selector.ready("new")


@pytest.mark.parametrize(
    ("routes", "error", "message"),
    [
        # a topic without writable queues
        (
            {"new": TopicRouteData([group("broker-a", 1)], [QueueData("broker-a", 4, 4, 6)])},
            NoQueueError,
            "topic new has no queue that can be written to",
        ),
        # no fallback: the topic may exist on other brokers
        ({"new": UNAVAILABLE, "TBW102": topic_route("broker-a")}, RouteUnavailableError, "no NameServer"),
        # the error names both topics
        (
            {},
            TopicNotFoundError,
            "^topic new does not exist, and the default topic gives no queues: topic TBW102 does not exist$",
        ),
        (
            {"TBW102": TopicRouteData([group("broker-a")], [QueueData("broker-a", 4, 4, 4)])},
            NoQueueError,
            "topic new does not exist, and TBW102 has no queue",
        ),
    ],
)
async def test_error_without_default_queues(
    routes: dict[str, TopicRouteData | RouteError], error: type[RouteError], message: str
) -> None:
    """The error contains the reason, and the next call sends a request again."""
    scene = Scene(routes)
    for count in (1, 2):
        with pytest.raises(error, match=message):
            await scene.selector.find("new")
        assert scene.requested.count("new") == count


async def test_default_topic_is_configurable() -> None:
    """The default topic's number of queues is configurable; requested directly it is an ordinary topic."""
    scene = Scene({"template": topic_route("broker-a", count=8)}, default_topic="template", default_topic_queue_nums=6)

    assert await scene.runs("new") == [("broker-a", 0, 6)]
    assert await scene.runs("template") == [("broker-a", 0, 8)]
    scene.routes.clear()
    scene.selector.forget("template")
    with pytest.raises(TopicNotFoundError, match="template"):
        await scene.selector.find("template")
    assert scene.requested == ["new", "template", "template", "template"]


def test_without_fault_tolerance_only_the_last_broker_is_avoided() -> None:
    """MQFaultStrategy with sendLatencyFaultEnable false, the default: reports do not count."""
    scene = Scene()
    scene.fail("broker-a")

    assert scene.picks(4) == ["a0", "a1", "b0", "b1"]
    assert scene.picks(3, "broker-a") == ["b0", "b1", "b0"]


def test_failed_broker_is_skipped_for_its_isolation() -> None:
    """(1) Available and not the last one; 10 s by the newer table, without a probe."""
    scene = Scene(fault_tolerance=True)
    scene.fail("broker-a")

    scene.clock.stall(9.9)
    assert scene.picks(3) == ["b0", "b1", "b0"]
    # the last attempt on the only available broker failed
    assert scene.picks(1, "broker-b") == ["a0"]
    scene.clock.stall(0.1)
    assert scene.picks(4) == ["a1", "b0", "b1", "a0"]


@pytest.mark.parametrize(("reached", "expected"), [("broker-a", {"a"}), ("broker-b", {"b"}), (None, {"a", "b"})])
def test_reachable_broker_is_used_when_all_are_isolated(reached: str | None, expected: set[str]) -> None:
    """(2) MessageSelector pipeline test: both isolated, one reachable. (3) Otherwise any broker."""
    scene = Scene(fault_tolerance=True, probe="own")
    scene.fail("broker-a", "broker-b")
    if reached is not None:
        scene.faults.reached(reached)

    assert {pick[0] for pick in scene.picks(10)} == expected


class Faults:
    """A fake clock and the broker faults on it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.faults = BrokerFaults(ClientSettings(**{"fault_tolerance": True, **settings}), self.clock)

    def report(self, *sends: float | None) -> int:
        """Report durations of sends to broker b, one a second (None: failed); return the last isolation in ms."""
        pause = 0
        for number, took in enumerate(sends):
            self.clock.stall(float(number > 0))
            pause = self.faults.report("b", took or 0.0, failed=took is None)
        return pause

    def unavailable_for(self) -> float:
        """Seconds until broker b is available again, to the millisecond."""
        began = self.clock.monotonic()
        while not self.faults.is_available("b"):
            self.clock.stall(0.001)
            # longer than any pause of a broker
            assert self.clock.monotonic() < began + 3600
        return round(self.clock.monotonic() - began, 3)


@pytest.mark.parametrize(
    ("table", "latency_ms", "pause_ms"),
    [
        # from 5.1.4 on: the entry of the largest threshold below the latency
        *(("5", latency, 0) for latency in (0, 549)),
        *(("5", 550, 2_000), ("5", 1_799, 2_000), ("5", 1_800, 5_000), ("5", 2_999, 5_000), ("5", 3_000, 6_000)),
        *(("5", 4_999, 6_000), ("5", 5_000, 10_000), ("5", 14_999, 10_000), ("5", 15_000, 30_000)),
        # 4.9 and up to 5.1.3
        *(("4", latency, 0) for latency in (0, 549)),
        *(("4", 550, 30_000), ("4", 999, 30_000), ("4", 1_000, 60_000), ("4", 1_999, 60_000), ("4", 2_000, 120_000)),
        *(("4", 2_999, 120_000), ("4", 3_000, 180_000), ("4", 14_999, 180_000), ("4", 15_000, 600_000)),
        # a failure of any duration: as 10,000 ms in the newer table, as 30,000 ms in the older one
        ("5", None, 10_000),
        ("4", None, 600_000),
    ],
)
def test_isolations_are_rocketmqs(table: str, latency_ms: int | None, pause_ms: int) -> None:
    """The isolation follows the configured table; without fault tolerance no broker is isolated."""
    took = None if latency_ms is None else latency_ms / 1000

    assert Faults(fault_table=table).report(took) == pause_ms
    assert Faults(fault_table=table, fault_tolerance=False).report(took) == 0


@pytest.mark.parametrize(
    ("sends", "seconds"),
    [
        # LatencyFaultToleranceImplTest.testUpdateFaultItem and testIsAvailable
        ([3.0], 6.0),
        # a slow success does not shorten an isolation, and a second failure extends it
        ([None, 0.6], 9.0),
        ([None, None], 10.0),
        # in RocketMQ an isolation can only grow; here a fast send ends it
        ([None, 0.02], 0.0),
    ],
)
def test_broker_is_isolated_for_the_tables_time(sends: list[float | None], seconds: float) -> None:
    """Other brokers stay available."""
    scene = Faults()
    scene.report(*sends)

    assert scene.faults.is_available("other")
    assert scene.unavailable_for() == seconds
    assert scene.faults.unreachable() == []


def test_probed_broker_is_unavailable_until_it_is_reached() -> None:
    """RocketMQ logs the same and uses the broker again; here a probe or a send must reach it first."""
    scene = Faults(probe="own")
    for is_back in (lambda: scene.faults.reached("b"), lambda: scene.report(0.02)):
        scene.report(None)
        scene.clock.stall(1e6)
        assert (scene.faults.is_available("b"), scene.faults.is_reachable("b")) == (False, False)
        assert scene.faults.unreachable() == ["b"]

        is_back()
        assert (scene.faults.is_available("b"), scene.faults.is_reachable("b")) == (True, True)
        assert scene.faults.unreachable() == []


async def test_broker_that_accepts_connections_is_reachable() -> None:
    """Probes run every 3 s; a broker without a master's address is forgotten."""
    scene = Faults(probe="connect")
    clock, faults = scene.clock, scene.faults
    for broker in ("broker-a", "broker-b", "broker-c"):
        faults.report(broker, 1.0, failed=True)
    async with ScriptedServer() as broker_b:
        with refusing_port() as bound:
            addresses = {"broker-a": f"127.0.0.1:{bound.getsockname()[1]}", "broker-b": broker_b.address}
            running = asyncio.ensure_future(faults.probe(addresses.get))
            await clock.advance(2.9)
            assert faults.unreachable() == ["broker-a", "broker-b", "broker-c"]

            await clock.advance(0.1)
            await until(lambda: faults.unreachable() == ["broker-a"])
            assert repr(faults) == "<BrokerFaults [2 isolated | 1 unreachable]>"

            # the same address, now with a listener
            bound.listen()
            await clock.advance(0.2)
            await until(lambda: clock.sleepers)
            await clock.advance(2.9)
            await until(lambda: not faults.unreachable())
            running.cancel()


async def test_probe_gives_up_after_200_ms() -> None:
    """The address neither accepts nor refuses; an invalid address is not tried."""
    clock = FakeClock()
    with full_queue() as address:
        probing = asyncio.ensure_future(connects(address, clock))
        await clock.advance(0.19)
        assert not probing.done()
        for wrong in ("", "nowhere", "10.0.0.1:port", "a" * 70 + ":1"):
            assert not await connects(wrong, clock), wrong
        await clock.advance(0.01)
        assert not await probing


def test_probe_without_a_thread_has_not_reached_the_broker() -> None:
    """On asyncio's own loop a host name is resolved in a thread; later probes try again."""

    async def probed() -> bool:
        with without_new_threads():
            return await connects("broker-a.example:10911", FakeClock())

    assert not asyncio.run(probed())
