"""How is a body read, whichever way its sender spells JSON?"""

import zlib
from typing import Final, TypeVar

import msgspec

from namesrv_remoting.bodies import fastjson
from namesrv_remoting.errors import BadRequestError

T = TypeVar("T")

# Only small bodies of unusual peers come this far; a Java broker's bare integer keys are read at full speed before.
# The tolerant reader takes about 0.1 µs a byte, and the loop waits for it.
MAX_LENIENT_BYTES: Final = 64 * 1024


def read_json(decoder: msgspec.json.Decoder[T], data: bytes, what: str) -> T:
    """The typed value of a JSON body: strictly, then with bare integer keys quoted, then as fastjson would.

    Raises:
        BadRequestError: it is none of these; the remark says what and where.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return decoder.decode(fastjson.quote_bare_keys(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        strict_error = error
    try:
        value = fastjson.loads(data, max_bytes=MAX_LENIENT_BYTES)
        return msgspec.convert(value, decoder.type, strict=False)
    except (fastjson.FastjsonError, msgspec.ValidationError, RecursionError) as error:
        shown = strict_error if len(data) > MAX_LENIENT_BYTES else error
        message = f"body of {what} cannot be read: {shown}"
        raise BadRequestError(message) from error


def read_msgpack(decoder: msgspec.msgpack.Decoder[T], data: bytes, what: str) -> T:
    """The typed value of a native body.

    Typed decoding is the bound here: what the type does not name is skipped and never becomes an object.

    Raises:
        BadRequestError: not msgpack, or not of the type; the remark says where.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"body of {what} cannot be read: {error}"
        raise BadRequestError(message) from error


def inflate(data: bytes, *, max_bytes: int, max_ratio: int) -> bytes:
    """The inflated body.

    A zlib stream makes up to 1,029 bytes of one; ten thousand real topics make 37. The ratio counts after the first
    mebibyte only.

    Raises:
        BadRequestError: not zlib, cut short, or more than the limits allow.
    """
    limit = min(max_bytes, max(max_ratio * len(data), 1024 * 1024))
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, limit + 1)
    except zlib.error as error:
        message = f"compressed body cannot be read: {error}"
        raise BadRequestError(message) from error
    if len(inflated) > limit:
        message = f"compressed body of {len(data)} bytes inflates to more than {limit}"
        raise BadRequestError(message)
    if not inflater.eof:
        message = f"compressed body of {len(data)} bytes is cut short"
        raise BadRequestError(message)
    return inflated
