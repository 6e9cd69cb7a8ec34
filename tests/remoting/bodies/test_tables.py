"""Small bodies are written to the byte in JSON and natively, and a DataVersion is read from both."""

import pytest
from hypothesis import given

from namesrv_remoting.bodies.tables import (
    data_version_from_json,
    data_version_from_native,
    data_version_to_json,
    data_version_to_native,
    kv_table_to_json,
    kv_table_to_native,
    topic_list_to_json,
    topic_list_to_native,
)
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.errors import BadRequestError
from tests.support.registrations import VERSIONS


def test_topic_list() -> None:
    """In the order that it is handed in; 304 adds the address of one broker."""
    assert topic_list_to_json(["b", "a"]) == b'{"topicList":["b","a"]}'
    assert topic_list_to_json([], "10.0.0.1:10911") == b'{"brokerAddr":"10.0.0.1:10911","topicList":[]}'
    assert topic_list_to_native(["b", "a"]) == b"\x82\xaatopic_list\x92\xa1b\xa1a\xabbroker_addr\xc0"
    assert topic_list_to_native([], "x:1") == b"\x82\xaatopic_list\x90\xabbroker_addr\xa3x:1"


def test_kv_table() -> None:
    """Empty when its namespace is."""
    assert kv_table_to_json({"k": "v", "\u00e9": '"'}) == b'{"table":{"k":"v","\xc3\xa9":"\\""}}'
    assert kv_table_to_json({}) == b'{"table":{}}'
    assert kv_table_to_native({"k": "v"}) == b"\x81\xa5table\x81\xa1k\xa1v"


def test_data_version_is_written() -> None:
    """All three members, zeros too."""
    assert data_version_to_json(DataVersion(1, 2, 3)) == b'{"counter":1,"stateVersion":2,"timestamp":3}'
    assert data_version_to_json(DataVersion()) == b'{"counter":0,"stateVersion":0,"timestamp":0}'
    assert data_version_to_native(DataVersion(1, 2, 3)) == b"\x83\xa7counter\x01\xadstate_version\x02\xa9timestamp\x03"


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (b"", None),
        (b"null", None),
        (b"{}", DataVersion(0, 0, 0)),
        (b'{"counter":1,"timestamp":1700000000000}', DataVersion(1, 0, 1_700_000_000_000)),
        (b'{"counter":"1",stateVersion:2,"timestamp":3}', DataVersion(1, 2, 3)),
        (b'{"counter":-9223372036854775808}', DataVersion(-9223372036854775808, 0, 0)),
    ],
    ids=["no body", "null", "empty", "4.9.x", "lenient", "least"],
)
def test_data_version_in_json(body: bytes, version: DataVersion | None) -> None:
    """None when there is none, which is a question about nothing."""
    assert version == data_version_from_json(body)


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (b"", None),
        (b"\xc0", None),
        (b"\x80", DataVersion(0, 0, 0)),
        (b"\x82\xa7counter\x01\xa9timestamp\x03", DataVersion(1, 0, 3)),
    ],
)
def test_data_version_in_msgpack(body: bytes, version: DataVersion | None) -> None:
    """The same."""
    assert version == data_version_from_native(body)


@pytest.mark.parametrize(
    "body", [b"[]", b"1", b'"x"', b"{", b'{"counter":"x"}', b'{"counter":9223372036854775808}', b"\xff"]
)
def test_json_that_is_no_data_version_is_refused(body: bytes) -> None:
    """By name."""
    with pytest.raises(BadRequestError, match=r"^body of DataVersion cannot be read: "):
        data_version_from_json(body)


@pytest.mark.parametrize("body", [b"\x90", b"\x01", b"\x81", b"\x81\xa7counter\xa1x", b"\x80\x80"])
def test_msgpack_that_is_no_data_version_is_refused(body: bytes) -> None:
    """By name."""
    with pytest.raises(BadRequestError, match=r"^body of DataVersion cannot be read: "):
        data_version_from_native(body)


@given(VERSIONS)
def test_data_version_round_trip(version: DataVersion) -> None:
    """What was written is read, and is of the one type that versions are compared as."""
    for read in (
        data_version_from_json(data_version_to_json(version)),
        data_version_from_native(data_version_to_native(version)),
    ):
        assert version == read
        assert DataVersion is type(read)
