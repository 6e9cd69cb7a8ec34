"""How does a broker with compressedRegister=true spell its registration, once it is inflated?

int32 length, DataVersion JSON | int32 count, per topic int32 length, text line | int32 length, JSON array of filter
servers | and, from version 413 on, int32 count, per mapping int32 length, TopicQueueMappingInfo JSON.
A line is `topicName read write perm topicFilterType [attributesJson]`, split on single blanks.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

import msgspec

from namesrv_remoting.bodies.base import read_json
from namesrv_remoting.bodies.topic import (
    DataVersion,
    JsonDataVersion,
    JsonTopicQueueMappingInfo,
    TopicConfig,
    TopicQueueMappingInfo,
)
from namesrv_remoting.errors import BadRequestError

_INT32: Final = Struct(">i")
_LINE_PARTS: Final = 5
_MAX_NAME: Final = 255
_version_decoder: Final = msgspec.json.Decoder(JsonDataVersion)
_filters_decoder: Final = msgspec.json.Decoder(list[str] | None)
_mapping_decoder: Final = msgspec.json.Decoder(JsonTopicQueueMappingInfo)

Compressed = tuple[
    Sequence[TopicConfig], DataVersion | None, Mapping[str, TopicQueueMappingInfo], tuple[str, ...] | None
]


class _Pieces:
    """Length-prefixed pieces, each length checked against the bytes that are left before anything is allocated."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, what: str) -> int:
        if len(self._data) - self._at < _INT32.size:
            message = f"compressed body ends before the {what}"
            raise BadRequestError(message)
        (value,) = _INT32.unpack_from(self._data, self._at)
        self._at += _INT32.size
        left = len(self._data) - self._at
        if not 0 <= value <= left:
            message = f"compressed body: {what} {value}, {left} bytes left"
            raise BadRequestError(message)
        return int(value)

    def piece(self, what: str) -> bytes:
        length = self.number(f"length of the {what}")
        start, self._at = self._at, self._at + length
        return self._data[start : self._at]


def read_compressed(data: bytes, *, with_mappings: bool) -> Compressed:
    """Topics, DataVersion, mappings and filter servers of an inflated body.

    Raises:
        BadRequestError: a length that cannot be, a line without its five parts, or JSON that is none.
    """
    pieces = _Pieces(data)
    version = read_json(_version_decoder, pieces.piece("DataVersion"), "REGISTER_BROKER (DataVersion)")
    topics = _topics(pieces)
    filters = read_json(_filters_decoder, pieces.piece("filter servers"), "REGISTER_BROKER (filter servers)")
    mappings = _mappings(pieces) if with_mappings else {}
    return (
        topics,
        DataVersion(*msgspec.structs.astuple(version)),
        mappings,
        None if filters is None else tuple(filters),
    )


def _topics(pieces: _Pieces) -> list[TopicConfig]:
    # nearly all topics of a broker share what follows the name: read each such rest once
    rests: dict[bytes, tuple[int, int, int]] = {}
    topics = []
    for _ in range(pieces.number("number of topics")):
        line = pieces.piece("topic")
        name, _, rest = line.partition(b" ")
        numbers = rests.get(rest)
        if numbers is None:
            numbers = rests[rest] = _numbers(line, rest)
        if not 0 < len(name) <= _MAX_NAME:
            message = f"compressed body: topic name of {len(name)} bytes, limit {_MAX_NAME}"
            raise BadRequestError(message)
        topics.append(TopicConfig(_text(name), *numbers))
    return topics


def _numbers(line: bytes, rest: bytes) -> tuple[int, int, int]:
    parts = rest.split(b" ", 4)
    try:
        if len(parts) < _LINE_PARTS - 1:
            raise ValueError
        numbers = (int(parts[0]), int(parts[1]), int(parts[2]))
        for number in numbers:
            _INT32.pack(number)
    except (ValueError, struct.error) as error:
        message = f"compressed body: topic line {line[:128]!r} is not `name read write perm filterType`"
        raise BadRequestError(message) from error
    return numbers


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        message = f"compressed body: topic name {data[:128]!r} is not UTF-8"
        raise BadRequestError(message) from error


def _mappings(pieces: _Pieces) -> dict[str, TopicQueueMappingInfo]:
    mappings = {}
    for _ in range(pieces.number("number of static-topic mappings")):
        what = "static-topic mapping"
        info = read_json(_mapping_decoder, pieces.piece(what), f"REGISTER_BROKER ({what})")
        if info.topic:
            mappings[info.topic] = TopicQueueMappingInfo(*msgspec.structs.astuple(info))
    return mappings


def write_compressed(
    topics: Sequence[TopicConfig],
    data_version: DataVersion,
    mappings: Mapping[str, TopicQueueMappingInfo],
    filter_servers: Sequence[str],
) -> bytes:
    """The zlib stream that a 5.x broker sends, mappings included."""
    pieces = [_piece(msgspec.json.encode(JsonDataVersion(*msgspec.structs.astuple(data_version))))]
    pieces.append(_INT32.pack(len(topics)))
    pieces += (_piece(_line(topic)) for topic in topics)
    pieces.append(_piece(msgspec.json.encode(list(filter_servers))))
    pieces.append(_INT32.pack(len(mappings)))
    pieces += (
        _piece(msgspec.json.encode(JsonTopicQueueMappingInfo(*msgspec.structs.astuple(info))))
        for info in mappings.values()
    )
    return zlib.compress(b"".join(pieces), 9)


def _piece(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _line(topic: TopicConfig) -> bytes:
    return f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} SINGLE_TAG {{}}".encode()
