"""A route is written to the byte in JSON and natively, and read for its queues."""

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.bodies.route import (
    BrokerData,
    QueueData,
    TopicRouteData,
    broker_data_members,
    broker_data_native,
    cluster_info_to_json,
    cluster_info_to_native,
    member_group_to_json,
    member_group_to_native,
    queue_datas_from_json,
    queue_datas_from_native,
    route_to_json,
    route_to_native,
)
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_remoting.errors import BadRequestError
from tests.support.commands import INT32
from tests.support.registrations import NAMES

BROKER_A = BrokerData("c1", "a", {1: "10.0.0.2:10911", 0: "10.0.0.1:10911"})
QUEUES_A = QueueData("a", 8, 7, 6, 1)
LEAST = TopicRouteData([BROKER_A], [QUEUES_A])
ALL = TopicRouteData(
    [BrokerData("c1", "a", {-1: "x:1"}, zone_name="z1", enable_acting_master=True)],
    [QueueData("a", 8, 7, 6)],
    filter_server_table={"x:1": ["f:1", "f:2"]},
    order_topic_conf="a:8;b:8",
    topic_queue_mapping_by_broker={
        "a": TopicQueueMappingInfo("T", "a", "__global__", 7, 2, dirty=False, curr_id_map={0: 1, 12: 3}),
        "b": TopicQueueMappingInfo(),
    },
)

# -- JSON -------------------------------------------------------------------------------------------------------------


def test_route_in_json() -> None:
    """Compact, in alphabetical order, ids quoted and sorted, master first; members that are null are not there."""
    assert route_to_json(LEAST) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"a","cluster":"c1",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,'
        b'"readQueueNums":8,"topicSysFlag":1,"writeQueueNums":7}]}'
    )


def test_route_with_everything_in_json() -> None:
    """Filter servers, order configuration, static-topic mappings, acting master, zone, a negative id."""
    assert route_to_json(ALL) == (
        b'{"brokerDatas":[{"brokerAddrs":{"-1":"x:1"},"brokerName":"a","cluster":"c1","enableActingMaster":true,'
        b'"zoneName":"z1"}],"filterServerTable":{"x:1":["f:1","f:2"]},"orderTopicConf":"a:8;b:8","queueDatas":['
        b'{"brokerName":"a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":7}],'
        b'"topicQueueMappingByBroker":{"a":{"bname":"a","currIdMap":{"0":1,"12":3},"dirty":false,"epoch":7,'
        b'"scope":"__global__","topic":"T","totalQueues":2},"b":{"dirty":false,"epoch":0,"totalQueues":0}}}'
    )


@pytest.mark.parametrize("mappings", [None, {}])
def test_java_sees_a_static_topic_only_when_there_is_one(mappings: dict[str, TopicQueueMappingInfo] | None) -> None:
    """No mappings and an empty table of them are the same: the member is not there."""
    route = TopicRouteData([], [], topic_queue_mapping_by_broker=mappings)

    assert route_to_json(route) == b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'


def test_empty_order_configuration_is_not_none() -> None:
    """Java takes the static-topic path only when it is null, so the difference is kept."""
    assert b'"orderTopicConf":""' in route_to_json(TopicRouteData([], [], order_topic_conf=""))


@pytest.mark.parametrize(
    ("name", "spelt"),
    [("\u4e3b\u9898", '"\u4e3b\u9898"'), ('a"b\\', r'"a\"b\\"'), ("a/b", '"a/b"'), ("\x01\n", r'"\u0001\n"')],
)
def test_names_are_escaped_where_json_has_to(name: str, spelt: str) -> None:
    """Raw UTF-8 and slashes, as Java's default form has them; quotes, backslashes and control characters escaped."""
    expected = f'{{"brokerAddrs":{{}},"brokerName":{spelt},"cluster":"c","enableActingMaster":false}}'

    assert expected.encode() == msgspec.json.encode(broker_data_members(BrokerData("c", name, {})))


