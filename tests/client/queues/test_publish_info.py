"""Queues that a producer writes to and a consumer reads, and their order."""

from typing import Any

import msgspec
import pytest

from namesrv_client import MessageQueue, NoQueueError, PublishInfo
from namesrv_client.queues.topic_queues import MAX_SENDERS, QueueRun, publish_info, subscribe_queues
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from tests.support.route_clients import group, queues

ME, YOU = 1, 2


def names(found: Any) -> list[str]:
    """Queues in short: a0 is queue 0 of broker-a."""
    return [f"{queue.broker_name[-1]}{queue.queue_id}" for queue in found]


def info(*runs: tuple[str, int]) -> PublishInfo:
    """Brokers and how many queues each has."""
    return PublishInfo("t", [QueueRun(f"broker-{name}", 0, count) for name, count in runs])


def begun(found: PublishInfo, *, sender: int = ME, at: int) -> PublishInfo:
    """The same, the sender having got the queue at that position last: where it begins is random otherwise."""
    found._turns[sender] = at
    return found


# -- publishing: which queues -----------------------------------------------------------------------------------------


def test_queues_come_broker_by_broker() -> None:
    """MQClientInstanceTest.testTopicRouteData2TopicPublishInfo, with two brokers: a0 a1 b0 b1, not a0 b0 a1 b1."""
    route = TopicRouteData([group("broker-b"), group("broker-a")], [queues("broker-b", 2), queues("broker-a", 2)])

    assert ["a0", "a1", "b0", "b1"] == names(publish_info("t", route).queues)


def test_one_broker_with_four_queues() -> None:
    """MQClientInstanceTest.testTopicRouteData2TopicPublishInfo: a master, perm 6, 4 write queues make 4 queues."""
    route = TopicRouteData([group("broker-a")], [QueueData("broker-a", 3, 4, 6)])

    found = publish_info("topic", route)

    assert [MessageQueue("topic", "broker-a", number) for number in range(4)] == list(found.queues)
    assert (4, False) == (found.count, found.is_ordered)


@pytest.mark.parametrize(("perm", "count"), [(6, 4), (2, 4), (7, 4), (4, 0), (1, 0), (0, 0)])
def test_only_queues_with_write_permission_are_written_to(perm: int, count: int) -> None:
    """Bit 2 is write; 4 is read, 1 inherit."""
    route = TopicRouteData([group("broker-a")], [queues("broker-a", 4, perm)])

    assert count == publish_info("t", route).count


def test_a_group_without_master_is_not_written_to() -> None:
    """It needs an address under id 0."""
    route = TopicRouteData([group("broker-a", 1), group("broker-b", 0, 1)], [queues("broker-a"), queues("broker-b", 1)])

    assert ["b0"] == names(publish_info("t", route).queues)


def test_queues_of_a_broker_that_is_not_listed_are_not_written_to() -> None:
    """There would be no address to send to."""
    route = TopicRouteData([group("broker-a")], [queues("broker-a", 1), queues("broker-z", 1)])

    assert ["a0"] == names(publish_info("t", route).queues)


def test_order_topics_list_their_own_queues() -> None:
    """In the listed order, with no look at permissions, masters or existence."""
    route = TopicRouteData([group("broker-a")], [queues("broker-a", 8, 0)], order_topic_conf="broker-z:2;broker-a:1")

    found = publish_info("t", route)

    assert ["z0", "z1", "a0"] == names(found.queues)
    assert found.is_ordered


def test_order_topic_as_in_java() -> None:
    """MQClientInstanceTest.…WithOrderTopicConf: `127.0.0.1:4` makes 4 queues of a broker named 127.0.0.1."""
    route = TopicRouteData([], [], order_topic_conf="127.0.0.1:4")

    assert [MessageQueue("t", "127.0.0.1", number) for number in range(4)] == list(publish_info("t", route).queues)


@pytest.mark.parametrize(
    "conf", ["broker-a", "broker-a:", ":3", "broker-a:x", "broker-a:-1", "broker-a:99999999999", ";"]
)
def test_what_is_no_order_configuration_lists_nothing(conf: str) -> None:
    """Java fails with a NumberFormatException in the middle of an update; here that part does not count."""
    route = TopicRouteData([group("broker-a")], [queues("broker-a")], order_topic_conf=f"{conf};broker-b:1")

    assert ["b0"] == names(publish_info("t", route).queues)


def test_an_empty_order_configuration_is_none_but_for_static_topics() -> None:
    """Java takes the static branch only if orderTopicConf is null, and the ordered one only if it is not empty."""
    mapping = {"broker-a": TopicQueueMappingInfo("t", "broker-a", "__global__", 1, 2, curr_id_map={0: 0, 1: 1})}
    route = TopicRouteData(
        [group("broker-a")], [queues("broker-a", 1)], order_topic_conf="", topic_queue_mapping_by_broker=mapping
    )

    assert ["a0"] == names(publish_info("t", route).queues)
    static = msgspec.structs.replace(route, order_topic_conf=None)
    assert [("__syslo__global__", 0), ("__syslo__global__", 1)] == [q[1:] for q in publish_info("t", static).queues]


def test_a_static_topic_with_an_empty_mapping_has_no_queues() -> None:
    """MQClientInstanceTest.…WithTopicQueueMappingByBroker and its sibling for subscriptions: 0 queues in both."""
    route = TopicRouteData(
        [group("broker-a")], [queues("broker-a")], topic_queue_mapping_by_broker={"broker-a": TopicQueueMappingInfo()}
    )

    assert (0, []) == (publish_info("t", route).count, subscribe_queues("t", route))


