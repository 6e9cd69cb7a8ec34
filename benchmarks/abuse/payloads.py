"""Bytes that are costly to decode, made before an attack."""

import itertools
import random
import struct
import zlib
from collections.abc import Iterable
from typing import Any, Final

import msgpack
import msgspec

from benchmarks.harness.wire import native_request, request
from namesrv_remoting.codes import CURRENT_VERSION, RequestCode, SerializeType
from namesrv_remoting.frames import MAX_FRAME_BYTES, MAX_HEADER_BYTES, encode_frame
from namesrv_remoting.headers import RegisterBrokerRequestHeader

# room for a body in a frame with an ordinary header
BODY_BYTES: Final = MAX_FRAME_BYTES - 2048
_INFLATED_BYTES: Final = 64 * 1024 * 1024
_HEADER_BYTES: Final = MAX_HEADER_BYTES - 2048
_INT32: Final = struct.Struct(">i")


_HOSTILE: Final = RegisterBrokerRequestHeader(
    broker_name="hostile", broker_addr="hostile:10911", cluster_name="Hostile", broker_id=0
)


def registration(body: bytes, kind: SerializeType = SerializeType.JSON, **fields: Any) -> bytes:
    """A registration with this body; the header names the broker `hostile` unless fields say otherwise."""
    if "broker_name" in fields:
        fields.setdefault("broker_addr", f"{fields['broker_name']}:10911")
    header = msgspec.structs.replace(_HOSTILE, **fields)
    return request(RequestCode.REGISTER_BROKER, header.to_ext(), body, kind)


def changed(body: bytes) -> bytes:
    """A body with the same content in other bytes: another counter, or a trailing blank."""
    if _COUNTER in body[:64]:
        return body.replace(_COUNTER + b"\x01", _COUNTER + b"\x02", 1)
    return body + b" "


# -- bodies in JSON ---------------------------------------------------------------------------------------------------


def filled(before: bytes, unit: bytes, after: bytes, size: int = BODY_BYTES) -> bytes:
    """`before` and `after` with as many units between them as fit."""
    return before + unit * ((size - len(before) - len(after)) // len(unit)) + after


def json_topics(count: int, name: bytes = b"%d", first: int = 0) -> bytes:
    """A registration of topics with nothing but names, as many as fit."""
    before, after = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{', b"}}}"
    topic = b',"%b":{"topicName":"%b"}' % (name, name)
    every = (topic % (number, number) for number in range(first, first + count))
    return before + b"".join(_fitting(every, BODY_BYTES - len(before + after)))[1:] + after


def _fitting(parts: Iterable[bytes], most_bytes: int) -> list[bytes]:
    """The first of these parts, as many as fit into so many bytes."""
    fitting, left = [], most_bytes
    for part in parts:
        left -= len(part)
        if left < 0:
            break
        fitting.append(part)
    return fitting


# -- compressed bodies ------------------------------------------------------------------------------------------------


def _piece(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _inflated(version: bytes = b"{}", topics: bytes = bytes(4), filters: bytes = b"[]") -> bytes:
    return _piece(version) + topics + _piece(filters) + bytes(4)


def _deflated(inflated: bytes, *, ratio: int | None = None) -> bytes:
    """A zlib stream; with `ratio`, random bytes behind it make the body look compressed by no more than that."""
    data = zlib.compress(inflated, 6)
    if ratio is None:
        return data
    return data + random.Random(1).randbytes(max(0, len(inflated) // ratio - len(data)))


def compressed_version() -> bytes:
    """A DataVersion of 64 MiB of unquoted keys, with a tail that hides the compression ratio."""
    inflated = _inflated(version=b"{" + b",1:" * ((_INFLATED_BYTES - 64) // 3) + b"}")
    return _deflated(inflated, ratio=199)


def compressed_topics() -> bytes:
    """Topic lines, up to the limit of inflated bytes."""
    lines = _fitting((_piece(b"%d 8 8 6 0" % number) for number in itertools.count()), _INFLATED_BYTES - 1024)
    return _deflated(_inflated(topics=_INT32.pack(len(lines)) + b"".join(lines)))


def compressed_filters() -> bytes:
    """A list of empty strings."""
    return _deflated(_inflated(filters=b"[" + b'"",' * ((_INFLATED_BYTES - 64) // 3) + b'""]'), ratio=190)


# -- native bodies ----------------------------------------------------------------------------------------------------


_COUNTER: Final = b"\x81" + bytes(msgpack.packb("counter"))


def _array(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4)


def _native(member: str, value: bytes) -> bytes:
    version = bytes(msgpack.packb("data_version")) + _COUNTER + b"\x01"
    return b"\x82" + version + bytes(msgpack.packb(member)) + value


def native_topics(count: int = 10_000_000) -> bytes:
    """A native registration of topics with nothing but names, as many as fit."""
    every = (bytes(msgpack.packb({"topic_name": str(number)})) for number in range(count))
    topics = _fitting(every, BODY_BYTES - 64)
    return _native("topic_configs", _array(len(topics)) + b"".join(topics))


def native_names(member: str) -> bytes:
    """A native registration with a list of names, as long as fits."""
    count = (BODY_BYTES - 64) // 2
    return _native(member, _array(count) + b"\xa1a" * count)


def native_pull(count: int) -> bytes:
    """A request for the routes of many topics."""
    return native_request(RequestCode.PULL_ROUTES, topics=[str(number) for number in range(count)])


# -- headers ----------------------------------------------------------------------------------------------------------


def binary_header() -> bytes:
    """A binary header of 62 KB of ext fields with the same short name."""
    fixed = struct.pack(">hBhii", 105, 0, CURRENT_VERSION, 1, 0) + _INT32.pack(0)
    field = struct.pack(">h", 1) + b"a" + _INT32.pack(1) + b"b"
    fields = field * ((_HEADER_BYTES - len(fixed) - 4) // len(field))
    return encode_frame(SerializeType.ROCKETMQ, fixed + _INT32.pack(len(fields)) + fields)


def million_fields() -> bytes:
    """A request whose JSON header has a million ext fields."""
    start = b'{"code":105,"opaque":1,"extFields":{"topic":"Steady"'
    fields = b"".join(b',"%d":""' % number for number in range(1_000_000))
    return encode_frame(SerializeType.JSON, start + fields + b"}}")


def native_header(unit: bytes) -> bytes:
    """A native header that repeats one unit."""
    return encode_frame(SerializeType.MSGPACK, filled(b"\x96", unit, b"", _HEADER_BYTES))


# -- partial ----------------------------------------------------------------------------------------------------------


def partial_registration() -> bytes:
    """The first 15 MiB of a registration of the largest size."""
    whole = registration(bytes(BODY_BYTES))
    return whole[: 15 * 1024 * 1024]


def partial_unknown() -> bytes:
    """The beginning of a large frame, with 60 KB of a header that never ends."""
    return struct.pack(">II", MAX_FRAME_BYTES - 4, MAX_HEADER_BYTES) + bytes(60_000)
