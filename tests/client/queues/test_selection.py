"""The queue of the next message, and the brokers that are left out."""

from typing import Any

import pytest

from namesrv_client import ClientSettings, MessageQueue, NoQueueError, Route, RouteUnavailableError, TopicNotFoundError
from namesrv_client.queues.selection import QueueSelector, clamped
from namesrv_client.queues.topic_queues import PublishInfo, QueueRun
from namesrv_client.routes.cache import RouteCache
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from tests.support.fake_clock import FakeClock
from tests.support.route_clients import group, topic_route

ME = 1
TWO_BROKERS = PublishInfo("t", [QueueRun("broker-a", 0, 2), QueueRun("broker-b", 0, 2)])


class Scene:
    """A selector, and the routes that it finds when it asks."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock(monotonic=100.0)
        self.selector = QueueSelector(
            ClientSettings(name_servers="10.0.0.1:9876", **settings), self.clock, RouteCache(self.clock)
        )
        # topic -> its route, or why there is none
        self.routes: dict[str, TopicRouteData | Exception] = {}
        self.asked: list[str] = []
        self.used: list[str] = []

    async def route(self, topic: str) -> Route:
        """As the client's."""
        self.asked.append(topic)
        found = self.routes.get(topic, TopicNotFoundError(f"topic {topic} does not exist"))
        if isinstance(found, Exception):
            raise found
        return Route(topic, found, "pull", 100.0)

    async def find(self, topic: str = "t") -> PublishInfo:
        """The queues to write to."""
        return await self.selector.find(topic, self.route, self.used.append)

    def picks(self, count: int, last_broker: str | None = None) -> list[str]:
        """Queues that one sender gets of two brokers with two queues each; a0 comes first."""
        info = PublishInfo("t", TWO_BROKERS.runs)
        info._turns[ME] = 3
        picked = [self.selector.next_queue(info, ME, last_broker) for _ in range(count)]
        return [f"{queue.broker_name[-1]}{queue.queue_id}" for queue in picked]


# -- the queues -------------------------------------------------------------------------------------------------------


async def test_queues_are_found_once() -> None:
    """Until the route changes; the turns go on meanwhile."""
    scene = Scene()
    scene.routes["t"] = topic_route("broker-a")

    first = await scene.find()

    assert first is await scene.find()
    assert first is scene.selector.ready("t")
    assert ["t"] == scene.asked
    scene.selector.forget("t")
    assert scene.selector.ready("t") is None


async def test_a_topic_without_queues_is_asked_about_again() -> None:
    """And named in the error."""
    scene = Scene()
    scene.routes["t"] = TopicRouteData([group("broker-a", 1)], [QueueData("broker-a", 4, 4, 6)])

    for _ in range(2):
        with pytest.raises(NoQueueError, match="topic t has no queue that can be written to"):
            await scene.find()
    assert ["t", "t"] == scene.asked


# -- the default topic ------------------------------------------------------------------------------------------------


async def test_a_topic_that_does_not_exist_gets_the_default_topics_queues() -> None:
    """Of TBW102, as many as a broker will create; and it is kept an eye on."""
    scene = Scene()
    scene.routes["TBW102"] = topic_route("broker-a", "broker-b", count=8)

    found = await scene.find("new")

    assert [("broker-a", 0, 4), ("broker-b", 0, 4)] == list(found.runs)
    assert MessageQueue("new", "broker-a", 0) == found.queues[0]
    assert (["new", "TBW102"], ["new"]) == (scene.asked, scene.used)


@pytest.mark.parametrize(("read", "write", "count"), [(8, 8, 4), (3, 8, 3), (8, 3, 4), (1, 16, 1)])
def test_default_queues_are_clamped_by_what_can_be_read(read: int, write: int, count: int) -> None:
    """min(4, readQueueNums), for reading and for writing, whatever was to be written."""
    route = clamped(TopicRouteData([group("broker-a")], [QueueData("broker-a", read, write, 7, 1)]), 4)

    assert [QueueData("broker-a", count, count, 7, 1)] == route.queue_datas


async def test_the_topic_itself_is_asked_for_again_until_it_exists() -> None:
    """Once a second at most, however many messages are sent; the turns go on."""
    scene = Scene()
    scene.routes["TBW102"] = topic_route("broker-a")
    first = await scene.find("new")
    assert first is await scene.find("new")
    assert 2 == len(scene.asked)

    scene.clock.stall(1.0)
    assert scene.selector.ready("new") is None
    assert first is await scene.find("new")
    assert ["new", "TBW102", "new", "TBW102"] == scene.asked

    scene.clock.stall(1.0)
    scene.routes["new"] = topic_route("broker-b")
    assert [("broker-b", 0, 4)] == list((await scene.find("new")).runs)
    assert await scene.find("new") is scene.selector.ready("new")
    assert "<QueueSelector [1 topics | 0 by default | <FaultStrategy [0 brokers]>]>" == repr(scene.selector)


async def test_the_default_topics_queues_stand_in_while_nobody_can_tell() -> None:
    """What could be written to a second ago is not refused because the servers went."""
    scene = Scene()
    scene.routes["TBW102"] = topic_route("broker-a")
    first = await scene.find("new")
    scene.clock.stall(60.0)

    scene.routes["new"] = RouteUnavailableError("no NameServer could answer")

    assert first is await scene.find("new")


