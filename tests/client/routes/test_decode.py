"""Do routes come out of what servers write, and nothing else?"""

from typing import Any

import msgpack
import pytest

from namesrv_client.routes.decode import members, pulled_routes, route_from_json, server_info
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData, route_members, route_to_json
from namesrv_remoting.errors import RemoteProtocolError
from tests.support.apache_server import apache_route
from tests.support.route_clients import group, queues, topic_route


def native(**changes: Any) -> bytes:
    """An answer to PULL_ROUTES."""
    said = {"boot_id": "b00t", "revision": 7, "ready": True, "full": True, "routes": {}}
    packed: bytes = msgpack.packb({**said, **changes})
    return packed


# -- JSON -------------------------------------------------------------------------------------------------------------


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
        == route_from_json(body)
    )  # fmt: skip


def test_the_old_spelling_of_the_flag_counts() -> None:
    """`topicSynFlag`, before 4.9.0."""
    body = b'{"queueDatas":[{"brokerName":"b","topicSynFlag":4}]}'

    assert [QueueData("b", 0, 0, 0, 4)] == route_from_json(body).queue_datas


def test_our_own_json_is_read_back() -> None:
    """A snapshot is written and read that way."""
    route = TopicRouteData(
        [group("broker-a", 0, 1, zone="east"), group("broker-b")],
        [queues("broker-a"), queues("broker-b")],
        {"10.0.0.1:10911": ["f"]},
        "broker-a:4",
    )

    assert route == route_from_json(route_to_json(route))


def test_static_topics_in_json() -> None:
    """A mapping is kept; bare keys in it as well."""
    body = (
        b'{"topicQueueMappingByBroker":{"broker-a":{"topic":"t","bname":"broker-a","scope":"__global__","epoch":3,'
        b'"totalQueues":2,"currIdMap":{0:5,1:6}}}}'
    )

    mappings = route_from_json(body).topic_queue_mapping_by_broker

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
        route_from_json(body)


# -- natively ---------------------------------------------------------------------------------------------------------


def test_pulled_routes() -> None:
    """A route, and a topic that positively does not exist."""
    found = pulled_routes(native(routes={"t": route_members(topic_route("broker-a")), "u": None}))

    assert {"t": topic_route("broker-a"), "u": None} == found.routes
    assert ("b00t", 7, True, True) == (found.boot_id, found.revision, found.ready, found.full)


def test_routes_that_are_spelt_the_same_are_decoded_once() -> None:
    """Most topics of a cluster have the route of most others."""
    spelt = route_members(topic_route("broker-a"))

    found = pulled_routes(native(routes={"t": spelt, "u": spelt})).routes

    assert found["t"] is found["u"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",
        b"\x93\x01\x02\x03",
        native(revision="seven"),
        native(routes={"t": 3}),
        native(routes={"t": {"broker_datas": [{}], "queue_datas": []}}),
        native()[:-1],
        # a map that claims to have four billion members
        b"\xdf\xff\xff\xff\xff",
    ],
)
def test_what_is_no_answer_to_a_pull_is_the_servers_fault(body: bytes) -> None:
    """And says so."""
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        pulled_routes(body)


def test_server_info_takes_what_a_client_needs() -> None:
    """Which run, and since when."""
    found = server_info(msgpack.packb({"boot_id": "b00t", "uptime_seconds": 12.5, "brokers": 3, "refusals": {"x": 1}}))

    assert ("b00t", 12.5) == (found.boot_id, found.uptime_seconds)


@pytest.mark.parametrize("body", [b"", msgpack.packb({}), msgpack.packb({"boot_id": "b", "uptime_seconds": "long"})])
def test_what_is_no_server_info_is_the_servers_fault(body: bytes) -> None:
    """A client that took it would end by a bug."""
    with pytest.raises(RemoteProtocolError, match="SERVER_INFO"):
        server_info(body)


def test_members_of_a_native_answer() -> None:
    """For those who want to see all of it."""
    assert {"a": {1: "b"}} == members(msgpack.packb({"a": {1: "b"}}))
    with pytest.raises(RemoteProtocolError, match="answer is a list, not a map"):
        members(msgpack.packb([1]))
    with pytest.raises(RemoteProtocolError, match="answer is not msgpack"):
        members(b"")
