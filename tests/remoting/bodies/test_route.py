"""Response bodies in JSON and natively, written to the byte and read back."""

import tracemalloc
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.bodies.dialects import JSON, NATIVE, Dialect
from namesrv_remoting.bodies.route import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    KVTable,
    MemberGroup,
    QueueData,
    TopicList,
    TopicRouteData,
    read_queue_datas,
    read_route,
)
from namesrv_remoting.bodies.topic import DataVersion, TopicQueueMappingInfo
from namesrv_remoting.errors import BadRequestError, RemoteProtocolError
from tests.support.apache_server import apache_route
from tests.support.commands import INT32, INT64, MAPPINGS, NAMES

BROKER_A = BrokerData("c1", "a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
ROUTES = st.builds(
    TopicRouteData,
    st.lists(st.builds(BrokerData, NAMES, NAMES, st.dictionaries(INT64, NAMES), st.none() | NAMES, st.booleans())),
    st.lists(st.builds(QueueData, NAMES, INT32, INT32, INT32, INT32)),
    st.dictionaries(NAMES, st.lists(NAMES, max_size=2), max_size=2),
    st.none() | NAMES | st.just(""),
    st.none() | st.dictionaries(NAMES, MAPPINGS, min_size=1, max_size=2),
)


@pytest.mark.parametrize(
    ("body", "in_json", "native"),
    [
        (
            TopicRouteData([BROKER_A], [QueueData("a", 8, 7, 6, 1)]),
            (b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"a",'
            b'"cluster":"c1","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"a",'
            b'"perm":6,"readQueueNums":8,"topicSysFlag":1,"writeQueueNums":7}]}'),
            None,
        ),
        (
            TopicRouteData(
                [BrokerData("c1", "a", {-1: "x:1"}, zone_name="z1", enable_acting_master=True)],
                [],
                {"x:1": ["f:1", "f:2"]},
                "",
                {"a": TopicQueueMappingInfo("T", "a", "__global__", 7, 2, dirty=False, curr_id_map={0: 1, 12: 3}),
                 "b": TopicQueueMappingInfo()},
            ),
            (b'{"brokerDatas":[{"brokerAddrs":{"-1":"x:1"},"brokerName":"a","cluster":"c1","enableActingMaster":true,'
            b'"zoneName":"z1"}],"filterServerTable":{"x:1":["f:1","f:2"]},"orderTopicConf":"","queueDatas":[],'
            b'"topicQueueMappingByBroker":{"a":{"bname":"a","currIdMap":{"0":1,"12":3},"dirty":false,"epoch":7,'
            b'"scope":"__global__","topic":"T","totalQueues":2},"b":{"dirty":false,"epoch":0,"totalQueues":0}}}'),
            {
                "broker_datas": [{"cluster": "c1", "broker_name": "a", "broker_addrs": {-1: "x:1"}, "zone_name": "z1",
                                  "enable_acting_master": True}],
                "queue_datas": [],
                "filter_server_table": {"x:1": ["f:1", "f:2"]},
                "order_topic_conf": "",
                "topic_queue_mapping_by_broker": {
                    "a": {"topic": "T", "bname": "a", "scope": "__global__", "epoch": 7, "total_queues": 2,
                          "dirty": False, "curr_id_map": {0: 1, 12: 3}},
                    "b": {"topic": None, "bname": None, "scope": None, "epoch": 0, "total_queues": 0, "dirty": False,
                          "curr_id_map": None},
                },
            },
        ),
        (
            ClusterInfo({"a": BROKER_A}, {"c1": ["a", "b"]}),
            (b'{"brokerAddrTable":{"a":{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"a",'
            b'"cluster":"c1","enableActingMaster":false}},"clusterAddrTable":{"c1":["a","b"]}}'),
            None,
        ),
        (
            BrokerMemberGroup(MemberGroup("c1", "a", {})),
            b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"a","cluster":"c1"}}', None,
        ),
        (TopicList(["b", "a"]), b'{"topicList":["b","a"]}', {"topic_list": ["b", "a"], "broker_addr": None}),
        (TopicList([], "x:1"), b'{"brokerAddr":"x:1","topicList":[]}', None),
        (KVTable({"k": "v", "\u00e9": '"'}), b'{"table":{"k":"v","\xc3\xa9":"\\""}}', None),
        (DataVersion(1, 0, 3), b'{"counter":1,"stateVersion":0,"timestamp":3}', None),
    ],
)  # fmt: skip
def test_body_in_both_dialects(body: Any, in_json: bytes, native: dict[str, Any] | None) -> None:
    """JSON is compact and alphabetical with quoted keys and without nulls; natively nil is written where declared."""
    assert JSON.encode(body) == in_json
    assert (native or msgspec.to_builtins(body)) == msgpack.unpackb(NATIVE.encode(body), strict_map_key=False)
    for dialect, other in ((JSON, NATIVE), (NATIVE, JSON)):
        assert dialect.read(type(body), dialect.encode(body)) == body
        with pytest.raises(BadRequestError, match=rf"^body of {type(body).__name__} cannot be read: "):
            other.read(type(body), dialect.encode(body))


@pytest.mark.parametrize(
    ("name", "spelt"),
    [("\u4e3b\u9898", '"\u4e3b\u9898"'), ('a"b\\', r'"a\"b\\"'), ("a/b", '"a/b"'), ("\x01\n", r'"\u0001\n"')],
)
def test_names_have_only_necessary_escapes(name: str, spelt: str) -> None:
    """UTF-8 and slashes are raw, as in Java's default form; quotes, backslashes and control characters are escaped."""
    assert f'{{"topicList":[{spelt}]}}'.encode() == JSON.encode(TopicList([name]))


