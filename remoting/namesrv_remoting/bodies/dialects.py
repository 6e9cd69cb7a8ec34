"""Encoding and decoding of bodies in both protocols: RocketMQ's JSON, and msgpack with a native header.

A value is declared once, as a struct with the names of the native protocol; `java` derives Java's form of the struct.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from namesrv_remoting.bodies import fastjson
from namesrv_remoting.bodies.base import read_json, read_msgpack
from namesrv_remoting.bodies.topic import MAX_DATA_VERSION_BYTES, DataVersion
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError, ResponseError
from namesrv_remoting.frames import MAX_FRAME_BYTES

T = TypeVar("T")

_anything: Final = msgspec.json.Decoder(Any)

# the values of Java's fields without an assignment
_ZEROS: Final[tuple[tuple[type, Any], ...]] = ((int, 0), (str, ""), (Sequence, []), (Mapping, {}))


@functools.cache
def java(kind: Any, *, written: bool = False) -> Any:
    """The type with Java's form of its structs, for reading or for writing.

    Names are in camelCase, members in alphabetical order. When written, null members are left out. When read, a missing
    member has its default or zero; only objects, and texts that must not be empty, are required.
    """
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _java_struct(kind, written=written)
    arguments = get_args(kind)
    if not arguments or get_origin(kind) is Annotated:
        return kind
    spelt = tuple(java(argument, written=written) for argument in arguments)
    return Union[spelt] if type(None) in spelt else get_origin(kind)[spelt]  # noqa: UP007 - of a tuple


def _java_struct(struct: type[msgspec.Struct], *, written: bool) -> type[msgspec.Struct]:
    fields = []
    for field in sorted(msgspec.structs.fields(struct), key=lambda field: field.name):
        default = _default(field)
        # Other defaults are dropped, because members with their default value would be left out.
        has_default = default is None if written else default is not msgspec.NODEFAULT
        fields.append((field.name, java(field.type, written=written), *([default] if has_default else ())))
    return msgspec.defstruct(
        struct.__name__, fields, rename="camel", kw_only=True, omit_defaults=written, frozen=True, gc=False
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    kind = get_origin(field.type) or field.type
    if kind is Annotated:
        # A number with a range has the default 0; a text that must not be empty stays required.
        kind = int if get_args(field.type)[0] is int else None
    zeros = (zero for base, zero in _ZEROS if isinstance(kind, type) and issubclass(kind, base))
    return next(zeros, msgspec.NODEFAULT)


def in_java(value: object, kind: Any = None) -> Any:
    """The value in Java's form, as the type `kind` if given."""
    native: Any = kind or type(value)
    return msgspec.convert(value, java(native, written=True), from_attributes=True)


@functools.cache
def _is_flat(kind: type[msgspec.Struct]) -> bool:
    return all(java(field.type) == field.type for field in msgspec.structs.fields(kind))


def _encode_json(value: Any) -> bytes:
    kind = type(value)
    if issubclass(kind, msgspec.Struct) and _is_flat(kind):
        # All members keep their form, and converting a list of 16 MiB would take 30 ms.
        return msgspec.json.encode(java(kind, written=True)(**msgspec.structs.asdict(value)))
    return msgspec.json.encode(in_java(value))


@functools.cache
def _json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(java(kind))


@functools.cache
def _native_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The encoding of bodies in one of the protocols."""

    encode: Callable[[object], bytes]
    # the functions that make the decoder of a type, and read a body with a decoder
    _decoder: Callable[[Any], Any]
    _read: Callable[..., Any]
    _data_version: Any

    def read(self, kind: type[T], body: bytes, *, what: str = "", max_bytes: int = MAX_FRAME_BYTES) -> T:
        """The value in the body of a request. Raises BadRequestError if it has another type, or is too large."""
        value: Any = self._read(self._decoder(kind), body, what or kind.__name__, max_bytes=max_bytes)
        return msgspec.convert(value, kind, from_attributes=True) if self is JSON else value

    def read_response(self, kind: type[T], body: bytes) -> T:
        """The value in the body of a response. Raises RemoteProtocolError if the body has another type."""
        try:
            return self.read(kind, body)
        except ResponseError as error:
            if self is JSON and b"null" in body:
                # fastjson leaves out null members; explicit nulls of other servers count as missing, too.
                with suppress(ResponseError, RecursionError, UnicodeEncodeError):
                    value = read_json(_anything, body, kind.__name__)
                    return self.read(kind, msgspec.json.encode(fastjson.without_nulls(value)))
            raise RemoteProtocolError(str(error)) from error

    def read_data_version(self, body: bytes) -> DataVersion | None:
        """The DataVersion in the body of a request; None for an empty body. Raises BadRequestError."""
        if not body:
            return None
        version = self._read(self._data_version, body, "DataVersion", max_bytes=MAX_DATA_VERSION_BYTES)
        # Every heartbeat of a RocketMQ broker has a DataVersion; this takes half the time of msgspec.convert.
        return version and DataVersion(version.counter, version.state_version, version.timestamp)


JSON: Final = Dialect(_encode_json, _json_decoder, read_json, _json_decoder(DataVersion | None))
NATIVE: Final = Dialect(msgspec.msgpack.encode, _native_decoder, read_msgpack, _native_decoder(DataVersion | None))


def dialect_of(message: RemotingCommand) -> Dialect:
    """The dialect of the bodies of a request and its response; a binary header goes with JSON bodies."""
    return NATIVE if message.is_native else JSON
