"""Queues that a producer writes to and a consumer reads, their order, and the queues of static topics."""

from typing import Any

import pytest

from namesrv_client import MessageQueue, PublishInfo
from namesrv_client.queues.topic_queues import (
    MAX_SENDERS,
    QueueRange,
    endpoint,
    logical_broker,
    logical_ranges,
    publish_info,
    subscribe_queues,
)
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from tests.support.route_clients import group, queues

ME, YOU = 1, 2
GLOBAL = "__syslo__global__"


def names(found: Any) -> list[str]:
    """Queues in short: a0 is queue 0 of broker-a."""
    return [f"{queue.broker_name[-1]}{queue.queue_id}" for queue in found]


def info(*runs: tuple[str, int], at: int | None = None) -> PublishInfo:
    """Brokers and how many queues each has; I have got the queue at that position last: it is random otherwise."""
    found = PublishInfo("t", [QueueRange(f"broker-{name}", 0, count) for name, count in runs])
    if at is not None:
        found._positions[ME] = at
    return found


def mapping(
    broker: str, *ids: int, epoch: int = 1, total: int = 4, scope: str | None = "__global__"
) -> TopicQueueMappingInfo:
    """A broker that has these logical queues."""
    return TopicQueueMappingInfo("t", broker, scope, epoch, total, curr_id_map=dict.fromkeys(ids, 0))


@pytest.mark.parametrize(
    ("groups", "rows", "conf", "expected"),
    [
        # MQClientInstanceTest.testTopicRouteData2TopicPublishInfo, with two brokers: a0 a1 b0 b1, not a0 b0 a1 b1
        (["b", "a"], [queues("broker-b", 2), queues("broker-a", 2)], None, ["a0", "a1", "b0", "b1"]),
        # the same test: a master, perm 6, 4 write queues
        (["a"], [QueueData("broker-a", 3, 4, 6)], None, ["a0", "a1", "a2", "a3"]),
        # a group without master is not written to, nor a broker that is not listed
        (["b"], [queues("broker-a"), queues("broker-b", 1), queues("broker-z", 1)], None, ["b0"]),
        # order topics: in the listed order, with no look at permissions, masters or existence
        (["a"], [queues("broker-a", 8, 0)], "broker-z:2;broker-a:1", ["z0", "z1", "a0"]),
        # MQClientInstanceTest.…WithOrderTopicConf
        ([], [], "127.0.0.1:4", ["10", "11", "12", "13"]),
        # an empty one is none
        (["a"], [queues("broker-a", 1)], "", ["a0"]),
        # Java fails with a NumberFormatException in the middle of an update; here that part does not count
        *(
            (["a"], [queues("broker-a")], f"{conf};broker-b:1", ["b0"])
            for conf in ("broker-a", "broker-a:", ":3", "broker-a:x", "broker-a:-1", "broker-a:99999999999", ";")
        ),
    ],
)
def test_queues_to_write_to(groups: list[str], rows: list[QueueData], conf: str | None, expected: list[str]) -> None:
    """Broker by broker, of those with a master."""
    brokers = [group("broker-a", 1), *(group(f"broker-{name}") for name in groups)]

    found = publish_info("t", TopicRouteData(brokers, rows, order_topic_conf=conf))

    assert expected == names(found.queues)
    assert ("t", len(expected), bool(conf)) == (found.topic, found.count, found.is_ordered)


@pytest.mark.parametrize(
    ("perm", "reads", "writes"), [(6, 3, 4), (2, 0, 4), (7, 3, 4), (4, 3, 0), (1, 0, 0), (0, 0, 0)]
)
def test_queues_need_the_permission(perm: int, reads: int, writes: int) -> None:
    """Bit 2 is write; 4 is read, 1 inherit."""
    route = TopicRouteData([group("broker-a")], [QueueData("broker-a", 3, 4, perm)])

    assert (reads, writes) == (len(subscribe_queues("t", route)), publish_info("t", route).count)


def test_consumers_keep_reading_where_only_slaves_are_left() -> None:
    """No master is needed, and not even the broker's existence."""
    route = TopicRouteData([group("broker-a", 1)], [queues("broker-a", 2), queues("broker-z", 1)])

    assert names(subscribe_queues("t", route)) == ["a0", "a1", "z0"]


def test_a_billion_queues_cost_nothing() -> None:
    """Somebody's mistake in a topic's configuration does not end its producers."""
    found = publish_info("t", TopicRouteData([group("broker-a")], [queues("broker-a", 2**31 - 1)]))

    assert (found.count, found.select(ME).broker_name) == (2**31 - 1, "broker-a")


@pytest.mark.parametrize(
    ("conf", "mappings", "writes", "reads"),
    [
        (None, {"broker-a": mapping("broker-a", 0, 1, total=2)}, [GLOBAL, GLOBAL], [GLOBAL, GLOBAL]),
        # Java takes the static branch only if orderTopicConf is null, and the ordered one only if it is not empty
        ("", {"broker-a": mapping("broker-a", 0, 1, total=2)}, ["broker-a"], [GLOBAL, GLOBAL]),
        # MQClientInstanceTest.…WithTopicQueueMappingByBroker and its sibling for subscriptions: 0 queues in both
        (None, {"broker-a": TopicQueueMappingInfo()}, [], []),
        (None, {}, ["broker-a"], ["broker-a"]),
    ],
)
def test_a_static_topic_has_logical_queues(
    conf: str | None, mappings: dict[str, TopicQueueMappingInfo], writes: list[str], reads: list[str]
) -> None:
    """Unless it is an order topic; their ids count from 0."""
    route = TopicRouteData([group("broker-a")], [queues("broker-a", 1)], {}, conf, mappings)

    for expected, found in ((writes, list(publish_info("t", route).queues)), (reads, subscribe_queues("t", route))):
        assert [MessageQueue("t", name, number) for number, name in enumerate(expected)] == found


