"""Topics, versions and mappings are read in JSON and natively, with Java's defaults."""

import msgspec
import pytest

from namesrv_remoting.bodies.topic import (
    DataVersion,
    JsonDataVersion,
    JsonTopicConfig,
    JsonTopicQueueMappingInfo,
    TopicConfig,
    TopicQueueMappingInfo,
)


@pytest.mark.parametrize(
    ("body", "topic"),
    [
        (b'{"topicName":"T"}', ("T", 16, 16, 6, 0)),
        (
            (
                b'{"attributes":{"+k":"v"},"order":false,"perm":4,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",'
                b'"topicName":"%RETRY%G","topicSysFlag":3,"writeQueueNums":7}'
            ),
            ("%RETRY%G", 8, 7, 4, 3),
        ),
    ],
    ids=["least", "as Java writes it"],
)
def test_topic_in_json(body: bytes, topic: tuple[str, int, int, int, int]) -> None:
    """What is missing has Java's default: 16 queues each way, readable and writable."""
    assert topic == msgspec.structs.astuple(msgspec.json.decode(body, type=JsonTopicConfig))


@pytest.mark.parametrize(
    ("body", "topic"),
    [
        (b"\x81\xaatopic_name\xa1T", TopicConfig("T", 16, 16, 6, 0)),
        (
            (
                b"\x85\xaatopic_name\xa1T\xafread_queue_nums\x08\xb0write_queue_nums\x07\xa4perm\x04"
                b"\xaetopic_sys_flag\x03"
            ),
            TopicConfig("T", 8, 7, 4, 3),
        ),
    ],
    ids=["least", "all"],
)
def test_topic_in_msgpack(body: bytes, topic: TopicConfig) -> None:
    """The same names in snake_case, the same defaults."""
    assert topic == msgspec.msgpack.decode(body, type=TopicConfig)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"topicName": ""}, "Expected `str` of length >= 1"),
        ({"topicName": "t" * 256}, "Expected `str` of length <= 255"),
        ({"topicName": None}, "Expected `str`, got `null`"),
        ({"perm": 1 << 31}, "Expected `int` <= 2147483647"),
        ({"readQueueNums": -(1 << 31) - 1}, "Expected `int` >= -2147483648"),
        ({"writeQueueNums": "8"}, "Expected `int`, got `str`"),
    ],
)
def test_topic_that_cannot_be_is_refused(changed: dict[str, object], error: str) -> None:
    """A name of 1 to 255 characters; numbers of Java's int."""
    body = msgspec.json.encode({"topicName": "T", **changed})

    with pytest.raises(msgspec.ValidationError, match=f"^{error}"):
        msgspec.json.decode(body, type=JsonTopicConfig)


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (b"{}", (0, 0, 0)),
        (b'{"counter":1,"timestamp":1700000000000}', (1, 0, 1700000000000)),
        (b'{"counter":9223372036854775807,"stateVersion":-1,"timestamp":3}', (9223372036854775807, -1, 3)),
    ],
    ids=["empty", "4.9.x", "5.x"],
)
def test_data_version_in_json(body: bytes, version: tuple[int, int, int]) -> None:
    """Counter, state version, timestamp; 4.9.x has no state version, which is read as 0."""
    assert version == msgspec.structs.astuple(msgspec.json.decode(body, type=JsonDataVersion))


def test_data_version_in_msgpack() -> None:
    """The same names in snake_case."""
    body = b"\x83\xa7counter\x01\xadstate_version\x02\xa9timestamp\x03"

    assert DataVersion(1, 2, 3) == msgspec.msgpack.decode(body, type=DataVersion)


def test_mapping_in_json() -> None:
    """Logical queue ids are the keys of currIdMap; everything may be missing."""
    body = b'{"bname":"b","currIdMap":{"0":1,"12":3},"dirty":true,"epoch":7,"scope":"s","topic":"T","totalQueues":2}'

    assert ("T", "b", "s", 7, 2, True, {0: 1, 12: 3}) == msgspec.structs.astuple(
        msgspec.json.decode(body, type=JsonTopicQueueMappingInfo)
    )
    assert (None, None, None, 0, 0, False, None) == msgspec.structs.astuple(
        msgspec.json.decode(b"{}", type=JsonTopicQueueMappingInfo)
    )


def test_mapping_in_msgpack() -> None:
    """Integer keys are integers."""
    body = b"\x83\xa5topic\xa1T\xabcurr_id_map\x82\x00\x01\x0c\x03\xactotal_queues\x02"

    assert TopicQueueMappingInfo("T", None, None, 0, 2, False, {0: 1, 12: 3}) == msgspec.msgpack.decode(  # noqa: FBT003
        body, type=TopicQueueMappingInfo
    )


@pytest.mark.parametrize(
    ("native", "json"),
    [
        (TopicConfig, JsonTopicConfig),
        (DataVersion, JsonDataVersion),
        (TopicQueueMappingInfo, JsonTopicQueueMappingInfo),
    ],
)
def test_spellings_declare_the_same_fields(native: type[msgspec.Struct], json: type[msgspec.Struct]) -> None:
    """Same names, same order, same types, same defaults: one is made from the other by position."""
    fields = [
        [(field.name, field.type, field.default) for field in msgspec.structs.fields(spelling)]
        for spelling in (native, json)
    ]

    assert fields[0] == fields[1]
