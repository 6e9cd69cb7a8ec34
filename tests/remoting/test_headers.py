"""Ext fields as typed values, and errors for invalid ones."""

from typing import Annotated, Any

import msgspec
import pytest

from namesrv_remoting import headers
from namesrv_remoting.errors import BadRequestError


class Header(headers.ExtHeader, frozen=True, kw_only=True):
    """A header with a field of each kind."""

    broker_name: headers.Name
    topic_count: headers.Int32
    counter: headers.Int64 | None = None
    percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 50
    enable_order: bool = False
    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")


LEAST = {"brokerName": "a", "topicCount": "0"}
BROKER = {"brokerName": "a", "brokerAddr": "10.0.0.1:10911", "clusterName": "c"}
REGISTRATION = {**BROKER, "brokerId": "0"}


def test_ext_fields_become_typed_values() -> None:
    """Names are in camelCase; undeclared fields are ignored, and missing ones have their default."""
    header = Header.from_ext(
        {
            "brokerName": "broker-a",
            "topicCount": "-7",
            "counter": "9223372036854775807",
            "percent": "100",
            "enableOrder": "TRUE",
            "__ZONE_NAME": "z1",
            "AccessKey": "ignored",
        }
    )

    assert header == Header(
        broker_name="broker-a", topic_count=-7, counter=(1 << 63) - 1, percent=100, enable_order=True, zone_name="z1"
    )
    assert Header.from_ext(LEAST) == Header(broker_name="a", topic_count=0)
    # as Boolean.parseBoolean reads it
    assert Header.from_ext({**LEAST, "enableOrder": "True"}).enable_order
    # a header without the member, and one with an empty member, are the same
    nothing: list[dict[str, str] | None] = [None, {}]
    for fields in nothing:
        with pytest.raises(BadRequestError, match=r"^field brokerName is missing$"):
            Header.from_ext(fields)
    with pytest.raises(BadRequestError, match=r"^field counter is empty$"):
        Header.from_ext({**LEAST, "counter": ""})


@pytest.mark.parametrize(
    ("header", "name", "value", "reason"),
    [
        *((Header, "topicCount", value, "expected `int`, got `str`") for value in ("abc", "1.5", "1_0", "1e0", "1.0")),
        *((Header, "topicCount", value, "expected `int`, got `str`") for value in (" 1", "1 ", "+", "--1", "+-1")),
        *((Header, "counter", value, "expected `int | null`, got `str`") for value in ("1e0", "null")),
        (Header, "topicCount", "2147483648", "expected `int` <= 2147483647"),
        (Header, "topicCount", "-2147483649", "expected `int` >= -2147483648"),
        (Header, "topicCount", "9" * 5000, "integer value out of range"),
        (Header, "counter", "9223372036854775808", "expected `int` <= 9223372036854775807"),
        (Header, "percent", "101", "expected `int` <= 100"),
        (Header, "enableOrder", "yes", "expected `bool`, got `str`"),
        # an expiry is between a millisecond and a day
        (headers.RegisterBrokerRequestHeader, "heartbeatTimeoutMillis", "0", "expected `int` >= 1"),
        (headers.RegisterBrokerRequestHeader, "heartbeatTimeoutMillis", "86400001", "expected `int` <= 86400000"),
        (headers.RegisterBrokerRequestHeader, "compressed", "zlib", "expected `bool`, got `str`"),
    ],
)
def test_bad_field_is_refused_by_name_and_value(
    header: type[headers.ExtHeader], name: str, value: str, reason: str
) -> None:
    """The error comes before any change; a long value is shortened."""
    with pytest.raises(BadRequestError) as caught:
        header.from_ext({**LEAST, **REGISTRATION, name: value})
    assert (caught.value.remark or "").startswith(f"field {name}: {value[:64]!r}: {reason}")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("+1", 1), ("01", 1), ("-01", -1), ("-0", 0), ("+0", 0), ("000", 0)),
        *(("0" * 5000 + "7", 7), ("+9223372036854775807", (1 << 63) - 1), ("-9223372036854775808", -(1 << 63))),
    ],
)
def test_numbers_are_those_of_java(text: str, number: int) -> None:
    """As `Long.parseLong` reads them: decimal digits after a sign or none."""
    assert Header.from_ext({**LEAST, "counter": text}).counter == number


