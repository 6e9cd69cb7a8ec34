"""Queues of a static topic, and the broker of each."""

from namesrv_client import MessageQueue
from namesrv_client.queues.topic_queues import QueueRun, endpoint, endpoints, logical_broker, logical_runs
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo

GLOBAL = "__syslo__global__"


def mapping(
    broker: str, *ids: int, epoch: int = 1, total: int = 4, scope: str | None = "__global__"
) -> TopicQueueMappingInfo:
    """A broker that has these logical queues."""
    return TopicQueueMappingInfo("t", broker, scope, epoch, total, curr_id_map=dict.fromkeys(ids, 0))


def test_names_of_scopes() -> None:
    """TopicQueueMappingUtils.getMockBrokerName: only the global scope loses its underscores."""
    assert (GLOBAL, "__syslo__eu", "__syslo____eu") == (
        logical_broker("__global__"), logical_broker("eu"), logical_broker("__eu"),
    )  # fmt: skip


def test_one_mapping_is_one_endpoint() -> None:
    """ClientMetadataTest: a mapping of queue 0 of 1 ⇒ 1 endpoint."""
    assert {MessageQueue("t", GLOBAL, 0): "broker-a"} == endpoints("t", {"broker-a": mapping("broker-a", 0, total=1)})


def test_no_mapping_is_no_endpoint() -> None:
    """ClientMetadataTest: null or empty mappings ⇒ empty."""
    assert {} == endpoints("t", {})
    assert {} == endpoints("t", {"broker-a": TopicQueueMappingInfo()})


def test_queues_are_there_whether_a_broker_has_them_or_not() -> None:
    """Ids 0 to total - 1; those that nobody has stand on a broker that does not exist."""
    found = endpoints("t", {"broker-a": mapping("broker-a", 0, 2), "broker-b": mapping("broker-b", 1)})

    assert {
        MessageQueue("t", GLOBAL, 0): "broker-a",
        MessageQueue("t", GLOBAL, 1): "broker-b",
        MessageQueue("t", GLOBAL, 2): "broker-a",
        MessageQueue("t", GLOBAL, 3): "__syslo__none__",
    } == found


def test_a_queue_that_moved_is_where_the_newest_epoch_says() -> None:
    """Whatever the order of the brokers."""
    old, new = mapping("broker-a", 0, epoch=1, total=1), mapping("broker-b", 0, epoch=2, total=1)

    assert ["broker-b"] == list(endpoints("t", {"broker-a": old, "broker-b": new}).values())
    assert ["broker-b"] == list(endpoints("t", {"broker-b": new, "broker-a": old}).values())


def test_of_two_equal_epochs_the_later_one_counts() -> None:
    """As in Java, whose sort is stable and whose comparison lets the equal pass."""
    first, second = mapping("broker-a", 0, total=1), mapping("broker-b", 0, total=1)

    assert ["broker-b"] == list(endpoints("t", {"broker-a": first, "broker-b": second}).values())


def test_the_largest_total_counts() -> None:
    """While queues are being added, brokers say different totals."""
    runs = logical_runs({"broker-a": mapping("broker-a", 0, total=2), "broker-b": mapping("broker-b", 1, total=6)})

    assert [QueueRun(GLOBAL, 0, 6)] == list(runs)


def test_scopes_come_by_queue_id() -> None:
    """Sorted by id, as Java sorts them."""
    runs = logical_runs({"a": mapping("a", 0, total=2, scope="eu"), "b": mapping("b", 0, total=1, scope="us")})

    assert [("__syslo__eu", 0), ("__syslo__us", 0), ("__syslo__eu", 1)] == [run[:2] for run in runs]


def test_no_scope_is_the_global_one() -> None:
    """Java's field has that default."""
    assert "broker-a" == endpoint(MessageQueue("t", GLOBAL, 0), {"broker-a": mapping("broker-a", 0, scope=None)})
