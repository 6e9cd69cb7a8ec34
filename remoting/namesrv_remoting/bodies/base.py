"""Decoding of bodies in steps with limits: standard JSON, JSON as fastjson writes it, msgpack, zlib."""

import contextlib
import zlib
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from namesrv_remoting.bodies import fastjson
from namesrv_remoting.errors import BadRequestError
from namesrv_remoting.frames import MAX_FRAME_BYTES

T = TypeVar("T")
# Work in steps of a few milliseconds, with a result at the end, so that the event loop never waits for a whole body.
Steps = Generator[None, None, T]

# Bytes inflated in one step, and compressed bytes passed to zlib at a time, because zlib copies its unused input.
CHUNK_BYTES: Final = 32 * 1024
_INPUT_BYTES: Final = 16 * 1024
_FREED_TOGETHER: Final = 5000
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# inflated bytes up to which the ratio does not count
FREE_INFLATED_BYTES: Final = 1024 * 1024


def chunked(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """The items in chunks of `size`, for work that is done in steps: one chunk is processed between two yields."""
    left = iter(items)
    while chunk := tuple(islice(left, size)):
        yield chunk


def read_json(decoder: msgspec.json.Decoder[T], data: bytes, what: str, *, max_bytes: int = MAX_FRAME_BYTES) -> T:
    """The typed value of a JSON body, read strictly, then with bare integer keys, then, if small, as fastjson reads it.

    Raises BadRequestError if all three readings fail, or the body is too large; the remark has the reason, and for a
    body that cannot be read also the position or the text there.
    """
    check_size(data, what, max_bytes)
    try:
        return read_strictly(decoder, data, what)
    except BadRequestError:
        if len(data) > fastjson.MAX_BYTES:
            raise
    try:
        value: T = fastjson.loads(data, decoder.type)
    except fastjson.FastjsonError as error:
        raise _unreadable(what, error) from error
    return value


def read_strictly(decoder: msgspec.json.Decoder[T], data: bytes, what: str) -> T:
    """The typed value of standard JSON, except that integer keys may be bare. Raises BadRequestError."""
    with contextlib.suppress(*_UNREADABLE):
        return decoder.decode(data)
    try:
        return decoder.decode(fastjson.quote_bare_keys(data))
    except _UNREADABLE as error:
        raise _unreadable(what, error) from error


def read_msgpack(decoder: msgspec.msgpack.Decoder[T], data: bytes, what: str, *, max_bytes: int = MAX_FRAME_BYTES) -> T:
    """The typed value of a native body. Raises BadRequestError if the body has another type, or is too large.

    Typed decoding bounds the memory: members that the type does not name are skipped and never become objects.
    """
    check_size(data, what, max_bytes)
    try:
        return decoder.decode(data)
    except _UNREADABLE as error:
        raise _unreadable(what, error) from error


def emptied(items: Any) -> Steps[None]:
    """Empty a dict or a list in steps, because freeing 100,000 topics at once takes 8 ms; other objects stay."""
    while items and isinstance(items, dict | list):
        if isinstance(items, list):
            del items[-_FREED_TOGETHER:]
        else:
            for _ in range(min(len(items), _FREED_TOGETHER)):
                items.popitem()
        yield


def emptied_on_refusal(steps: Steps[T], *decoded: Any) -> Steps[T]:
    """Run the steps; if they refuse the body, empty the dicts and lists that they have filled so far, in steps, too."""
    try:
        return (yield from steps)
    except BadRequestError:
        for items in decoded:
            yield from emptied(items)
        raise


def _unreadable(what: str, error: Exception) -> BadRequestError:
    return BadRequestError(f"body of {what} cannot be read: {error}")


def check_size(data: bytes, what: str, max_bytes: int) -> None:
    """Refuse a body that is too large before it is decoded. Raises BadRequestError."""
    if len(data) > max_bytes:
        raise BadRequestError(f"body of {what}: {len(data)} bytes, limit {max_bytes}")


def inflate(data: bytes, *, max_bytes: int, max_ratio: int) -> Iterator[bytes]:
    """The inflated body in chunks, which may be empty. Raises BadRequestError if it is not zlib, or inflates too much.

    A zlib stream can inflate one byte to 1,032 bytes; ten thousand real topics reach a ratio of 37. The ratio compares
    with the input bytes used so far, and counts after the first mebibyte only.
    """
    inflater = zlib.decompressobj()
    inflated = used = 0
    rest = b""
    while not inflater.eof:
        rest = rest or data[used : used + _INPUT_BYTES]
        try:
            chunk = inflater.decompress(rest, CHUNK_BYTES)
        except zlib.error as error:
            raise BadRequestError(f"compressed body cannot be read: {error}") from error
        if not chunk and used == len(data):
            raise BadRequestError(f"compressed body of {len(data)} bytes is cut short")
        left = inflater.unused_data or inflater.unconsumed_tail
        used += len(rest) - len(left)
        rest = left
        inflated += len(chunk)
        limit = min(max_bytes, max(max_ratio * used, FREE_INFLATED_BYTES))
        if inflated > limit:
            raise BadRequestError(f"compressed body of {len(data)} bytes inflates to more than {limit}")
        yield chunk
    if used < len(data):
        raise BadRequestError(f"compressed body: {len(data) - used} trailing bytes")
