"""Writable and readable queues of a route, their order, and the logical queues of static topics."""

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
    """Queues in short form: a0 is queue 0 of broker-a."""
    return [f"{queue.broker_name[-1]}{queue.queue_id}" for queue in found]


def info(*runs: tuple[str, int], at: int | None = None) -> PublishInfo:
    """Queues of brokers; sender ME last used the queue at position `at`, which is random by default."""
    found = PublishInfo("t", [QueueRange(f"broker-{name}", 0, count) for name, count in runs])
    if at is not None:
        found._positions[ME] = at
    return found


def mapping(
    broker: str, *ids: int, epoch: int = 1, total: int = 4, scope: str | None = "__global__"
) -> TopicQueueMappingInfo:
    """A mapping of these logical queues to a broker."""
    return TopicQueueMappingInfo("t", broker, scope, epoch, total, curr_id_map=dict.fromkeys(ids, 0))


@pytest.mark.parametrize(
    ("groups", "rows", "conf", "expected"),
    [
        # MQClientInstanceTest.testTopicRouteData2TopicPublishInfo, with two brokers: a0 a1 b0 b1, not a0 b0 a1 b1
        (["b", "a"], [queues("broker-b", 2), queues("broker-a", 2)], None, ["a0", "a1", "b0", "b1"]),
        # the same test: a master, perm 6, 4 write queues
        (["a"], [QueueData("broker-a", 3, 4, 6)], None, ["a0", "a1", "a2", "a3"]),
        # a group without a master and an unlisted broker are not writable
        (["b"], [queues("broker-a"), queues("broker-b", 1), queues("broker-z", 1)], None, ["b0"]),
        # order topics: in the listed order, without regard to permissions, masters or existence
        (["a"], [queues("broker-a", 8, 0)], "broker-z:2;broker-a:1", ["z0", "z1", "a0"]),
        # MQClientInstanceTest.…WithOrderTopicConf
        ([], [], "127.0.0.1:4", ["10", "11", "12", "13"]),
        # an empty configuration means none
        (["a"], [queues("broker-a", 1)], "", ["a0"]),
        # Java fails with a NumberFormatException during the update; here such a part is ignored
        *(
            (["a"], [queues("broker-a")], f"{conf};broker-b:1", ["b0"])
            for conf in ("broker-a", "broker-a:", ":3", "broker-a:x", "broker-a:-1", "broker-a:99999999999", ";")
        ),
    ],
)
def test_writable_queues(groups: list[str], rows: list[QueueData], conf: str | None, expected: list[str]) -> None:
    """Writable queues come broker by broker, from groups with a master."""
    brokers = [group("broker-a", 1), *(group(f"broker-{name}") for name in groups)]

    found = publish_info("t", TopicRouteData(brokers, rows, order_topic_conf=conf))

    assert names(found.queues) == expected
    assert (found.topic, found.count, found.is_ordered) == ("t", len(expected), bool(conf))


@pytest.mark.parametrize(
    ("perm", "reads", "writes"), [(6, 3, 4), (2, 0, 4), (7, 3, 4), (4, 3, 0), (1, 0, 0), (0, 0, 0)]
)
def test_queues_need_the_permission(perm: int, reads: int, writes: int) -> None:
    """Bit 2 is write, 4 read, 1 inherit."""
    route = TopicRouteData([group("broker-a")], [QueueData("broker-a", 3, 4, perm)])

    assert (len(subscribe_queues("t", route)), publish_info("t", route).count) == (reads, writes)


def test_queues_without_a_master_are_readable() -> None:
    """Reading needs neither a master nor a listed broker."""
    route = TopicRouteData([group("broker-a", 1)], [queues("broker-a", 2), queues("broker-z", 1)])

    assert names(subscribe_queues("t", route)) == ["a0", "a1", "z0"]


def test_billion_queues_cost_no_memory() -> None:
    """A wrong queue number in a topic's configuration does not end producers."""
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
def test_static_topic_has_logical_queues(
    conf: str | None, mappings: dict[str, TopicQueueMappingInfo], writes: list[str], reads: list[str]
) -> None:
    """Their ids count from 0; an order topic has none."""
    route = TopicRouteData([group("broker-a")], [queues("broker-a", 1)], {}, conf, mappings)

    for expected, found in ((writes, list(publish_info("t", route).queues)), (reads, subscribe_queues("t", route))):
        assert [MessageQueue("t", name, number) for number, name in enumerate(expected)] == found