@pytest.mark.parametrize(
    ("header", "ext_fields"),
    [
        (
            Header(broker_name="a", topic_count=-7, enable_order=True),
            {"brokerName": "a", "topicCount": "-7", "percent": "50", "enableOrder": "true"},
        ),
        (
            Header(broker_name="a", topic_count=0, zone_name=""),
            {"brokerName": "a", "topicCount": "0", "percent": "50", "enableOrder": "false", "__ZONE_NAME": ""},
        ),
        (
            headers.RegisterBrokerResponseHeader(ha_server_addr="h:1", master_addr="m:2"),
            {"haServerAddr": "h:1", "masterAddr": "m:2"},
        ),
    ],
)
def test_typed_values_become_ext_fields(header: headers.ExtHeader, ext_fields: dict[str, str]) -> None:
    """Values are strings in Java's format; a None field is absent."""
    assert header.to_ext() == ext_fields


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        (headers.PutKVConfigRequestHeader, {"namespace": "n", "key": "k", "value": "v"}),
        (headers.KVConfigKeyRequestHeader, {"namespace": "n", "key": "k"}),
        (headers.NamespaceRequestHeader, {"namespace": "n"}),
        (headers.BrokerNameRequestHeader, {"brokerName": "a"}),
        (headers.TopicRequestHeader, {"topic": "T"}),
        (headers.ClusterRequestHeader, {"cluster": "c"}),
        (headers.RegisterBrokerRequestHeader, REGISTRATION),
        (headers.UnregisterBrokerRequestHeader, REGISTRATION),
        (headers.BrokerHeartbeatRequestHeader, BROKER),
        (headers.QueryDataVersionRequestHeader, REGISTRATION),
        (headers.GetBrokerMemberGroupRequestHeader, {"clusterName": "c", "brokerName": "a"}),
        (headers.GetRouteInfoRequestHeader, {"topic": "T"}),
    ],
)
def test_required_fields_are_enough(header: type[headers.ExtHeader], fields: dict[str, str]) -> None:
    """Each required field must be present and, but for a KV value, not empty: the binary header has no empty values."""
    header.from_ext(fields)
    javas = {"namespace", "key"} if header is headers.PutKVConfigRequestHeader else set()
    for name in fields:
        missing = "namespace or key is null" if name in javas else f"field {name} is missing"
        with pytest.raises(BadRequestError, match=rf"^{missing}$"):
            header.from_ext({key: value for key, value in fields.items() if key != name})
        if name != "value":
            with pytest.raises(BadRequestError, match=rf"^field {name} is empty$"):
                header.from_ext({**fields, name: ""})


@pytest.mark.parametrize(
    ("header", "fields", "expected"),
    [
        # 4.9.x sends neither acting master nor expiry; the CRC is not checked, and the body not compressed
        (
            headers.RegisterBrokerRequestHeader,
            {**REGISTRATION, "haServerAddr": "h:1", "compressed": "false", "bodyCrc32": "0"},
            {"broker_id": 0, "ha_server_addr": "h:1", "heartbeat_timeout_millis": None, "enable_acting_master": None,
             "compressed": False, "body_crc32": 0, "zone_name": None, "kind": "full", "agent_id": None,
             "registration_seq": None},
        ),
        # 5.x sends all of it; ids may be negative (DLedger)
        (
            headers.RegisterBrokerRequestHeader,
            {**BROKER, "brokerId": "-1", "heartbeatTimeoutMillis": "10000", "enableActingMaster": "true",
             "compressed": "true", "bodyCrc32": "1321367481", "__ZONE_NAME": "z1"},
            {"broker_id": -1, "ha_server_addr": None, "heartbeat_timeout_millis": 10_000, "enable_acting_master": True,
             "compressed": True, "body_crc32": 1_321_367_481, "zone_name": "z1"},
        ),
        # agent id and registration number
        (
            headers.RegisterBrokerRequestHeader,
            {**REGISTRATION, "kind": "delta", "agentId": "x", "registrationSeq": "7"},
            {"kind": "delta", "agent_id": "x", "registration_seq": 7},
        ),
        (headers.UnregisterBrokerRequestHeader, {**REGISTRATION, "agentId": "x", "registrationSeq": "7"},
         {"agent_id": "x", "registration_seq": 7}),
        (headers.BrokerHeartbeatRequestHeader, {**REGISTRATION, "agentId": "x", "registrationSeq": "7"},
         {"broker_id": 0, "agent_id": "x"}),
        (headers.BrokerHeartbeatRequestHeader, BROKER, {"broker_id": None, "agent_id": None}),
        # zone fields have names of their own; other fields of a TopicRequestHeader are ignored
        (
            headers.GetRouteInfoRequestHeader,
            {"topic": "T", "acceptStandardJsonOnly": "TRUE", "__ZONE_MODE": "true", "__ZONE_NAME": "z", "ns": "x"},
            {"topic": "T", "zone_mode": "true", "zone_name": "z"},
        ),
        (headers.TopicRequestHeader, {"topic": "T", "clusterName": "c"}, {"cluster_name": "c"}),
        (headers.TopicRequestHeader, {"topic": "T"}, {"cluster_name": None}),
    ],
)  # fmt: skip
def test_fields_of_a_request(header: type[headers.ExtHeader], fields: dict[str, str], expected: dict[str, Any]) -> None:
    """Each sender's field names are read."""
    found = header.from_ext(fields)

    assert {name: getattr(found, name) for name in expected} == expected
