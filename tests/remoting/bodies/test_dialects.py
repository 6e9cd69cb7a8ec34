"""Bodies in Java's JSON and in the native dialect."""

import msgspec
import pytest

from namesrv_remoting.bodies.dialects import JSON, NATIVE, Dialect, java
from namesrv_remoting.bodies.route import BrokerData, ClusterInfo, KVTable, QueueData, TopicList, TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from namesrv_remoting.errors import BadRequestError, RemoteProtocolError


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"topicName":"T"}', TopicConfig("T", 16, 16, 6, 0)),
        ((b'{"attributes":{"+k":"v"},"order":false,"perm":4,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",'
         b'"topicName":"%RETRY%G","topicSysFlag":3,"writeQueueNums":7}'), TopicConfig("%RETRY%G", 8, 7, 4, 3)),
        (b"{}", DataVersion(0, 0, 0)),
        (b'{"counter":9223372036854775807,"stateVersion":-1,"timestamp":3}', DataVersion((1 << 63) - 1, -1, 3)),
        (b"{}", TopicQueueMappingInfo(None, None, None, 0, 0, dirty=False, curr_id_map=None)),
        (b'{"bname":"b","currIdMap":{"0":1,12:3},"dirty":true,"epoch":7,"scope":"s","topic":"T","totalQueues":2}',
         TopicQueueMappingInfo("T", "b", "s", 7, 2, dirty=True, curr_id_map={0: 1, 12: 3})),
        (b'{"brokerName":"a"}', QueueData("a", 0, 0, 0, 0)),
        (b'{"brokerName":"b"}', BrokerData("", "b", {}, None, enable_acting_master=False)),
        (b"{}", TopicRouteData([], [], {}, None, None)),
        (b"{}", ClusterInfo({}, {})),
        (b'{"brokerAddrTable":{"b":{"brokerName":"b"}}}', ClusterInfo({"b": BrokerData("", "b", {})}, {})),
        (b"{}", TopicList([])),
    ],
)  # fmt: skip
def test_missing_json_members_have_defaults(body: bytes, expected: object) -> None:
    """Defaults are a topic's or zero, and the result has the ordinary type."""
    found = JSON.read(type(expected), body)

    assert found == expected
    assert type(expected) is type(found)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"topicName": ""}, "Expected `str` of length >= 1"),
        ({"topicName": "t" * 391}, "Expected `str` of length <= 390"),
        ({"topicName": None}, "Expected `str`, got `null`"),
        ({"perm": 1 << 31}, "Expected `int` <= 2147483647"),
        ({"readQueueNums": -(1 << 31) - 1}, "Expected `int` >= -2147483648"),
        ({"writeQueueNums": "8"}, "Expected `int`, got `str`"),
    ],
)
def test_invalid_topic_is_refused(changed: dict[str, object], error: str) -> None:
    """A name has 1 to 390 characters, and numbers are Java's int."""
    body = msgspec.json.encode({"topicName": "T", **changed})

    with pytest.raises(msgspec.ValidationError, match=f"^{error}"):
        msgspec.json.decode(body, type=java(TopicConfig))


def test_native_members_are_required_unless_optional() -> None:
    """Our servers send every member."""
    for kind in (QueueData, BrokerData, TopicRouteData, ClusterInfo, TopicList, KVTable):
        with pytest.raises(BadRequestError, match=rf"^body of {kind.__name__} cannot be read: .* missing required"):
            NATIVE.read(kind, b"\x80")


@pytest.mark.parametrize(
    ("dialect", "body", "version"),
    [
        (JSON, b"", None),
        (JSON, b"null", None),
        (JSON, b"{}", DataVersion(0, 0, 0)),
        (JSON, b'{"counter":"1",stateVersion:2,"timestamp":3}', DataVersion(1, 2, 3)),
        (JSON, b'{"counter":-9223372036854775808}', DataVersion(-(1 << 63), 0, 0)),
        (NATIVE, b"", None),
        (NATIVE, b"\xc0", None),
        (NATIVE, b"\x80", DataVersion(0, 0, 0)),
        (NATIVE, b"\x82\xa7counter\x01\xa9timestamp\x03", DataVersion(1, 0, 3)),
    ],
)
def test_data_version_is_read(dialect: Dialect, body: bytes, version: DataVersion | None) -> None:
    """A body without a version is None."""
    assert dialect.read_data_version(body) == version


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        *((JSON, body) for body in (b"[]", b"1", b'"x"', b"{", b'{"counter":"x"}', b'{"counter":9223372036854775808}',
                                    b"\xff", b"\x80")),
        *((NATIVE, body) for body in (b"\x90", b"\x01", b"\x81", b"\x81\xa7counter\xa1x", b"\x80\x80", b"{}")),
    ],
)  # fmt: skip
def test_invalid_data_version_is_refused(dialect: Dialect, body: bytes) -> None:
    """The error names the member; in a response it is the server's fault."""
    with pytest.raises(BadRequestError, match=r"^body of DataVersion cannot be read: "):
        dialect.read_data_version(body)
    with pytest.raises(RemoteProtocolError, match=r"^body of DataVersion cannot be read: "):
        dialect.read_response(DataVersion, body)


@pytest.mark.parametrize("dialect", [JSON, NATIVE])
def test_data_version_is_small(dialect: Dialect) -> None:
    """The limit is 512 bytes."""
    with pytest.raises(BadRequestError, match=r"^body of DataVersion: 513 bytes, limit 512$"):
        dialect.read_data_version(bytes(513))