@pytest.mark.parametrize(
    ("mappings", "expected"),
    [
        # ids 0 to total - 1; those that nobody has stand on a broker that does not exist
        ([mapping("a", 0, 2), mapping("b", 1)], ["a", "b", "a", "__syslo__none__"]),
        # where the newest epoch says, whatever the order of the brokers
        ([mapping("a", 0, epoch=1, total=1), mapping("b", 0, epoch=2, total=1)], ["b"]),
        ([mapping("b", 0, epoch=2, total=1), mapping("a", 0, epoch=1, total=1)], ["b"]),
        # of two equal epochs the later one, as in Java, whose sort is stable and whose comparison lets the equal pass
        ([mapping("a", 0, total=1), mapping("b", 0, total=1)], ["b"]),
        # the largest total: while queues are being added, brokers say different ones
        ([mapping("a", 0, total=2), mapping("b", 1, total=3)], ["a", "b", "__syslo__none__"]),
        # no scope is the global one, as in Java
        ([mapping("a", 0, total=1, scope=None)], ["a"]),
        ([TopicQueueMappingInfo()], []),
        ([], []),
    ],
)
def test_each_logical_queue_is_on_a_broker(mappings: list[TopicQueueMappingInfo], expected: list[str]) -> None:
    """ClientMetadataTest: endpoints of a static topic."""
    given = {str(number): info for number, info in enumerate(mappings)}

    assert [(GLOBAL, 0, len(expected))] * min(1, len(given)) == [tuple(run) for run in logical_ranges(given)]
    assert expected == [endpoint(MessageQueue("t", GLOBAL, number), given) for number in range(len(expected))]


def test_scopes_come_by_queue_id() -> None:
    """Sorted by id, as in Java. TopicQueueMappingUtils.getMockBrokerName: the global one loses its underscores."""
    runs = logical_ranges({"a": mapping("a", 0, total=2, scope="eu"), "b": mapping("b", 0, total=1, scope="us")})

    assert [run[:2] for run in runs] == [("__syslo__eu", 0), ("__syslo__us", 0), ("__syslo__eu", 1)]
    assert [logical_broker("__global__"), logical_broker("__eu")] == [GLOBAL, "__syslo____eu"]


def test_round_robin_as_in_go() -> None:
    """TestRoundRobin: with 10 queues, pick i of 100 is queue (i + 1) mod 10, and topics do not know of each other."""
    for found in (info(("a", 10), at=0), info(("a", 10), at=0)):
        assert [(i + 1) % 10 for i in range(100)] == [found.select(ME).queue_id for _ in range(100)]


def test_every_sender_takes_its_own_turns() -> None:
    """What one thread or task sends does not move another's turn."""
    found = info(("a", 2), ("b", 2), at=3)
    found._positions[YOU] = 1

    assert names(found.select(sender) for sender in (ME, YOU, ME, YOU)) == ["a0", "b0", "a1", "b1"]


def test_senders_begin_anywhere() -> None:
    """A thousand producers that start together do not all write to the first broker."""
    found = info(("a", 4), ("b", 4))

    assert len({found.select(sender) for sender in range(200)}) == 8


def test_avoiding_the_last_broker_skips_all_of_its_queues() -> None:
    """TestRoundRobinRetry: from a0 the next on another broker is b0, and the turn goes on from there."""
    found = info(("a", 3), ("b", 2), at=0)

    assert names(found.select(ME, "broker-a") for _ in range(3)) == ["b0", "b1", "b0"]
    assert names(found.select(ME) for _ in range(2)) == ["b1", "a0"]
    # a retry on the same broker is better than none
    only = info(("a", 3), at=0)
    assert names(only.select(ME, "broker-a") for _ in range(2)) == ["a1", "a2"]


def test_a_filter_that_none_passes_takes_no_turn() -> None:
    """Nobody's turn is lost by asking in vain."""
    found = info(("a", 2), ("b", 2), at=1)

    assert found.select_where(ME, lambda _: False) is None
    assert names([found.select(ME)]) == ["b0"]


@pytest.mark.parametrize("at", range(6))
def test_a_filter_finds_the_only_broker_that_passes_from_anywhere(at: int) -> None:
    """Also when the search begins in the middle of its queues and has to come round."""
    picked = info(("a", 2), ("b", 2), ("c", 2), at=at).select_where(ME, lambda name: name == "broker-b")

    assert picked is not None
    assert ["b1" if at == 2 else "b0"] == names([picked])


def test_logical_ranges_keep_their_ids() -> None:
    """A run may begin at another id than 0."""
    found = PublishInfo("t", [QueueRange("broker-a", 5, 2), QueueRange("broker-b", 9, 1)])
    found._positions[ME] = 2

    assert names(found.select(ME) for _ in range(4)) == ["a5", "a6", "b9", "a5"]
    assert names(found.queues) == ["a5", "a6", "b9"]


def test_senders_that_came_and_went_are_forgotten() -> None:
    """A server with a task per request does not grow with every request."""
    found = info(("a", 4))

    for sender in range(MAX_SENDERS * 3):
        found.select(sender)

    assert len(found._positions) <= MAX_SENDERS
    assert repr(found) == "<PublishInfo [t | 4 queues]>"
