"""The queue of the next message, and the brokers that are left alone: which, how long, and what ends it."""

import asyncio
from typing import Any

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
from namesrv_client.routes.cache import RouteCache
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from tests.support.dead_ends import full_queue, refusing_port
from tests.support.fake_clock import FakeClock, until
from tests.support.route_clients import group, topic_route
from tests.support.scripted_server import ScriptedServer

ME = 1
NOBODY_CAN_TELL = RouteUnavailableError("no NameServer could answer")


class Scene:
    """A selector, and the routes that it finds when it asks."""

    def __init__(self, routes: dict[str, TopicRouteData | RouteError] | None = None, **settings: Any) -> None:
        self.clock = FakeClock(monotonic=100.0)
        chosen = ClientSettings(name_servers="10.0.0.1:9876", **settings)
        self.faults = BrokerFaults(chosen, self.clock)
        # topic -> its route, or why there is none
        self.routes = routes or {}
        self.asked: list[str] = []
        self.used: list[str] = []
        self.selector = QueueSelector(
            chosen, self.clock, RouteCache(self.clock), route=self.route, use=self.used.append
        )
        # one sender has got the last of two queues each
        self.info = PublishInfo("t", [QueueRange("broker-a", 0, 2), QueueRange("broker-b", 0, 2)])
        self.info._positions[ME] = 3

    async def route(self, topic: str) -> Route:
        """As the client's."""
        self.asked.append(topic)
        found = self.routes.get(topic, TopicNotFoundError(f"topic {topic} does not exist"))
        if isinstance(found, RouteError):
            raise found
        return Route(topic, found, "pull", 100.0)

    async def runs(self, topic: str) -> list[tuple[object, ...]]:
        """The queues to write to: broker, first id, how many."""
        return [tuple(run) for run in (await self.selector.find(topic)).ranges]

    def fail(self, *brokers: str) -> None:
        """A send to each has failed."""
        for broker in brokers:
            self.faults.report(broker, 0.1, failed=True)

    def picks(self, count: int, last_broker: str | None = None) -> list[str]:
        """The sender's next queues."""
        picked = [self.faults.next_queue(self.info, ME, last_broker) for _ in range(count)]
        return [f"{queue.broker_name[-1]}{queue.queue_id}" for queue in picked]


async def test_queues_are_found_once() -> None:
    """Until the route changes; the turns go on meanwhile."""
    scene = Scene({"t": topic_route("broker-a")})

    first = await scene.selector.find("t")

    assert first is await scene.selector.find("t")
    assert first is scene.selector.ready("t")
    assert scene.asked == ["t"]
    scene.selector.forget("t")
    assert scene.selector.ready("t") is None


@pytest.mark.parametrize(("read", "write", "count"), [(8, 8, 4), (3, 8, 3), (8, 3, 4), (1, 16, 1)])
async def test_a_topic_that_does_not_exist_gets_the_default_topics_queues(read: int, write: int, count: int) -> None:
    """Of TBW102, as many as a broker will create: min(4, readQueueNums), whatever was to be written."""
    scene = Scene({"TBW102": TopicRouteData([group("broker-a")], [QueueData("broker-a", read, write, 7, 1)])})

    assert [("broker-a", 0, count)] == await scene.runs("new")
    assert MessageQueue("new", "broker-a", 0) == (await scene.selector.find("new")).queues[0]
    # it is kept an eye on
    assert (scene.asked, scene.used) == (["new", "TBW102"], ["new"])


async def test_the_topic_itself_is_asked_for_again_until_it_exists() -> None:
    """Once a second at most, however many messages are sent; the turns go on, also while nobody can tell."""
    scene = Scene({"TBW102": topic_route("broker-a")})
    first = await scene.selector.find("new")
    assert first is await scene.selector.find("new")
    assert len(scene.asked) == 2

    scene.clock.stall(1.0)
    assert scene.selector.ready("new") is None
    assert first is await scene.selector.find("new")
    assert scene.asked == ["new", "TBW102", "new", "TBW102"]

    scene.clock.stall(60.0)
    scene.routes["new"] = NOBODY_CAN_TELL
    assert first is await scene.selector.find("new")

    scene.clock.stall(1.0)
    scene.routes["new"] = topic_route("broker-b")
    assert await scene.runs("new") == [("broker-b", 0, 4)]
    assert await scene.selector.find("new") is scene.selector.ready("new")


