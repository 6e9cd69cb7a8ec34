"""The queue of the next message, and the brokers that are left out."""

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
from namesrv_client.queues.selection import BrokerFaults, QueueSelector
from namesrv_client.queues.topic_queues import PublishInfo, QueueRun
from namesrv_client.routes.cache import RouteCache
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from tests.support.fake_clock import FakeClock
from tests.support.route_clients import group, topic_route

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
        self.info = PublishInfo("t", [QueueRun("broker-a", 0, 2), QueueRun("broker-b", 0, 2)])
        self.info._turns[ME] = 3

    async def route(self, topic: str) -> Route:
        """As the client's."""
        self.asked.append(topic)
        found = self.routes.get(topic, TopicNotFoundError(f"topic {topic} does not exist"))
        if isinstance(found, RouteError):
            raise found
        return Route(topic, found, "pull", 100.0)

    async def runs(self, topic: str) -> list[tuple[object, ...]]:
        """The queues to write to: broker, first id, how many."""
        return [tuple(run) for run in (await self.selector.find(topic)).runs]

    def fail(self, *brokers: str) -> None:
        """A send to each has failed."""
        for broker in brokers:
            self.faults.report(broker, 0.1, failed=True)

    def picks(self, count: int, last_broker: str | None = None) -> list[str]:
        """The sender's next queues."""
        picked = [self.faults.next_queue(self.info, ME, last_broker) for _ in range(count)]
        return [f"{queue.broker_name[-1]}{queue.queue_id}" for queue in picked]


# -- the queues -------------------------------------------------------------------------------------------------------


async def test_queues_are_found_once() -> None:
    """Until the route changes; the turns go on meanwhile."""
    scene = Scene({"t": topic_route("broker-a")})

    first = await scene.selector.find("t")

    assert first is await scene.selector.find("t")
    assert first is scene.selector.ready("t")
    assert ["t"] == scene.asked
    scene.selector.forget("t")
    assert scene.selector.ready("t") is None


async def test_a_topic_without_queues_is_asked_about_again() -> None:
    """And named in the error."""
    scene = Scene({"t": TopicRouteData([group("broker-a", 1)], [QueueData("broker-a", 4, 4, 6)])})

    for _ in range(2):
        with pytest.raises(NoQueueError, match="topic t has no queue that can be written to"):
            await scene.selector.find("t")
    assert ["t", "t"] == scene.asked


# -- the default topic ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("read", "write", "count"), [(8, 8, 4), (3, 8, 3), (8, 3, 4), (1, 16, 1)])
async def test_a_topic_that_does_not_exist_gets_the_default_topics_queues(read: int, write: int, count: int) -> None:
    """Of TBW102, as many as a broker will create: min(4, readQueueNums), whatever was to be written."""
    scene = Scene({"TBW102": TopicRouteData([group("broker-a")], [QueueData("broker-a", read, write, 7, 1)])})

    assert [("broker-a", 0, count)] == await scene.runs("new")
    assert MessageQueue("new", "broker-a", 0) == (await scene.selector.find("new")).queues[0]
    # it is kept an eye on
    assert (["new", "TBW102"], ["new"]) == (scene.asked, scene.used)


async def test_the_topic_itself_is_asked_for_again_until_it_exists() -> None:
    """Once a second at most, however many messages are sent; the turns go on, also while nobody can tell."""
    scene = Scene({"TBW102": topic_route("broker-a")})
    first = await scene.selector.find("new")
    assert first is await scene.selector.find("new")
    assert 2 == len(scene.asked)

    scene.clock.stall(1.0)
    assert scene.selector.ready("new") is None
    assert first is await scene.selector.find("new")
    assert ["new", "TBW102", "new", "TBW102"] == scene.asked

    scene.clock.stall(60.0)
    scene.routes["new"] = NOBODY_CAN_TELL
    assert first is await scene.selector.find("new")

    scene.clock.stall(1.0)
    scene.routes["new"] = topic_route("broker-b")
    assert [("broker-b", 0, 4)] == await scene.runs("new")
    assert await scene.selector.find("new") is scene.selector.ready("new")


@pytest.mark.parametrize(
    ("routes", "error", "message"),
    [
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
    """The error says why."""
    with pytest.raises(error, match=message):
        await Scene(routes).selector.find("new")


async def test_another_default_topic() -> None:
    """With another number of queues; asked for directly it is a topic like others."""
    scene = Scene({"template": topic_route("broker-a", count=8)}, default_topic="template", default_topic_queue_nums=6)

    assert [("broker-a", 0, 6)] == await scene.runs("new")
    assert [("broker-a", 0, 8)] == await scene.runs("template")
    scene.routes.clear()
    scene.selector.forget("template")
    with pytest.raises(TopicNotFoundError, match="template"):
        await scene.selector.find("template")
    assert ["new", "template", "template", "template"] == scene.asked


# -- fault tolerance --------------------------------------------------------------------------------------------------


def test_without_fault_tolerance_only_the_last_broker_is_avoided() -> None:
    """MQFaultStrategy with sendLatencyFaultEnable false, the default: what was reported does not count."""
    scene = Scene()
    scene.fail("broker-a")

    assert ["a0", "a1", "b0", "b1"] == scene.picks(4)
    assert ["b0", "b1", "b0"] == scene.picks(3, "broker-a")


def test_a_failed_broker_is_left_out_for_its_pause() -> None:
    """(1) Available and not the last one; 10 s by the newer table, and nobody has to have reached it."""
    scene = Scene(fault_tolerance=True)
    scene.fail("broker-a")

    scene.clock.stall(9.9)
    assert ["b0", "b1", "b0"] == scene.picks(3)
    # the attempt on the only available one has just failed
    assert ["a0"] == scene.picks(1, "broker-b")
    scene.clock.stall(0.1)
    assert ["a1", "b0", "b1", "a0"] == scene.picks(4)


@pytest.mark.parametrize(("reached", "expected"), [("broker-a", {"a"}), ("broker-b", {"b"}), (None, {"a", "b"})])
def test_when_none_is_available_a_reachable_one_is_taken(reached: str | None, expected: set[str]) -> None:
    """(2) MessageSelector pipeline test: both isolated, one reachable. (3) Any is better than none."""
    scene = Scene(fault_tolerance=True, probe="own")
    scene.fail("broker-a", "broker-b")
    if reached is not None:
        scene.faults.reached(reached)

    assert expected == {pick[0] for pick in scene.picks(10)}
