"""Small bodies: lists of topics, tables of keys and values, a DataVersion.

Each in RocketMQ's JSON, which leaves out what is null, and natively, where that is nil.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from namesrv_remoting.bodies.base import read_json, read_msgpack
from namesrv_remoting.bodies.register import data_version_members
from namesrv_remoting.bodies.topic import MAX_DATA_VERSION_BYTES, DataVersion, JsonDataVersion

_json_data_version: Final = msgspec.json.Decoder(JsonDataVersion | None)
_native_data_version: Final = msgspec.msgpack.Decoder(DataVersion | None)


def topic_list_to_json(topics: Iterable[str], broker_addr: str | None = None) -> bytes:
    """A TopicList; 304 adds the address of one broker."""
    members: dict[str, object] = {} if broker_addr is None else {"brokerAddr": broker_addr}
    members["topicList"] = list(topics)
    return msgspec.json.encode(members)


def kv_table_to_json(table: Mapping[str, str]) -> bytes:
    """A KVTable."""
    return msgspec.json.encode({"table": dict(table)})


def data_version_to_json(version: DataVersion) -> bytes:
    """A DataVersion."""
    return msgspec.json.encode(data_version_members(version))


def data_version_from_json(body: bytes) -> DataVersion | None:
    """The DataVersion in a body, None when there is none.

    Raises:
        BadRequestError: the body is not a DataVersion.
    """
    if not body:
        return None
    version = read_json(_json_data_version, body, "DataVersion", max_bytes=MAX_DATA_VERSION_BYTES)
    return None if version is None else DataVersion(*msgspec.structs.astuple(version))


def topic_list_to_native(topics: Iterable[str], broker_addr: str | None = None) -> bytes:
    """A TopicList."""
    return msgspec.msgpack.encode({"topic_list": list(topics), "broker_addr": broker_addr})


def kv_table_to_native(table: Mapping[str, str]) -> bytes:
    """A KVTable."""
    return msgspec.msgpack.encode({"table": dict(table)})


def data_version_to_native(version: DataVersion) -> bytes:
    """A DataVersion."""
    return msgspec.msgpack.encode(version)


def data_version_from_native(body: bytes) -> DataVersion | None:
    """The DataVersion in a body, None when there is none.

    Raises:
        BadRequestError: the body is not a DataVersion.
    """
    if not body:
        return None
    version: DataVersion | None = read_msgpack(
        _native_data_version, body, "DataVersion", max_bytes=MAX_DATA_VERSION_BYTES
    )
    return version