def test_a_billion_queues_cost_nothing() -> None:
    """Somebody's mistake in a topic's configuration does not end its producers."""
    found = publish_info("t", TopicRouteData([group("broker-a")], [queues("broker-a", 2**31 - 1)]))

    assert 2**31 - 1 == found.count
    assert "broker-a" == found.select(ME).broker_name


# -- subscribing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("perm", "count"), [(6, 3), (4, 3), (7, 3), (2, 0), (1, 0), (0, 0)])
def test_only_queues_with_read_permission_are_read(perm: int, count: int) -> None:
    """As many as there are to read, which may be others than those to write."""
    route = TopicRouteData([group("broker-a")], [QueueData("broker-a", 3, 8, perm)])

    assert count == len(subscribe_queues("t", route))


def test_consumers_keep_reading_where_only_slaves_are_left() -> None:
    """No master is needed, and not even the broker's existence."""
    route = TopicRouteData([group("broker-a", 1)], [queues("broker-a", 2), queues("broker-z", 1)])

    assert ["a0", "a1", "z0"] == names(subscribe_queues("t", route))


# -- whose turn it is -------------------------------------------------------------------------------------------------


def test_round_robin_as_in_go() -> None:
    """TestRoundRobin: with 10 queues, pick i of 100 is queue (i + 1) mod 10, and topics do not know of each other."""
    first, second = begun(info(("a", 10)), at=0), begun(info(("a", 10)), at=0)

    assert [(i + 1) % 10 for i in range(100)] == [first.select(ME).queue_id for _ in range(100)]
    assert [(i + 1) % 10 for i in range(100)] == [second.select(ME).queue_id for _ in range(100)]


def test_round_robin_with_a_last_broker_as_in_go() -> None:
    """TestRoundRobinRetry: five queues each, the last attempt on broker-a: a hundred times broker-b."""
    found = info(("a", 5), ("b", 5))

    assert {"broker-b"} == {found.select(ME, "broker-a").broker_name for _ in range(100)}


def test_picks_as_in_the_proxys_selector() -> None:
    """MessageQueueSelectorTest: three queues, ids 0, 1, 2, and the fourth pick is the first; two queues alternate."""
    three, two = begun(info(("a", 3)), at=2), begun(info(("a", 2)), at=1)

    assert ["a0", "a1", "a2", "a0"] == names(three.select(ME) for _ in range(4))
    assert ["a0", "a1", "a0"] == names(two.select(ME) for _ in range(3))


def test_every_sender_takes_its_own_turns() -> None:
    """What one thread or task sends does not move another's turn."""
    found = begun(begun(info(("a", 2), ("b", 2)), at=3), sender=YOU, at=1)

    assert ["a0", "b0", "a1", "b1"] == names(found.select(sender) for sender in (ME, YOU, ME, YOU))


def test_senders_begin_anywhere() -> None:
    """A thousand producers that start together do not all write to the first broker."""
    found = info(("a", 4), ("b", 4))

    assert 8 == len({found.select(sender) for sender in range(200)})


def test_avoiding_the_last_broker_skips_all_of_its_queues() -> None:
    """From a0 the next on another broker is b0, and the turn goes on from there."""
    found = begun(info(("a", 3), ("b", 2)), at=0)

    assert ["b0", "b1", "b0"] == names(found.select(ME, "broker-a") for _ in range(3))
    assert ["b1", "a0"] == names(found.select(ME) for _ in range(2))


def test_the_last_broker_is_taken_if_there_is_no_other() -> None:
    """As in RocketMQ: a retry on the same broker is better than none."""
    found = begun(info(("a", 3)), at=0)

    assert ["a1", "a2"] == names(found.select(ME, "broker-a") for _ in range(2))


def test_a_filter_that_none_passes_takes_no_turn() -> None:
    """Nobody's turn is lost by asking in vain."""
    found = begun(info(("a", 2), ("b", 2)), at=1)

    assert found.select_where(ME, lambda _: False) is None
    assert "b0" == names([found.select(ME)])[0]


def test_a_filter_finds_the_only_broker_that_passes_from_anywhere() -> None:
    """Also when the search begins in the middle of its queues and has to come round."""
    for at in range(6):
        found = begun(info(("a", 2), ("b", 2), ("c", 2)), at=at)
        picked = found.select_where(ME, lambda name: name == "broker-b")
        assert picked is not None
        assert ("broker-b", at == 2) == (picked.broker_name, picked.queue_id == 1), at


def test_logical_runs_keep_their_ids() -> None:
    """A run may begin at another id than 0."""
    found = begun(PublishInfo("t", [QueueRun("broker-a", 5, 2), QueueRun("broker-b", 9, 1)]), at=2)

    assert ["a5", "a6", "b9", "a5"] == names(found.select(ME) for _ in range(4))
    assert ["a5", "a6", "b9"] == names(found.queues)


@pytest.mark.parametrize("last_broker", [None, "broker-a"])
def test_no_queue_is_an_error_that_names_the_topic(last_broker: str | None) -> None:
    """MessageQueueSelectorTest: 0 queues ⇒ empty."""
    with pytest.raises(NoQueueError, match="topic t has no queue that can be written to"):
        info().select(ME, last_broker)


def test_senders_that_came_and_went_are_forgotten() -> None:
    """A server with a task per request does not grow with every request."""
    found = info(("a", 4))

    for sender in range(MAX_SENDERS * 3):
        found.select(sender)

    assert MAX_SENDERS >= len(found._turns)


def test_what_is_shown() -> None:
    """For logs."""
    assert "<PublishInfo [t | 5 queues]>" == repr(info(("a", 2), ("b", 3)))
