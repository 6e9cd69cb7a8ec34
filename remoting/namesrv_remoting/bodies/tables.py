"""What do the small JSON bodies hold: lists of topics, tables of keys and values, a DataVersion?"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from namesrv_remoting.bodies.base import read_json
from namesrv_remoting.bodies.register import data_version_members
from namesrv_remoting.bodies.topic import DataVersion, JsonDataVersion

_data_version_decoder: Final = msgspec.json.Decoder(JsonDataVersion | None)


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
    version = read_json(_data_version_decoder, body, "DataVersion")
    return None if version is None else DataVersion(*msgspec.structs.astuple(version))
