"""Routes, clusters and lists come out of what servers write, and nothing else."""

import pytest

from namesrv_remoting.bodies.answers import read_cluster_info, read_kv_table, read_route, read_topic_list
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData, route_to_json
from namesrv_remoting.errors import RemoteProtocolError
from tests.support.apache_server import apache_route
from tests.support.route_clients import group, queues


@pytest.mark.parametrize(
    "body",
    [
        apache_route("broker-a", queues=8),
        # our own server's, and what Java writes for those who want standard JSON
        (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"cluster-1"}],'
            b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,'
            b'"writeQueueNums":8}]}'
        ),
        # before 4.9.0 the flag had another name
        (
            b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"cluster-1"}],'
            b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSynFlag":0,"writeQueueNums":8}]}'
        ),
    ],
)
def test_routes_in_json(body: bytes) -> None:
    """With bare or quoted keys, whatever the version."""
    assert (
        TopicRouteData(
            [BrokerData("cluster-1", "broker-a", {0: "10.0.0.1:10911"})], [QueueData("broker-a", 8, 8, 6, 0)]
        )
        == read_route(body)
    )  # fmt: skip


def test_the_old_spelling_of_the_flag_counts() -> None:
    """`topicSynFlag`, before 4.9.0."""
    body = b'{"queueDatas":[{"brokerName":"b","topicSynFlag":4}]}'

    assert [QueueData("b", 0, 0, 0, 4)] == read_route(body).queue_datas


def test_our_own_json_is_read_back() -> None:
    """A snapshot is written and read that way."""
    route = TopicRouteData(
        [group("broker-a", 0, 1, zone="east"), group("broker-b")],
        [queues("broker-a"), queues("broker-b")],
        {"10.0.0.1:10911": ["f"]},
        "broker-a:4",
    )

    assert route == read_route(route_to_json(route))


def test_static_topics_in_json() -> None:
    """A mapping is kept; bare keys in it as well."""
    body = (
        b'{"topicQueueMappingByBroker":{"broker-a":{"topic":"t","bname":"broker-a","scope":"__global__","epoch":3,'
        b'"totalQueues":2,"currIdMap":{0:5,1:6}}}}'
    )

    mappings = read_route(body).topic_queue_mapping_by_broker

    assert mappings is not None
    assert ("broker-a", 3, 2, {0: 5, 1: 6}) == (
        mappings["broker-a"].bname, mappings["broker-a"].epoch, mappings["broker-a"].total_queues,
        mappings["broker-a"].curr_id_map,
    )  # fmt: skip


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"not json", b'{"brokerDatas":3}', b'{"queueDatas":[{}]}', b"\xff"]
)
def test_what_is_no_route_is_the_servers_fault(body: bytes) -> None:
    """And says what it was."""
    with pytest.raises(RemoteProtocolError, match="TopicRouteData"):
        read_route(body)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"brokerAddrTable":[],"topicList":1,"table":[]}'])
def test_json_answer_that_is_none_is_the_peers_fault(body: bytes) -> None:
    """As well."""
    for read in (read_cluster_info, read_topic_list, read_kv_table):
        with pytest.raises(RemoteProtocolError, match=r"^body of .* cannot be read: "):
            read(body, native=False)


def test_members_that_java_leaves_out_have_defaults() -> None:
    """Fastjson writes no nulls."""
    body = b'{"brokerAddrTable":{"b":{"brokerName":"b"}}}'

    assert {"b": BrokerData("", "b", {})} == read_cluster_info(body, native=False).broker_addr_table
    assert {} == read_cluster_info(b"{}", native=False).cluster_addr_table
    assert [] == read_topic_list(b"{}", native=False)
    assert {} == read_kv_table(b"{}", native=False)
