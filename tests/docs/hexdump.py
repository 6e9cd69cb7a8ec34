"""Annotated hex dumps of frames: bytes on the left, their meaning on the right."""

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Any, Final

import msgpack

from namesrv_remoting.codes import SerializeType

_PER_LINE: Final = 16
_TYPES: Final = {0: "JSON", 1: "ROCKETMQ", 77: "MSGPACK"}
_HEADER: Final = ("code", "opaque", "flag", "version", "remark", "ext")


def dump(frame: bytes) -> str:
    """The dump of a whole frame."""
    length, word = struct.unpack_from(">II", frame)
    serialize_type, header_length = word >> 24, word & 0xFFFFFF
    header, body = frame[8 : 8 + header_length], frame[8 + header_length :]
    lines = [
        (frame[:4], f"{length} bytes follow"),
        (frame[4:5], f"serialize type {serialize_type}: {_TYPES[serialize_type]}"),
        (frame[5:8], f"of which {header_length} are the header"),
        *_header(serialize_type, header),
    ]
    if body:
        lines += _msgpack(body) if serialize_type == SerializeType.MSGPACK else _text(body)
    return "".join(f"{data.hex(' '):<{3 * _PER_LINE + 1}} {meaning}".rstrip() + "\n" for data, meaning in _wrap(lines))


Line = tuple[bytes, str]


def _wrap(lines: list[Line]) -> Iterator[Line]:
    for data, meaning in lines:
        for at in range(0, len(data), _PER_LINE):
            yield data[at : at + _PER_LINE], "" if at else meaning


def _header(serialize_type: int, header: bytes) -> list[Line]:
    if serialize_type == SerializeType.MSGPACK:
        return _msgpack(header, _HEADER)
    if serialize_type == SerializeType.ROCKETMQ:
        return list(_binary(header))
    return _text(header)


def _text(data: bytes) -> list[Line]:
    parts = [data[at : at + _PER_LINE] for at in range(0, len(data), _PER_LINE)]
    return [(part, "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)) for part in parts]


def _binary(header: bytes) -> Iterator[Line]:
    at = 0
    fixed = (("code", ">h"), ("language", ">B"), ("version", ">h"), ("opaque", ">i"), ("flag", ">i"))
    for name, packed in (*fixed, ("bytes of remark", ">i"), ("bytes of ext fields", ">i")):
        size = struct.calcsize(packed)
        (value,) = struct.unpack_from(packed, header, at)
        yield header[at : at + size], f"{name} {value}"
        at += size
    is_key = True
    while at < len(header):
        packed = ">h" if is_key else ">i"
        (length,) = struct.unpack_from(packed, header, at)
        end = at + struct.calcsize(packed) + length
        text = header[end - length : end].decode()
        yield header[at:end], f"{'key' if is_key else 'value'} {json.dumps(text)}"
        at, is_key = end, not is_key


class _Reader:
    """Consecutive msgpack values with their bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._unpacker = msgpack.Unpacker(max_buffer_size=0)
        self._unpacker.feed(data)

    def _token(self, read: Callable[[], Any]) -> tuple[bytes, Any]:
        begin = self._unpacker.tell()
        found = read()
        return self._data[begin : self._unpacker.tell()], found

    def lines(self, depth: int = 0, names: Iterable[str] = ()) -> list[Line]:
        """Lines of the next value; the items of an array may have names."""
        indent, first = "  " * depth, self._data[self._unpacker.tell()]
        if 0x90 <= first < 0xA0 or first in (0xDC, 0xDD):
            data, count = self._token(self._unpacker.read_array_header)
            lines = [(data, f"{indent}array of {count}")]
            for _, name in zip(range(count), chain(names, repeat("")), strict=False):
                value = self.lines(depth + 1)
                lines += [(value[0][0], f"{indent}  {name}{value[0][1].strip()}"), *value[1:]]
            return lines
        if 0x80 <= first < 0x90 or first in (0xDE, 0xDF):
            data, count = self._token(self._unpacker.read_map_header)
            lines = [(data, f"{indent}map of {count}")]
            for _ in range(count):
                # A key and the start of its value share a line.
                ((key, shown),), value = self.lines(depth + 1), self.lines(depth + 1)
                lines += [(key + value[0][0], f"{shown}: {value[0][1].strip()}"), *value[1:]]
            return lines
        data, found = self._token(self._unpacker.unpack)
        return [(data, f"{indent}{'nil' if found is None else json.dumps(found)}")]


def _msgpack(data: bytes, names: Iterable[str] = ()) -> list[Line]:
    return _Reader(data).lines(names=[f"{name}: " for name in names])
