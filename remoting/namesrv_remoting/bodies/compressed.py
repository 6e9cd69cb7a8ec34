"""The inflated body of a compressed registration (compressedRegister=true).

int32 length, DataVersion JSON | int32 count, per topic int32 length, text line | int32 length, JSON array of filter
servers | and, from version 413 on, int32 count, per mapping int32 length, TopicQueueMappingInfo JSON.
A line is `topicName read write perm topicFilterType [attributesJson]`, split on single blanks.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Final

import msgspec

from namesrv_remoting.bodies.base import Steps, emptied_on_refusal, read_json, read_strictly
from namesrv_remoting.bodies.dialects import JSON, java
from namesrv_remoting.bodies.limits import Tally
from namesrv_remoting.bodies.topic import (
    MAX_DATA_VERSION_BYTES,
    MAX_TOPIC_CHARACTERS,
    DataVersion,
    TopicConfig,
    TopicQueueMappingInfo,
)
from namesrv_remoting.errors import BadRequestError

_INT32: Final = Struct(">i")
_NUMBERS: Final = Struct(">3i")
# The most bytes of each piece, checked before its announced length is used. A line has a name, four words and a few
# attributes; a mapping takes 10 to 20 bytes per queue.
MAX_TOPIC_LINE_BYTES: Final = 4 * 1024
MAX_MAPPING_BYTES: Final = 64 * 1024
# Filter servers are kept for every broker, and sent with its routes: of ten thousand brokers, 41 MB at most. Brokers of
# RocketMQ 4 have a few; later ones have none.
MAX_FILTER_SERVERS_BYTES: Final = 4 * 1024
_MAX_FILTER_SERVERS: Final = 64
# The most different rests of lines, after the topic's name, that `_read_topics` caches; a broker has a few dozen.
_MAX_RESTS: Final = 1024
_WHAT: Final = "REGISTER_BROKER"
_version_decoder: Final = msgspec.json.Decoder(java(DataVersion))
_filters_decoder: Final = msgspec.json.Decoder(list[str] | None)
_mapping_decoder: Final = msgspec.json.Decoder(java(TopicQueueMappingInfo))

Compressed = tuple[
    Sequence[TopicConfig], DataVersion | None, Mapping[str, TopicQueueMappingInfo], tuple[str, ...] | None
]


class _Pieces:
    """Length-prefixed pieces of a stream of chunks; a length is checked before the announced bytes are awaited."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        # received data; the unread part begins at `at`
        self.data = b""
        self.at = 0

    def more(self, what: str) -> None:
        """Append the next chunk to the unread data."""
        chunk = next(self._chunks, None)
        if chunk is None:
            raise BadRequestError(f"compressed body ends before the {what}")
        self.data = self.data[self.at :] + chunk
        self.at = 0

    def number(self, what: str, limit: int) -> Steps[int]:
        while len(self.data) - self.at < _INT32.size:
            self.more(what)
            yield
        (value,) = _INT32.unpack_from(self.data, self.at)
        self.at += _INT32.size
        return _checked(what, value, limit)

    def piece(self, what: str, limit: int) -> Steps[bytes]:
        length = yield from self.number(f"length of the {what}", limit)
        while len(self.data) - self.at < length:
            self.more(f"end of the {what}")
            yield
        start, self.at = self.at, self.at + length
        return self.data[start : self.at]


def _checked(what: str, value: int, limit: int) -> int:
    if 0 <= value <= limit:
        return value
    raise BadRequestError(f"compressed body: {what} {value}, limit {limit}")


def check_filter_servers(filter_servers: list[str] | None) -> None:
    """Check the number of a broker's filter servers. Raises BadRequestError."""
    if filter_servers is not None and len(filter_servers) > _MAX_FILTER_SERVERS:
        raise BadRequestError(f"{len(filter_servers)} filter servers, limit {_MAX_FILTER_SERVERS}")


def read_compressed(chunks: Iterator[bytes], *, with_mappings: bool, tally: Tally) -> Steps[Compressed]:
    """Topics, DataVersion, mappings and filter servers of an inflated body. Raises BadRequestError."""
    topics: list[TopicConfig] = []
    mappings: dict[str, TopicQueueMappingInfo] = {}
    reading = _read(chunks, topics, mappings if with_mappings else None, tally)
    version, filters = yield from emptied_on_refusal(reading, topics, mappings)
    return topics, version, mappings, filters