@given(st.dictionaries(st.integers(-3, 1000), NAMES, max_size=5), NAMES)
def test_no_blank_follows_a_separator(broker_addrs: dict[int, str], name: str) -> None:
    """The Go client cuts at `,` and `:`, and a blank behind one puts the slave in the master's place."""
    data = BrokerData("c", name.replace(" ", "_"), {key: addr.replace(" ", "_") for key, addr in broker_addrs.items()})

    assert b" " not in route_to_json(TopicRouteData([data], []))


def test_cluster_info_in_json() -> None:
    """Broker groups by name, names by cluster, sorted; empty tables when there is nothing."""
    assert cluster_info_to_json([BROKER_A], {"c1": ["b", "a"]}) == (
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"a",'
        b'"cluster":"c1","enableActingMaster":false}},"clusterAddrTable":{"c1":["a","b"]}}'
    )
    assert cluster_info_to_json([], {}) == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def test_member_group_in_json() -> None:
    """One group; no addresses when nobody is in it."""
    assert member_group_to_json("c1", "a", {0: "x:1", 2: "y:2"}) == (
        b'{"brokerMemberGroup":{"brokerAddrs":{"0":"x:1","2":"y:2"},"brokerName":"a","cluster":"c1"}}'
    )
    assert member_group_to_json("c1", "a", {}) == (
        b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"a","cluster":"c1"}}'
    )


# -- native -----------------------------------------------------------------------------------------------------------


def test_route_in_msgpack_to_the_byte() -> None:
    """Integer keys are integers; what is not there is nil."""
    assert route_to_native(TopicRouteData([BrokerData("c", "a", {0: "x:1"})], [QueueData("a", 8, 7, 6, 1)])) == (
        b"\x85"
        b"\xacbroker_datas\x91\x85\xa7cluster\xa1c\xabbroker_name\xa1a\xacbroker_addrs\x81\x00\xa3x:1"
        b"\xa9zone_name\xc0\xb4enable_acting_master\xc2"
        b"\xabqueue_datas\x91\x85\xabbroker_name\xa1a\xafread_queue_nums\x08\xb0write_queue_nums\x07\xa4perm\x06"
        b"\xaetopic_sys_flag\x01"
        b"\xb3filter_server_table\x80"
        b"\xb0order_topic_conf\xc0"
        b"\xbdtopic_queue_mapping_by_broker\xc0"
    )


def test_route_with_everything_in_msgpack() -> None:
    """The members of DESIGN's native bodies, read by a plain msgpack reader."""
    assert msgpack.unpackb(route_to_native(ALL), strict_map_key=False) == {
        "broker_datas": [
            {
                "cluster": "c1",
                "broker_name": "a",
                "broker_addrs": {-1: "x:1"},
                "zone_name": "z1",
                "enable_acting_master": True,
            }
        ],
        "queue_datas": [
            {"broker_name": "a", "read_queue_nums": 8, "write_queue_nums": 7, "perm": 6, "topic_sys_flag": 0}
        ],
        "filter_server_table": {"x:1": ["f:1", "f:2"]},
        "order_topic_conf": "a:8;b:8",
        "topic_queue_mapping_by_broker": {
            "a": {
                "topic": "T",
                "bname": "a",
                "scope": "__global__",
                "epoch": 7,
                "total_queues": 2,
                "dirty": False,
                "curr_id_map": {0: 1, 12: 3},
            },
            "b": {
                "topic": None,
                "bname": None,
                "scope": None,
                "epoch": 0,
                "total_queues": 0,
                "dirty": False,
                "curr_id_map": None,
            },
        },
    }


def test_cluster_info_in_msgpack() -> None:
    """As in JSON, in snake_case."""
    assert msgpack.unpackb(cluster_info_to_native([BROKER_A], {"c1": ["b", "a"]}), strict_map_key=False) == {
        "broker_addr_table": {
            "a": {
                "cluster": "c1",
                "broker_name": "a",
                "broker_addrs": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
                "zone_name": None,
                "enable_acting_master": False,
            }
        },
        "cluster_addr_table": {"c1": ["a", "b"]},
    }


