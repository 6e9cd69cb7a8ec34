"""Each request carries the fields that RocketMQ gives it."""

import msgspec
import pytest

from namesrv_remoting.errors import BadRequestError
from namesrv_remoting.headers import ExtHeader
from namesrv_remoting.headers.admin import (
    AddWritePermResponseHeader,
    BrokerNameRequestHeader,
    ClusterRequestHeader,
    DeleteTopicRequestHeader,
    GetKVConfigResponseHeader,
    KVConfigKeyRequestHeader,
    NamespaceRequestHeader,
    PutKVConfigRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermResponseHeader,
)
from namesrv_remoting.headers.broker import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
)
from namesrv_remoting.headers.client import GetRouteInfoRequestHeader

BROKER = {"brokerName": "a", "brokerAddr": "10.0.0.1:10911", "clusterName": "c"}
REQUIRED = [
    (PutKVConfigRequestHeader, {"namespace": "n", "key": "k", "value": "v"}),
    (KVConfigKeyRequestHeader, {"namespace": "n", "key": "k"}),
    (NamespaceRequestHeader, {"namespace": "n"}),
    (BrokerNameRequestHeader, {"brokerName": "a"}),
    (DeleteTopicRequestHeader, {"topic": "T"}),
    (RegisterTopicRequestHeader, {"topic": "T"}),
    (ClusterRequestHeader, {"cluster": "c"}),
    (RegisterBrokerRequestHeader, {**BROKER, "brokerId": "0"}),
    (UnregisterBrokerRequestHeader, {**BROKER, "brokerId": "0"}),
    (BrokerHeartbeatRequestHeader, BROKER),
    (QueryDataVersionRequestHeader, {**BROKER, "brokerId": "0"}),
    (GetBrokerMemberGroupRequestHeader, {"clusterName": "c", "brokerName": "a"}),
    (GetRouteInfoRequestHeader, {"topic": "T"}),
]


@pytest.mark.parametrize(("header", "fields"), REQUIRED)
def test_required_fields_are_enough(header: type[ExtHeader], fields: dict[str, str]) -> None:
    """And each of them is needed; Apache's server checks none."""
    header.from_ext(fields)
    for name in fields:
        with pytest.raises(BadRequestError, match=rf"^field {name} is missing$"):
            header.from_ext({key: value for key, value in fields.items() if key != name})


@pytest.mark.parametrize(("header", "fields"), REQUIRED)
def test_names_may_not_be_empty(header: type[ExtHeader], fields: dict[str, str]) -> None:
    """An empty value is as good as none, because the binary header cannot tell them apart; only a KV value may be."""
    for name in set(fields) - {"value"}:
        with pytest.raises(BadRequestError, match=rf"^field {name} is empty$"):
            header.from_ext({**fields, name: ""})


def test_registration_of_an_old_broker() -> None:
    """4.9.x knows neither acting master nor an expiry of its own; the CRC is not checked, the body not compressed."""
    header = RegisterBrokerRequestHeader.from_ext(
        {**BROKER, "brokerId": "0", "haServerAddr": "10.0.0.1:10912", "compressed": "false", "bodyCrc32": "0"}
    )

    assert (
        RegisterBrokerRequestHeader(
            broker_name="a",
            broker_addr="10.0.0.1:10911",
            cluster_name="c",
            broker_id=0,
            ha_server_addr="10.0.0.1:10912",
            heartbeat_timeout_millis=None,
            enable_acting_master=None,
            compressed=False,
            body_crc32=0,
            zone_name=None,
            kind="full",
            agent_id=None,
            registration_seq=None,
        )
        == header
    )


def test_registration_of_a_new_broker() -> None:
    """5.x names its zone, its expiry and whether a slave may act as master; ids may be negative (DLedger)."""
    header = RegisterBrokerRequestHeader.from_ext(
        {
            **BROKER,
            "brokerId": "-1",
            "heartbeatTimeoutMillis": "10000",
            "enableActingMaster": "true",
            "compressed": "true",
            "bodyCrc32": "1321367481",
            "__ZONE_NAME": "z1",
        }
    )

    assert (-1, 10000, True, True, 1321367481, "z1", None) == (
        header.broker_id,
        header.heartbeat_timeout_millis,
        header.enable_acting_master,
        header.compressed,
        header.body_crc32,
        header.zone_name,
        header.ha_server_addr,
    )