async def test_nobody_can_tell_is_not_does_not_exist() -> None:
    """No fallback: the topic may well exist on other brokers."""
    scene = Scene()
    scene.routes |= {"new": RouteUnavailableError("no NameServer could answer"), "TBW102": topic_route("broker-a")}

    with pytest.raises(RouteUnavailableError):
        await scene.find("new")


async def test_no_default_topic_either() -> None:
    """The error is about the one that could have helped; asking for it directly says the same."""
    scene = Scene()

    with pytest.raises(TopicNotFoundError, match="TBW102"):
        await scene.find("new")
    with pytest.raises(TopicNotFoundError, match="TBW102"):
        await scene.find("TBW102")
    assert ["new", "TBW102", "TBW102"] == scene.asked


async def test_a_default_topic_that_cannot_be_written_to() -> None:
    """Says both names."""
    scene = Scene()
    scene.routes["TBW102"] = TopicRouteData([group("broker-a")], [QueueData("broker-a", 4, 4, 4)])

    with pytest.raises(NoQueueError, match="topic new does not exist, and TBW102 has no queue"):
        await scene.find("new")


async def test_another_default_topic() -> None:
    """With another number of queues."""
    scene = Scene(default_topic="template", default_topic_queue_nums=6)
    scene.routes["template"] = topic_route("broker-a", count=8)

    assert [("broker-a", 0, 6)] == list((await scene.find("new")).runs)


# -- fault tolerance --------------------------------------------------------------------------------------------------


def test_without_fault_tolerance_only_the_last_broker_is_avoided() -> None:
    """MQFaultStrategy with sendLatencyFaultEnable false, the default: what was reported does not count."""
    scene = Scene()
    scene.selector.report("broker-a", 1.0, failed=True)

    assert ["a0", "a1", "b0", "b1"] == scene.picks(4)
    assert ["b0", "b1", "b0"] == scene.picks(3, "broker-a")


def test_a_failed_broker_is_left_out_for_its_pause() -> None:
    """(1) Available and not the last one; 10 s by the newer table."""
    scene = Scene(fault_tolerance=True)
    scene.selector.report("broker-a", 0.1, failed=True)

    scene.clock.stall(9.9)
    assert ["b0", "b1", "b0"] == scene.picks(3)
    scene.clock.stall(0.1)
    assert ["a0", "a1", "b0", "b1"] == scene.picks(4)


def test_a_slow_broker_is_left_out_for_its_pause() -> None:
    """600 ms make 2 s; and 30 s by the older table."""
    newer, older = Scene(fault_tolerance=True), Scene(fault_tolerance=True, fault_table="4")
    for scene in (newer, older):
        scene.selector.report("broker-a", 0.6, failed=False)
        assert ["b0", "b1"] == scene.picks(2)
        scene.clock.stall(2.0)

    assert (["a0", "a1"], ["b0", "b1"]) == (newer.picks(2), older.picks(2))


def test_a_success_ends_the_isolation() -> None:
    """The broker is back, and is used at once."""
    scene = Scene(fault_tolerance=True)
    scene.selector.report("broker-a", 0.1, failed=True)

    scene.selector.report("broker-a", 0.02, failed=False)

    assert ["a0", "a1", "b0"] == scene.picks(3)


def test_when_none_is_available_a_reachable_one_is_taken() -> None:
    """(2) MessageSelector pipeline test: both isolated, one reachable; then swapped."""
    for reachable, unreachable in (("broker-a", "broker-b"), ("broker-b", "broker-a")):
        scene = Scene(fault_tolerance=True, probe="own")
        scene.selector.report("broker-a", 0.1, failed=True)
        scene.selector.report("broker-b", 0.1, failed=True)
        scene.selector.faults.reached(reachable)

        assert {reachable[-1]} == {pick[0] for pick in scene.picks(10)}, unreachable


def test_when_none_is_reachable_it_is_plain_round_robin() -> None:
    """(3) Any is better than none."""
    scene = Scene(fault_tolerance=True, probe="own")
    for broker in ("broker-a", "broker-b"):
        scene.selector.report(broker, 0.1, failed=True)

    assert ["a0", "a1", "b0", "b1"] == scene.picks(4)


def test_the_only_available_broker_is_not_taken_twice_in_a_row_if_another_is_reachable() -> None:
    """The attempt on it has just failed."""
    scene = Scene(fault_tolerance=True)
    scene.selector.report("broker-a", 0.1, failed=True)

    assert ["a0"] == scene.picks(1, "broker-b")


def test_without_a_probe_a_failed_broker_comes_back_when_its_pause_is_over() -> None:
    """Nobody would ever find out otherwise, and it would be left out for ever."""
    scene = Scene(fault_tolerance=True, probe="off")
    scene.selector.report("broker-a", 0.1, failed=True)
    assert [] == scene.selector.faults.unreachable()

    scene.clock.stall(10.0)

    assert ["a0", "a1"] == scene.picks(2)


def test_with_a_probe_it_has_to_have_been_reached() -> None:
    """The pause being over is not enough."""
    scene = Scene(fault_tolerance=True, probe="own")
    scene.selector.report("broker-a", 0.1, failed=True)
    scene.clock.stall(100.0)
    assert (["b0", "b1"], ["broker-a"]) == (scene.picks(2), scene.selector.faults.unreachable())

    scene.selector.faults.reached("broker-a")

    assert ["a0", "a1"] == scene.picks(2)