def test_member_group_in_msgpack() -> None:
    """As in JSON, in snake_case."""
    assert member_group_to_native("c", "a", {0: "x:1"}) == (
        b"\x81\xb3broker_member_group\x83\xa7cluster\xa1c\xabbroker_name\xa1a\xacbroker_addrs\x81\x00\xa3x:1"
    )


# -- reading, for REGISTER_TOPIC_IN_NAMESRV ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "queues"),
    [
        (b"{}", []),
        (b'{"queueDatas":null}', []),
        (b'{"queueDatas":[]}', []),
        (
            (
                b'{"brokerDatas":[{"brokerAddrs":{0:"x:1"},"brokerName":"a","cluster":"c"}],"filterServerTable":{},'
                b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8,"topicSysFlag":1,"writeQueueNums":7}]}'
            ),
            [QueueData("a", 8, 7, 6, 1)],
        ),
        (b'{"queueDatas":[{"brokerName":"a"}]}', [QueueData("a", 0, 0, 0, 0)]),
        (b'{"queueDatas":[{"brokerName":"a","topicSynFlag":1}]}', [QueueData("a", 0, 0, 0, 0)]),
    ],
    ids=["empty", "null", "none", "as Java writes it", "defaults", "the old misspelling"],
)
def test_queues_of_a_json_route(body: bytes, queues: list[QueueData]) -> None:
    """All else is skipped, bare integer keys included; what is missing is 0, as in Java's QueueData."""
    assert queues == queue_datas_from_json(body)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b'{"queueDatas":{}}', b'{"queueDatas":[null]}', b'{"queueDatas":[{}]}', b"{{{{",
     b'{"queueDatas":[{"brokerName":""}]}', b'{"queueDatas":[{"brokerName":"a","perm":2147483648}]}'],
)  # fmt: skip
def test_json_that_is_no_route_is_refused(body: bytes) -> None:
    """A queue belongs to a broker that has a name."""
    with pytest.raises(BadRequestError, match=r"^body of TopicRouteData cannot be read: "):
        queue_datas_from_json(body)


@pytest.mark.parametrize(
    ("body", "queues"),
    [
        (b"\x80", []),
        (b"\x81\xabqueue_datas\xc0", []),
        (
            (
                b"\x82\xa1x\x81\x00\x01\xabqueue_datas\x91\x84\xabbroker_name\xa1a\xafread_queue_nums\x08"
                b"\xb0write_queue_nums\x07\xa4perm\x06"
            ),
            [QueueData("a", 8, 7, 6, 0)],
        ),
    ],
)
def test_queues_of_a_native_route(body: bytes, queues: list[QueueData]) -> None:
    """All else is skipped."""
    assert queues == queue_datas_from_native(body)


@pytest.mark.parametrize("body", [b"", b"\xc0", b"\x90", b"\x81\xabqueue_datas\x91\x81\xabbroker_name\xa1a"])
def test_msgpack_that_is_no_route_is_refused(body: bytes) -> None:
    """Natively no number has a default."""
    with pytest.raises(BadRequestError, match=r"^body of TopicRouteData cannot be read: "):
        queue_datas_from_native(body)


@given(st.lists(st.builds(QueueData, NAMES, INT32, INT32, INT32, INT32), max_size=5))
def test_queues_round_trip(queues: list[QueueData]) -> None:
    """Both spellings of a route are read for the queues that were written."""
    route = TopicRouteData([BROKER_A], queues)

    assert queues == queue_datas_from_json(route_to_json(route))
    assert queues == queue_datas_from_native(route_to_native(route))


def test_zone_and_acting_master_are_in_the_native_group() -> None:
    """All five members, whatever they hold."""
    assert broker_data_native(ALL.broker_datas[0]) == {
        "cluster": "c1",
        "broker_name": "a",
        "broker_addrs": {-1: "x:1"},
        "zone_name": "z1",
        "enable_acting_master": True,
    }
