"""Encodes and decodes frames without the code under test."""

import json
import re
import struct
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import msgpack

JSON = 0
BINARY = 1
NATIVE = 77
RESPONSE = 1
ONEWAY = 2


# ext fields of a request
Ext = Mapping[str, object] | None


class Response(NamedTuple):
    """A received frame: serialize type, header members, body."""

    serialize_type: int
    header: dict[str, Any]
    body: bytes

    @property
    def code(self) -> int:
        return int(self.header["code"])

    @property
    def opaque(self) -> int:
        return int(self.header["opaque"])

    @property
    def remark(self) -> str | None:
        found = self.header.get("remark")
        return None if found is None else str(found)

    @property
    def ext_fields(self) -> dict[str, str] | None:
        found = self.header.get("extFields")
        return None if found is None else dict(found)

    @property
    def outcome(self) -> tuple[int, str | None]:
        """Code and remark."""
        return self.code, self.remark

    @property
    def fields(self) -> dict[str, str]:
        """The ext fields without the boot id that every native response carries."""
        found = dict(self.ext_fields or {})
        assert (self.serialize_type == NATIVE) == ("boot_id" in found)
        found.pop("boot_id", None)
        return found

    @property
    def value(self) -> Any:
        """The decoded body, integer keys included; None without one."""
        read = partial(msgpack.unpackb, strict_map_key=False) if self.serialize_type == NATIVE else json.loads
        return read(self.body) if self.body else None

    @property
    def java_value(self) -> Any:
        """The decoded body with Java's names, text keys and without nulls, in any encoding."""
        return _java(self.value)


def _java(members: Any) -> Any:
    if isinstance(members, dict):
        camel = {re.sub("_(.)", lambda found: found[1].upper(), str(name)): each for name, each in members.items()}
        return {name: _java(each) for name, each in camel.items() if each is not None}
    return [_java(each) for each in members] if isinstance(members, list) else members


def cut(serialize_type: int, header: bytes, body: bytes = b"") -> bytes:
    """A frame with an encoded header."""
    return struct.pack(">II", 4 + len(header) + len(body), serialize_type << 24 | len(header)) + header + body


def json_frame(code: int, opaque: int | None = 1, ext: Ext = None, body: bytes = b"", **members: object) -> bytes:
    """A frame with a compact JSON header; without an opaque when that is None."""
    header: dict[str, object] = {"code": code, "flag": 0, "language": "JAVA", "version": 479, **members}
    if opaque is not None:
        header["opaque"] = opaque
    if ext is not None:
        header["extFields"] = dict(ext)
    return cut(JSON, json.dumps(header, separators=(",", ":")).encode(), body)


def native_frame(
    code: int, opaque: int = 1, ext: Ext = None, body: bytes = b"", *, flag: int = 0, version: int = 479
) -> bytes:
    """A frame with a msgpack header."""
    return cut(NATIVE, msgpack.packb([code, opaque, flag, version, None, None if ext is None else dict(ext)]), body)


def binary_frame(
    code: int, opaque: int = 1, ext: Ext = None, body: bytes = b"", *, flag: int = 0, version: int = 479
) -> bytes:
    """A frame with RocketMQ's binary header."""
    fields = b"".join(
        struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value
        for key, value in ((name.encode(), str(value).encode()) for name, value in (ext or {}).items())
    )
    header = struct.pack(">hBhiii", code, 9, version, opaque, flag, 0) + struct.pack(">i", len(fields)) + fields
    return cut(BINARY, header, body)


def read_response(serialize_type: int, header: bytes, body: bytes) -> Response:
    """Decode a frame with a JSON or msgpack header; native members get the JSON names."""
    if serialize_type == NATIVE:
        names = ("code", "opaque", "flag", "version", "remark", "extFields")
        return Response(NATIVE, dict(zip(names, msgpack.unpackb(header), strict=True)), body)
    assert serialize_type == JSON, f"answered with serialize type {serialize_type}"
    return Response(JSON, json.loads(header), body)


def read_responses(data: bytes) -> tuple[list[Response], bytes]:
    """The whole frames in some bytes, and the remaining bytes."""
    responses, at = [], 0
    while len(data) - at >= 8:
        length, word = struct.unpack_from(">II", data, at)
        end = at + 4 + length
        if end > len(data):
            break
        body_at = at + 8 + (word & 0xFFFFFF)
        responses.append(read_response(word >> 24, data[at + 8 : body_at], data[body_at:end]))
        at = end
    return responses, data[at:]