@pytest.mark.parametrize(
    ("mappings", "expected"),
    [
        # ids 0 to total - 1; unmapped ids are on a broker that does not exist
        ([mapping("a", 0, 2), mapping("b", 1)], ["a", "b", "a", "__syslo__none__"]),
        # the newest epoch counts, in any order of brokers
        ([mapping("a", 0, epoch=1, total=1), mapping("b", 0, epoch=2, total=1)], ["b"]),
        ([mapping("b", 0, epoch=2, total=1), mapping("a", 0, epoch=1, total=1)], ["b"]),
        # of two equal epochs the later one, as in Java, whose stable sort compares equal ones last
        ([mapping("a", 0, total=1), mapping("b", 0, total=1)], ["b"]),
        # the largest total: while queues are added, brokers report different ones
        ([mapping("a", 0, total=2), mapping("b", 1, total=3)], ["a", "b", "__syslo__none__"]),
        # without a scope the global one, as in Java
        ([mapping("a", 0, total=1, scope=None)], ["a"]),
        ([TopicQueueMappingInfo()], []),
        ([], []),
    ],
)
def test_each_logical_queue_is_on_a_broker(mappings: list[TopicQueueMappingInfo], expected: list[str]) -> None:
    """ClientMetadataTest: endpoints of a static topic."""
    given = {str(number): info for number, info in enumerate(mappings)}

    assert [tuple(run) for run in logical_ranges(given)] == [(GLOBAL, 0, len(expected))] * min(1, len(given))
    assert [endpoint(MessageQueue("t", GLOBAL, number), given) for number in range(len(expected))] == expected


def test_scopes_are_sorted_by_queue_id() -> None:
    """Sorted by id, as in Java. TopicQueueMappingUtils.getMockBrokerName: the global scope loses its underscores."""
    runs = logical_ranges({"a": mapping("a", 0, total=2, scope="eu"), "b": mapping("b", 0, total=1, scope="us")})

    assert [run[:2] for run in runs] == [("__syslo__eu", 0), ("__syslo__us", 0), ("__syslo__eu", 1)]
    assert [logical_broker("__global__"), logical_broker("__eu")] == [GLOBAL, "__syslo____eu"]


def test_every_sender_has_its_own_position() -> None:
    """A send of one thread or task does not move another's position."""
    found = info(("a", 2), ("b", 2), at=3)
    found._positions[YOU] = 1

    assert names(found.select(sender) for sender in (ME, YOU, ME, YOU)) == ["a0", "b0", "a1", "b1"]


def test_senders_start_at_random_queues() -> None:
    """A thousand producers that start together do not all write to the first broker."""
    found = info(("a", 4), ("b", 4))

    assert len({found.select(sender) for sender in range(200)}) == 8


def test_avoiding_the_last_broker_skips_all_of_its_queues() -> None:
    """TestRoundRobinRetry: after a0 the next queue of another broker is b0, and the rotation continues there."""
    found = info(("a", 3), ("b", 2), at=0)

    assert names(found.select(ME, "broker-a") for _ in range(3)) == ["b0", "b1", "b0"]
    assert names(found.select(ME) for _ in range(2)) == ["b1", "a0"]
    # a retry on the same broker is the only choice
    only = info(("a", 3), at=0)
    assert names(only.select(ME, "broker-a") for _ in range(2)) == ["a1", "a2"]


def test_filter_without_a_match_keeps_the_position() -> None:
    """A search without a match does not move the sender's position."""
    found = info(("a", 2), ("b", 2), at=1)

    assert found.select_where(ME, lambda _: False) is None
    assert names([found.select(ME)]) == ["b0"]


@pytest.mark.parametrize("at", range(6))
def test_filter_finds_the_only_matching_broker(at: int) -> None:
    """The search wraps around from any position."""
    picked = info(("a", 2), ("b", 2), ("c", 2), at=at).select_where(ME, lambda name: name == "broker-b")

    assert picked is not None
    assert names([picked]) == ["b1" if at == 2 else "b0"]


def test_ranges_keep_their_ids() -> None:
    """A range may begin at any id. The rotation is that of Go's TestRoundRobin."""
    found = PublishInfo("t", [QueueRange("broker-a", 5, 2), QueueRange("broker-b", 9, 1)])
    found._positions[ME] = 2

    assert names(found.select(ME) for _ in range(4)) == ["a5", "a6", "b9", "a5"]
    assert names(found.queues) == ["a5", "a6", "b9"]


def test_positions_of_senders_are_bounded() -> None:
    """A server with a task per request must not grow with every request."""
    found = info(("a", 4))

    for sender in range(MAX_SENDERS * 3):
        found.select(sender)

    assert len(found._positions) <= MAX_SENDERS
    assert repr(found) == "<PublishInfo [t | 4 queues]>"