def _read(
    chunks: Iterator[bytes],
    topics: list[TopicConfig],
    mappings: dict[str, TopicQueueMappingInfo] | None,
    tally: Tally,
) -> Steps[tuple[DataVersion, tuple[str, ...] | None]]:
    """Fill `topics` and `mappings` (None ignores the body's mappings); return DataVersion and filter servers."""
    pieces = _Pieces(chunks)
    data = yield from pieces.piece("DataVersion", MAX_DATA_VERSION_BYTES)
    version = read_json(_version_decoder, data, f"{_WHAT} (DataVersion)")
    yield from _read_topics(pieces, tally, topics)
    data = yield from pieces.piece("filter servers", MAX_FILTER_SERVERS_BYTES)
    filters = read_json(_filters_decoder, data, f"{_WHAT} (filter servers)")
    check_filter_servers(filters)
    if mappings is not None:
        yield from _read_mappings(pieces, tally, mappings)
    # Read to the end, to check that the stream is whole, even if the mappings are ignored.
    for _ in chunks:
        yield
    return (
        msgspec.convert(version, DataVersion, from_attributes=True),
        None if filters is None else tuple(filters),
    )


def _read_topics(pieces: _Pieces, tally: Tally, topics: list[TopicConfig]) -> Steps[None]:
    # Nearly all lines of a broker end alike after the topic's name: each different ending is parsed once.
    rests: dict[bytes, tuple[int, int, int]] = {}
    left = yield from pieces.number("number of topics", tally.max_topics)
    while left:
        data, at = pieces.data, pieces.at
        size = len(data)
        # A loop over all available topics, because a call per topic would take longer than parsing it.
        while left and size - at >= _INT32.size:
            (length,) = _INT32.unpack_from(data, at)
            end = at + _INT32.size + _checked("length of the topic", length, MAX_TOPIC_LINE_BYTES)
            if end > size:
                break
            line = data[at + _INT32.size : end]
            name, _, rest = line.partition(b" ")
            numbers = rests.get(rest)
            if numbers is None:
                if len(rests) == _MAX_RESTS:
                    rests.clear()
                numbers = rests[rest] = _numbers(line, rest)
            if not 0 < len(name) <= MAX_TOPIC_CHARACTERS:
                raise BadRequestError(f"compressed body: topic name of {len(name)} bytes, limit {MAX_TOPIC_CHARACTERS}")
            try:
                topics.append(TopicConfig(name.decode(), *numbers))
            except UnicodeDecodeError as error:
                raise BadRequestError(f"compressed body: topic name {name[:128]!r} is not UTF-8") from error
            left -= 1
            at = end
        pieces.at = at
        if left:
            pieces.more("end of the topic" if size - at >= _INT32.size else "length of the topic")
            yield


def _numbers(line: bytes, rest: bytes) -> tuple[int, int, int]:
    try:
        read, write, perm, _ = rest.split(b" ", 3)
        numbers = (int(read), int(write), int(perm))
        _NUMBERS.pack(*numbers)
    except (ValueError, struct.error) as error:
        raise BadRequestError(
            f"compressed body: topic line {line[:128]!r} is not `name read write perm filterType`"
        ) from error
    return numbers


def _read_mappings(pieces: _Pieces, tally: Tally, mappings: dict[str, TopicQueueMappingInfo]) -> Steps[None]:
    what = "static-topic mapping"
    number = yield from pieces.number(f"number of {what}s", tally.max_topics)
    for count in range(number):
        if count % 500 == 499:
            yield
        data = yield from pieces.piece(what, MAX_MAPPING_BYTES)
        # Read strictly, because only RocketMQ's own brokers send compressed bodies.
        info = read_strictly(_mapping_decoder, data, f"{_WHAT} ({what})")
        if info.topic:
            tally.count(info)
            mappings[info.topic] = msgspec.convert(info, TopicQueueMappingInfo, from_attributes=True)


def write_compressed(
    topics: Sequence[TopicConfig],
    data_version: DataVersion,
    mappings: Mapping[str, TopicQueueMappingInfo],
    filter_servers: Sequence[str],
) -> bytes:
    """The zlib stream that a 5.x broker sends, mappings included."""
    lines = (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} SINGLE_TAG {{}}".encode()
        for topic in topics
    )
    pieces = (
        _piece(JSON.encode(data_version)),
        _INT32.pack(len(topics)),
        *map(_piece, lines),
        _piece(msgspec.json.encode(list(filter_servers))),
        _INT32.pack(len(mappings)),
        *map(_piece, map(JSON.encode, mappings.values())),
    )
    return zlib.compress(b"".join(pieces), 9)


def _piece(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data
