"""Bodies in both protocols: RocketMQ's JSON, or natively in msgpack, as the question's header is.

A value is declared once, as a struct in its native spelling; how Java spells it is derived from that (`java`).
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

# what Java's fields hold when nobody sets them
_ZEROS: Final[tuple[tuple[type, Callable[[], Any]], ...]] = ((int, int), (str, str), (Sequence, list), (Mapping, dict))


@functools.cache
def java(kind: Any) -> Any:
    """The same type with structs as Java spells them.

    Names in camelCase, members in alphabetical order and without those that are null. Where one is missing its default
    counts, or zero: nothing is required but what must not be empty.
    """
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _java_struct(kind)
    arguments = get_args(kind)
    if not arguments or get_origin(kind) is Annotated:
        return kind
    spelt = tuple(map(java, arguments))
    return Union[spelt] if type(None) in spelt else get_origin(kind)[spelt]  # noqa: UP007 - of a tuple


def _java_struct(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    fields = [
        (field.name, java(field.type), _default(field))
        for field in sorted(msgspec.structs.fields(struct), key=lambda field: field.name)
    ]
    return msgspec.defstruct(
        struct.__name__, fields, rename="camel", kw_only=True, omit_defaults=True, frozen=True, gc=False
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is None:
        return None
    # only null is left out: what a function makes is no default that msgspec compares with
    if field.default is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=lambda: field.default)
    make: Any = field.default_factory
    if field.required:
        kind = get_origin(field.type) or field.type
        if kind is Annotated:
            # a number of some range; or a text that must not be empty, and stays required
            kind = int if get_args(field.type)[0] is int else None
        make = next((zero for base, zero in _ZEROS if isinstance(kind, type) and issubclass(kind, base)), make)
    if make is msgspec.NODEFAULT:
        return msgspec.field()
    return msgspec.field(default_factory=lambda: make())  # noqa: PLW0108 - an empty `dict` would be left out


def in_java(value: object, kind: Any = None) -> Any:
    """The value, or what it holds, as Java spells it; as another type when that is given."""
    native: Any = kind or type(value)
    return msgspec.convert(value, java(native), from_attributes=True)


@functools.cache
def _is_flat(kind: type[msgspec.Struct]) -> bool:
    return all(java(field.type) == field.type for field in msgspec.structs.fields(kind))


def _encode_json(value: Any) -> bytes:
    kind = type(value)
    if issubclass(kind, msgspec.Struct) and _is_flat(kind):
        # nothing in it is spelt otherwise, and looking through a list of 16 MiB takes 30 ms
        return msgspec.json.encode(java(kind)(**msgspec.structs.asdict(value)))
    return msgspec.json.encode(in_java(value))


@functools.cache
def _json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(java(kind))


@functools.cache
def _native_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def _read_json(kind: Any, body: bytes, what: str, max_bytes: int) -> Any:
    return msgspec.convert(read_json(_json_decoder(kind), body, what, max_bytes=max_bytes), kind, from_attributes=True)


def _read_native(kind: Any, body: bytes, what: str, max_bytes: int) -> Any:
    return read_msgpack(_native_decoder(kind), body, what, max_bytes=max_bytes)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How bodies are spelt in one of the protocols."""

    encode: Callable[[object], bytes]
    _read: Callable[[Any, bytes, str, int], Any]
    _read_data_version: Callable[[bytes], DataVersion | None]

    def read(self, kind: type[T], body: bytes, *, what: str = "", max_bytes: int = MAX_FRAME_BYTES) -> T:
        """The value in the body of a question. Raises BadRequestError if it is of another type, or too large."""
        found: T = self._read(kind, body, what or kind.__name__, max_bytes)
        return found

    def read_answer(self, kind: type[T], body: bytes) -> T:
        """The value in the body of an answer. Raises RemoteProtocolError if the server sent anything else."""
        try:
            return self.read(kind, body)
        except ResponseError as error:
            if self is JSON and b"null" in body:
                # fastjson leaves out what is null; what others spell out counts as missing, too
                with suppress(ResponseError, RecursionError, UnicodeEncodeError):
                    found = read_json(_anything, body, kind.__name__)
                    return self.read(kind, msgspec.json.encode(fastjson.without_nulls(found)))
            raise RemoteProtocolError(str(error)) from error

    def read_data_version(self, body: bytes) -> DataVersion | None:
        """The DataVersion in the body of a question, None when there is none. Raises BadRequestError."""
        return self._read_data_version(body) if body else None


_java_data_version: Final = msgspec.json.Decoder(java(DataVersion | None))
_native_data_version: Final = msgspec.msgpack.Decoder(DataVersion | None)


def _read_json_data_version(body: bytes) -> DataVersion | None:
    # every heartbeat of a RocketMQ broker has one, and built by hand it takes half the time
    found = read_json(_java_data_version, body, "DataVersion", max_bytes=MAX_DATA_VERSION_BYTES)
    return found and DataVersion(found.counter, found.state_version, found.timestamp)


def _read_native_data_version(body: bytes) -> DataVersion | None:
    found: DataVersion | None = read_msgpack(
        _native_data_version, body, "DataVersion", max_bytes=MAX_DATA_VERSION_BYTES
    )
    return found


JSON: Final = Dialect(_encode_json, _read_json, _read_json_data_version)
NATIVE: Final = Dialect(msgspec.msgpack.encode, _read_native, _read_native_data_version)


def dialect_of(message: RemotingCommand) -> Dialect:
    """The spelling of a question's body and of its answer's; a binary header goes with JSON bodies."""
    return NATIVE if message.is_native else JSON