def test_native_registration_says_what_it_is() -> None:
    """Full or delta, by which agent process, and the how manieth of it."""
    header = RegisterBrokerRequestHeader.from_ext(
        {**BROKER, "brokerId": "0", "kind": "delta", "agentId": "x", "registrationSeq": "7"}
    )

    assert ("delta", "x", 7) == (header.kind, header.agent_id, header.registration_seq)


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"brokerId": "abc"}, "field brokerId: 'abc': expected `int`, got `str`"),
        ({"heartbeatTimeoutMillis": "0"}, "field heartbeatTimeoutMillis: '0': expected `int` >= 1"),
        ({"heartbeatTimeoutMillis": "-1"}, "field heartbeatTimeoutMillis: '-1': expected `int` >= 1"),
        (
            {"heartbeatTimeoutMillis": "86400001"},
            "field heartbeatTimeoutMillis: '86400001': expected `int` <= 86400000",
        ),
        ({"compressed": "zlib"}, "field compressed: 'zlib': expected `bool`, got `str`"),
        ({"bodyCrc32": "0x10"}, "field bodyCrc32: '0x10': expected `int`, got `str`"),
    ],
)
def test_registration_with_a_bad_field_is_refused(changed: dict[str, str], remark: str) -> None:
    """By name and value, before anything happens; an expiry is between a millisecond and a day."""
    with pytest.raises(BadRequestError) as caught:
        RegisterBrokerRequestHeader.from_ext({**BROKER, "brokerId": "0", **changed})
    assert remark == caught.value.remark


def test_route_question_with_everything() -> None:
    """Zone fields have names of their own; the rest of a TopicRequestHeader is ignored."""
    header = GetRouteInfoRequestHeader.from_ext(
        {
            "topic": "T",
            "acceptStandardJsonOnly": "TRUE",
            "__ZONE_MODE": "true",
            "__ZONE_NAME": "z",
            "ns": "x",
            "lo": "1",
        }
    )

    assert ("T", "TRUE", "true", "z") == (
        header.topic,
        header.accept_standard_json_only,
        header.zone_mode,
        header.zone_name,
    )


def test_topic_of_one_cluster_may_be_deleted() -> None:
    """Without a cluster it is deleted everywhere."""
    assert DeleteTopicRequestHeader.from_ext({"topic": "T", "clusterName": "c"}).cluster_name == "c"
    assert DeleteTopicRequestHeader.from_ext({"topic": "T"}).cluster_name is None


@pytest.mark.parametrize(
    ("header", "ext_fields"),
    [
        (GetKVConfigResponseHeader(value="v"), {"value": "v"}),
        (GetKVConfigResponseHeader(), {}),
        (WipeWritePermResponseHeader(wipe_topic_count=3), {"wipeTopicCount": "3"}),
        (AddWritePermResponseHeader(add_topic_count=0), {"addTopicCount": "0"}),
        (RegisterBrokerResponseHeader(), {}),
        (
            RegisterBrokerResponseHeader(ha_server_addr="h:1", master_addr="m:2"),
            {"haServerAddr": "h:1", "masterAddr": "m:2"},
        ),
        (QueryDataVersionResponseHeader(changed=True), {"changed": "true"}),
        (QueryDataVersionResponseHeader(changed=False), {"changed": "false"}),
        (
            NotifyMinBrokerIdChangeRequestHeader(
                min_broker_id=1,
                broker_name="a",
                min_broker_addr="m:1",
                offline_broker_addr="o:2",
                ha_broker_addr="h:3",
            ),
            {
                "minBrokerId": "1",
                "brokerName": "a",
                "minBrokerAddr": "m:1",
                "offlineBrokerAddr": "o:2",
                "haBrokerAddr": "h:3",
            },
        ),
        (NotifyMinBrokerIdChangeRequestHeader(min_broker_id=0), {"minBrokerId": "0"}),
    ],
)
def test_what_the_server_sends(header: ExtHeader, ext_fields: dict[str, str]) -> None:
    """All of it strings, without what is None; and a client reads it back."""
    assert ext_fields == header.to_ext()
    assert header == type(header).from_ext(ext_fields)


def test_headers_are_values() -> None:
    """Nobody changes what a peer has said."""
    header = GetRouteInfoRequestHeader(topic="T")

    with pytest.raises(AttributeError):
        header.topic = "U"  # type: ignore[misc]  # that is the point
    assert msgspec.structs.replace(header, topic="U").topic == "U"