@given(ROUTES)
def test_routes_round_trip(route: TopicRouteData) -> None:
    """A written route is read back in either encoding, as a whole or only its queues."""
    for dialect in (JSON, NATIVE):
        assert dialect.read_response(TopicRouteData, dialect.encode(route)) == route
        assert route.queue_datas == read_queue_datas(dialect, dialect.encode(route))
    assert read_route(JSON.encode(route)) == route


@pytest.mark.parametrize(
    ("body", "flag"),
    [
        (apache_route("broker-a", queues=8), 0),
        # before 4.9.0 the flag had another name
        (apache_route("broker-a", queues=8).replace(b'"topicSysFlag": 0', b'"topicSynFlag":4'), 4),
    ],
)
def test_routes_of_apaches_servers(body: bytes, flag: int) -> None:
    """Bare keys are read from every version."""
    group = BrokerData("cluster-1", "broker-a", {0: "10.0.0.1:10911"})

    assert read_route(body) == TopicRouteData([group], [QueueData("broker-a", 8, 8, 6, flag)])


def test_a_long_list_is_not_copied() -> None:
    """Names are written without an extra pass: checking a hundred thousand of them first would block the loop."""
    topics = TopicList(["t"] * 100_000)
    tracemalloc.start()
    try:
        body = JSON.encode(topics)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # a copied list of references would take 800 KB
    assert 400_000 < len(body) < most < 2 * len(body)


@pytest.mark.parametrize(
    ("kind", "body", "bare"),
    [
        (TopicRouteData, b'{"brokerDatas":null,"filterServerTable":null,"queueDatas":null,"x":[null]}', b"{}"),
        (
            TopicRouteData,
            b'{"brokerDatas":[{"brokerName":"b","cluster":null,"brokerAddrs":{0:"10.0.0.1:10911",1:null}}]}',
            b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"0":"10.0.0.1:10911"}}]}',
        ),
        (ClusterInfo, b'{"brokerAddrTable":null,"clusterAddrTable":null}', b"{}"),
        (TopicList, b'{"topicList":null}', b"{}"),
        (KVTable, b'{"table":null}', b"{}"),
    ],
)
def test_nulls_count_as_missing(kind: type[object], body: bytes, bare: bytes) -> None:
    """Fastjson leaves nulls out; servers in other languages may write them."""
    assert JSON.read_response(kind, bare) == JSON.read_response(kind, body)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        # a null in place of an element
        *((TopicList, b'{"topicList":[null]}'), (TopicList, b'{"topicList":"null"}')),
        (TopicList, b'{"x":' + b"[" * 5000 + b"null"),
        *((TopicRouteData, body) for body in (b"", b"null", b"[]", b'{"brokerDatas":3}', b'{"queueDatas":[{}]}')),
    ],
)
def test_invalid_response_is_a_remote_error(kind: type[object], body: bytes) -> None:
    """The message contains the reason."""
    with pytest.raises(RemoteProtocolError, match=rf"^body of {kind.__name__} cannot be read: "):
        JSON.read_response(kind, body)


@pytest.mark.parametrize(
    ("dialect", "body", "queue_datas"),
    [
        (JSON, b"{}", []),
        (JSON, b'{"queueDatas":null}', []),
        (JSON, b'{"queueDatas":[]}', []),
        (JSON, (b'{"brokerDatas":[{"brokerAddrs":{0:"x:1"},"brokerName":"a","cluster":"c"}],"filterServerTable":{},'
               b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8,"topicSysFlag":1,"writeQueueNums":7}]}'),
         [QueueData("a", 8, 7, 6, 1)]),
        (JSON, b'{"queueDatas":[{"brokerName":"a","topicSynFlag":1}]}', [QueueData("a", 0, 0, 0, 0)]),
        (NATIVE, b"\x80", []),
        (NATIVE, b"\x81\xabqueue_datas\xc0", []),
        (NATIVE, (b"\x82\xa1x\x81\x00\x01\xabqueue_datas\x91\x84\xabbroker_name\xa1a\xafread_queue_nums\x08"
                 b"\xb0write_queue_nums\x07\xa4perm\x06"), [QueueData("a", 8, 7, 6, 0)]),
    ],
)  # fmt: skip
def test_queues_of_a_route(dialect: Dialect, body: bytes, queue_datas: list[QueueData]) -> None:
    """Other members are skipped, bare integer keys included; missing JSON members are 0 as in Java's QueueData."""
    assert read_queue_datas(dialect, body) == queue_datas


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        *((JSON, body) for body in (b"", b"[]", b"null", b'{"queueDatas":{}}', b'{"queueDatas":[null]}', b"{{{{",
                                    b'{"queueDatas":[{}]}', b'{"queueDatas":[{"brokerName":""}]}',
                                    b'{"queueDatas":[{"brokerName":"a","perm":2147483648}]}')),
        *((NATIVE, body) for body in (b"", b"\xc0", b"\x90", b"\x81\xabqueue_datas\x91\x81\xabbroker_name\xa1a")),
    ],
)  # fmt: skip
def test_invalid_queues_are_refused(dialect: Dialect, body: bytes) -> None:
    """A queue needs a broker name; native numbers have no default."""
    with pytest.raises(BadRequestError, match=r"^body of TopicRouteData cannot be read: "):
        read_queue_datas(dialect, body)


def test_queues_are_limited() -> None:
    """128 KiB of queues is the limit in either encoding."""
    for dialect in (JSON, NATIVE):
        with pytest.raises(BadRequestError, match=r"^body of TopicRouteData: 131073 bytes, limit 131072$"):
            read_queue_datas(dialect, bytes(131_073))
