"""Bodies are encoded as their header says; test_route and test_tables check what is in them."""

import json
from dataclasses import fields
from typing import Any

import msgpack
import pytest

from namesrv_remoting.bodies.dialects import JSON, NATIVE, Dialect, dialect_of
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.codes import SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import BadRequestError

GROUP = BrokerData("c", "b", {0: "a"})
ROUTE = TopicRouteData([GROUP], [QueueData("b", 4, 2, 6, 1)])


@pytest.mark.parametrize(
    ("serialize_type", "dialect"),
    [(SerializeType.JSON, JSON), (SerializeType.ROCKETMQ, JSON), (SerializeType.MSGPACK, NATIVE)],
)
def test_header_says_how_bodies_are_spelt(serialize_type: SerializeType, dialect: Dialect) -> None:
    """A binary header goes with JSON bodies, as in RocketMQ."""
    assert dialect is dialect_of(RemotingCommand(code=106, serialize_type=serialize_type))


def test_dialects_share_no_spelling() -> None:
    """Whatever the one has, the other has in its own way."""
    shared = [item.name for item in fields(Dialect) if getattr(JSON, item.name) is getattr(NATIVE, item.name)]

    assert [] == shared


@pytest.mark.parametrize(
    ("body", "arguments", "json_names", "native_names"),
    [
        (
            "route",
            (ROUTE,),
            {"brokerDatas", "filterServerTable", "queueDatas"},
            {
                "broker_datas",
                "filter_server_table",
                "order_topic_conf",
                "queue_datas",
                "topic_queue_mapping_by_broker",
            },
        ),
        (
            "cluster_info",
            ([GROUP], {"c": {"b"}}),
            {"brokerAddrTable", "clusterAddrTable"},
            {"broker_addr_table", "cluster_addr_table"},
        ),
        ("member_group", ("c", "b", {0: "a"}), {"brokerMemberGroup"}, {"broker_member_group"}),
        ("topic_list", (["T"], "a"), {"topicList", "brokerAddr"}, {"topic_list", "broker_addr"}),
        ("kv_table", ({"k": "v"},), {"table"}, {"table"}),
        (
            "data_version",
            (DataVersion(),),
            {"counter", "stateVersion", "timestamp"},
            {"counter", "state_version", "timestamp"},
        ),
    ],
)
def test_body_has_the_names_of_its_dialect(
    body: str, arguments: tuple[Any, ...], json_names: set[str], native_names: set[str]
) -> None:
    """RocketMQ's in JSON, which leaves out what is null; in snake_case natively, where that is nil."""
    assert json_names == json.loads(getattr(JSON, body)(*arguments)).keys()
    assert native_names == msgpack.unpackb(getattr(NATIVE, body)(*arguments), strict_map_key=False).keys()


@pytest.mark.parametrize("dialect", [JSON, NATIVE])
def test_what_is_written_is_read(dialect: Dialect) -> None:
    """By the same dialect; the other one refuses it."""
    other = NATIVE if dialect is JSON else JSON
    version, route = dialect.data_version(DataVersion(1, 2, 3)), dialect.route(ROUTE)

    assert DataVersion(1, 2, 3) == dialect.read_data_version(version)
    assert [QueueData("b", 4, 2, 6, 1)] == dialect.read_queue_datas(route)
    with pytest.raises(BadRequestError, match=r"^body of DataVersion cannot be read: "):
        other.read_data_version(version)
    with pytest.raises(BadRequestError, match=r"^body of TopicRouteData cannot be read: "):
        other.read_queue_datas(route)