@pytest.mark.parametrize(
    ("routes", "error", "message"),
    [
        # a topic without queues is named
        (
            {"new": TopicRouteData([group("broker-a", 1)], [QueueData("broker-a", 4, 4, 6)])},
            NoQueueError,
            "topic new has no queue that can be written to",
        ),
        # no fallback: the topic may well exist on other brokers
        ({"new": NOBODY_CAN_TELL, "TBW102": topic_route("broker-a")}, RouteUnavailableError, "no NameServer"),
        # the error is about the one that could have helped
        ({}, TopicNotFoundError, "TBW102"),
        (
            {"TBW102": TopicRouteData([group("broker-a")], [QueueData("broker-a", 4, 4, 4)])},
            NoQueueError,
            "topic new does not exist, and TBW102 has no queue",
        ),
    ],
)
async def test_no_default_queues_either(
    routes: dict[str, TopicRouteData | RouteError], error: type[RouteError], message: str
) -> None:
    """The error says why, and it is asked again."""
    scene = Scene(routes)
    for count in (1, 2):
        with pytest.raises(error, match=message):
            await scene.selector.find("new")
        assert count == scene.asked.count("new")


async def test_another_default_topic() -> None:
    """With another number of queues; asked for directly it is a topic like others."""
    scene = Scene({"template": topic_route("broker-a", count=8)}, default_topic="template", default_topic_queue_nums=6)

    assert await scene.runs("new") == [("broker-a", 0, 6)]
    assert await scene.runs("template") == [("broker-a", 0, 8)]
    scene.routes.clear()
    scene.selector.forget("template")
    with pytest.raises(TopicNotFoundError, match="template"):
        await scene.selector.find("template")
    assert scene.asked == ["new", "template", "template", "template"]


def test_without_fault_tolerance_only_the_last_broker_is_avoided() -> None:
    """MQFaultStrategy with sendLatencyFaultEnable false, the default: what was reported does not count."""
    scene = Scene()
    scene.fail("broker-a")

    assert scene.picks(4) == ["a0", "a1", "b0", "b1"]
    assert scene.picks(3, "broker-a") == ["b0", "b1", "b0"]


def test_a_failed_broker_is_left_out_for_its_pause() -> None:
    """(1) Available and not the last one; 10 s by the newer table, and nobody has to have reached it."""
    scene = Scene(fault_tolerance=True)
    scene.fail("broker-a")

    scene.clock.stall(9.9)
    assert scene.picks(3) == ["b0", "b1", "b0"]
    # the attempt on the only available one has just failed
    assert scene.picks(1, "broker-b") == ["a0"]
    scene.clock.stall(0.1)
    assert scene.picks(4) == ["a1", "b0", "b1", "a0"]


@pytest.mark.parametrize(("reached", "expected"), [("broker-a", {"a"}), ("broker-b", {"b"}), (None, {"a", "b"})])
def test_when_none_is_available_a_reachable_one_is_taken(reached: str | None, expected: set[str]) -> None:
    """(2) MessageSelector pipeline test: both isolated, one reachable. (3) Any is better than none."""
    scene = Scene(fault_tolerance=True, probe="own")
    scene.fail("broker-a", "broker-b")
    if reached is not None:
        scene.faults.reached(reached)

    assert expected == {pick[0] for pick in scene.picks(10)}


class Faults:
    """A fake clock, and what is known of the brokers by it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.faults = BrokerFaults(ClientSettings(**{"fault_tolerance": True, **settings}), self.clock)

    def report(self, *sends: float | None) -> int:
        """Report how long sends to broker b took, one a second; None: it failed. The last one's pause, in ms."""
        pause = 0
        for number, took in enumerate(sends):
            self.clock.stall(float(number > 0))
            pause = self.faults.report("b", took or 0.0, failed=took is None)
        return pause

    def unavailable_for(self) -> float:
        """Seconds until broker b is used again, to the millisecond."""
        began = self.clock.monotonic()
        while not self.faults.is_available("b"):
            self.clock.stall(0.001)
        return round(self.clock.monotonic() - began, 3)


