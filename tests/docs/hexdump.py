"""Frames for people: bytes on the left, their meaning on the right."""

import json
import re
import struct
from collections.abc import Iterator
from typing import Final

from namesrv_remoting.codes import SerializeType

_PER_LINE: Final = 16
_LINE: Final = re.compile(r"((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  .*)?")
_TYPES: Final = {0: "JSON", 1: "ROCKETMQ", 77: "MSGPACK"}
# first byte -> (name, how its length or value is packed)
_NUMBERS: Final = {
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q", 0xCB: ">d",
}  # fmt: skip
_STRINGS: Final = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_ARRAYS: Final = {0xDC: ">H", 0xDD: ">I"}
_MAPS: Final = {0xDE: ">H", 0xDF: ">I"}
_WORDS: Final = {0xC0: "nil", 0xC2: "false", 0xC3: "true"}
_HEADER: Final = ("code", "opaque", "flag", "version", "remark", "ext")


def undump(text: str) -> bytes:
    """The bytes in a dump. Raises ValueError: a line does not begin with any."""
    lines = [_LINE.fullmatch(line) for line in text.splitlines()]
    if None in lines:
        raise ValueError(f"no bytes: {text.splitlines()[lines.index(None)]!r}")
    return b"".join(bytes.fromhex(line[1]) for line in lines if line is not None)


def dump(frame: bytes) -> str:
    """A whole frame."""
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


# -- msgpack ----------------------------------------------------------------------------------------------------------


def _msgpack(data: bytes, names: tuple[str, ...] = ()) -> list[Line]:
    lines, end = _value(data, 0, 0, names)
    assert end == len(data), (end, len(data))
    return lines


def _value(data: bytes, at: int, depth: int, names: tuple[str, ...] = ()) -> tuple[list[Line], int]:
    """The lines of the value at an offset, and where the next one begins."""
    kind, count, end = _token(data, at)
    label = f"{'  ' * depth}{kind}"
    lines = [(data[at:end], label)]
    if kind.startswith("array"):
        for number in range(count):
            found, end = _value(data, end, depth + 1)
            name = f"{names[number]}: " if names else ""
            first = found[0]
            lines += [(first[0], f"{'  ' * (depth + 1)}{name}{first[1].strip()}"), *found[1:]]
    elif kind.startswith("map"):
        for _ in range(count):
            key, end = _value(data, end, depth + 1)
            value, end = _value(data, end, depth + 1)
            # a key and its value on one line, where the value is one token
            if len(value) == 1:
                lines.append((key[0][0] + value[0][0], f"{key[0][1]}: {value[0][1].strip()}"))
            else:
                lines += [(key[0][0] + value[0][0], f"{key[0][1]}: {value[0][1].strip()}"), *value[1:]]
    return lines, end


def _token(data: bytes, at: int) -> tuple[str, int, int]:
    """What begins at an offset, how many values it holds, and where its own bytes end."""
    first = data[at]
    if first < 0x80 or first >= 0xE0:
        return str(first if first < 0x80 else first - 0x100), 0, at + 1
    if first in _WORDS:
        return _WORDS[first], 0, at + 1
    for table in (_NUMBERS, _STRINGS, _ARRAYS, _MAPS):
        if first in table:
            size = struct.calcsize(table[first])
            (value,) = struct.unpack_from(table[first], data, at + 1)
            return _named(table, value, data, at + 1 + size)
    if first < 0x90:
        return _named(_MAPS, first & 0x0F, data, at + 1)
    if first < 0xA0:
        return _named(_ARRAYS, first & 0x0F, data, at + 1)
    assert first < 0xC0, f"{first:#x} is not in our protocol"
    return _named(_STRINGS, first & 0x1F, data, at + 1)


def _named(table: dict[int, str], value: int, data: bytes, end: int) -> tuple[str, int, int]:
    if table is _NUMBERS:
        return str(value), 0, end
    if table is _STRINGS:
        return json.dumps(data[end : end + value].decode()), 0, end + value
    return f"{'array' if table is _ARRAYS else 'map'} of {value}", value, end