@pytest.mark.parametrize(
    ("table", "latency_ms", "pause_ms"),
    [
        # from 5.1.4 on: the entry of the largest threshold that the latency has reached
        *(("5", latency, 0) for latency in (0, 49, 50, 100, 549)),
        *(("5", 550, 2_000), ("5", 1_799, 2_000), ("5", 1_800, 5_000), ("5", 2_999, 5_000), ("5", 3_000, 6_000)),
        *(("5", 4_999, 6_000), ("5", 5_000, 10_000), ("5", 14_999, 10_000), ("5", 15_000, 30_000)),
        # 4.9 and up to 5.1.3
        *(("4", latency, 0) for latency in (0, 49, 50, 100, 549)),
        *(("4", 550, 30_000), ("4", 999, 30_000), ("4", 1_000, 60_000), ("4", 1_999, 60_000), ("4", 2_000, 120_000)),
        *(("4", 2_999, 120_000), ("4", 3_000, 180_000), ("4", 14_999, 180_000), ("4", 15_000, 600_000)),
        # a failure, whatever it took: as 10,000 ms in the newer table, as 30,000 ms in the older one
        ("5", None, 10_000),
        ("4", None, 600_000),
    ],
)
def test_pauses_are_rocketmqs(table: str, latency_ms: int | None, pause_ms: int) -> None:
    """By the table that was chosen; without fault tolerance there are none."""
    took = None if latency_ms is None else latency_ms / 1000

    assert pause_ms == Faults(fault_table=table).report(took)
    assert Faults(fault_table=table, fault_tolerance=False).report(took) == 0


@pytest.mark.parametrize(
    ("sends", "seconds"),
    [
        # LatencyFaultToleranceImplTest.testUpdateFaultItem and testIsAvailable
        ([3.0], 6.0),
        ([0.55], 2.0),
        ([0.02], 0.0),
        # a slow success does not shorten an isolation, a second failure makes it longer
        ([None, 0.6], 9.0),
        ([None, None], 10.0),
        # in RocketMQ an isolation can only grow; here an answer in good time says that the broker is back
        ([None, 0.02], 0.0),
    ],
)
def test_a_broker_is_left_alone_for_its_pause(sends: list[float | None], seconds: float) -> None:
    """And no other is."""
    scene = Faults()
    scene.report(*sends)

    assert scene.faults.is_available("other")
    assert seconds == scene.unavailable_for()
    assert scene.faults.unreachable() == []


def test_with_a_probe_a_failed_broker_is_not_available_however_long_ago_it_failed() -> None:
    """RocketMQ says the same in its log and picks it again; here somebody has to have reached it, or sent to it."""
    scene = Faults(probe="own")
    for is_back in (lambda: scene.faults.reached("b"), lambda: scene.report(0.02)):
        scene.report(None)
        scene.clock.stall(1e6)
        assert (scene.faults.is_available("b"), scene.faults.is_reachable("b")) == (False, False)
        assert scene.faults.unreachable() == ["b"]

        is_back()
        assert (scene.faults.is_available("b"), scene.faults.is_reachable("b")) == (True, True)
        assert scene.faults.unreachable() == []


async def test_a_broker_that_takes_connections_is_reached() -> None:
    """Every 3 s somebody looks; the first time after 3 s. One without a master's address is forgotten."""
    scene = Faults(probe="connect")
    clock, faults = scene.clock, scene.faults
    for broker in ("broker-a", "broker-b", "broker-c"):
        faults.report(broker, 1.0, failed=True)
    async with ScriptedServer() as broker_b:
        with refusing_port() as nobody:
            addresses = {"broker-a": f"127.0.0.1:{nobody.getsockname()[1]}", "broker-b": broker_b.address}
            running = asyncio.ensure_future(faults.probe(addresses.get))
            await clock.advance(2.9)
            assert faults.unreachable() == ["broker-a", "broker-b", "broker-c"]

            await clock.advance(0.1)
            await until(lambda: faults.unreachable() == ["broker-a"])
            assert repr(faults) == "<BrokerFaults [2 isolated | 1 unreachable]>"

            # the same place, and somebody listens there now
            nobody.listen()
            await clock.advance(0.2)
            await until(lambda: clock.sleepers)
            await clock.advance(2.9)
            await until(lambda: not faults.unreachable())
            running.cancel()


async def test_a_black_hole_is_given_up_after_a_fifth_of_a_second() -> None:
    """Nobody answers, and nobody refuses. What is no address is not tried."""
    clock = FakeClock()
    with full_queue() as address:
        probing = asyncio.ensure_future(connects(address, clock))
        await clock.advance(0.19)
        assert not probing.done()
        for wrong in ("", "nowhere", "10.0.0.1:port", "a" * 70 + ":1"):
            assert not await connects(wrong, clock), wrong
        await clock.advance(0.01)
        assert not await probing
