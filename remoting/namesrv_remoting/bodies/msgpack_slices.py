"""A large msgpack document, cut into slices that are decoded one at a time, and never held as a whole."""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, Literal, NoReturn, TypeVar

import msgpack
import msgspec

from namesrv_remoting.bodies.base import CHUNK_BYTES, Steps, read_msgpack
from namesrv_remoting.errors import BadRequestError

T = TypeVar("T")

# One element or value, as in JSON.
MAX_VALUE_BYTES: Final = 64 * 1024
_ARRAY: Final = Struct(">BI")
_ARRAY32: Final = 0xDD
_MAP32: Final = 0xDF


class MsgpackSlices:
    """One document that comes in chunks; `what` names it in errors, and `whole` what it says.

    Its outer maps and arrays are opened by hand, so that their lengths are known before any of their elements is; the
    elements are only measured, by compiled code, and decoded with the others that are there.
    """

    def __init__(self, chunks: Iterator[bytes], what: str, whole: str = "registration") -> None:
        self._chunks = chunks
        self._what = what
        self._whole = whole
        self._unpacker = msgpack.Unpacker(read_size=CHUNK_BYTES, max_buffer_size=2 * MAX_VALUE_BYTES)
        # what came and is not decoded yet, and where it begins in the document
        self._window = b""
        self._base = 0

    def map_length(self, what: str, limit: int) -> Steps[int]:
        """Open a map.

        Raises:
            BadRequestError: from here and from every other method: it is not what it should be, or beyond a limit.
        """
        return (yield from self._opened("a map", what, limit))

    def value(self, decoder: msgspec.msgpack.Decoder[T], max_bytes: int = MAX_VALUE_BYTES) -> Steps[T]:
        """One value, decoded whole."""
        yield from self._reached(self._unpacker.skip, "expected a value")
        return read_msgpack(decoder, self._taken(self._unpacker.tell()), self._what, max_bytes=max_bytes)

    def array(
        self, what: str, limit: int, decoder: msgspec.msgpack.Decoder[T], take: Callable[[T], object]
    ) -> Steps[None]:
        """Read an array of many elements, and have them taken slice by slice, each an array of some of them."""
        count = yield from self._opened("an array", what, limit)
        yield from self._elements(what, _ARRAY32, count, decoder, take)

    def table(
        self, what: str, limit: int, decoder: msgspec.msgpack.Decoder[T], take: Callable[[T], object]
    ) -> Steps[None]:
        """The same of a map of many members."""
        count = yield from self._opened("a map", what, limit)
        yield from self._elements(what, _MAP32, count, decoder, take)

    def end(self) -> Steps[None]:
        """Refuse what stands behind the document."""
        for chunk in self._chunks:
            self._window += chunk
            yield
            if self._window:
                break
        if self._window:
            self._fail(f"trailing bytes at byte {self._base}")

    def _elements(
        self, what: str, kind: int, count: int, decoder: msgspec.msgpack.Decoder[T], take: Callable[[T], object]
    ) -> Steps[None]:
        # a member is two values
        parts = 2 if kind == _MAP32 else 1
        skip, tell = self._unpacker.skip, self._unpacker.tell
        left = count * parts
        while left:
            # complete elements that are there, and where the last of them ends
            complete, end = 0, self._base
            try:
                while left:
                    skip()
                    left -= 1
                    if left % parts == 0:
                        complete, end = complete + 1, tell()
            except msgpack.OutOfData:
                pass
            except (ValueError, msgpack.UnpackException):
                self._fail(f"expected a value at byte {tell()}")
            if complete:
                piece = _ARRAY.pack(kind, complete) + self._taken(end)
                take(read_msgpack(decoder, piece, f"{self._what} ({what})"))
                yield
            if left:
                self._feed()

    def _opened(self, kind: Literal["a map", "an array"], what: str, limit: int) -> Steps[int]:
        open_it = self._unpacker.read_map_header if kind == "a map" else self._unpacker.read_array_header
        length: int = yield from self._reached(open_it, f"expected {kind}")
        self._taken(self._unpacker.tell())
        if length > limit:
            message = f"{length} {what} in one {self._whole}, limit {limit}"
            raise BadRequestError(message)
        return length

    def _reached(self, action: Callable[[], T], expected: str) -> Steps[T]:
        while True:
            try:
                return action()
            except msgpack.OutOfData:
                self._feed()
            except (ValueError, msgpack.UnpackException):
                self._fail(f"{expected} at byte {self._base}")
            yield

    def _feed(self) -> None:
        if len(self._window) > MAX_VALUE_BYTES:
            self._fail(f"value of more than {MAX_VALUE_BYTES} bytes at byte {self._base}")
        chunk = next(self._chunks, None)
        if chunk is None:
            self._fail("unexpected end of data")
        self._unpacker.feed(chunk)
        self._window += chunk

    def _taken(self, end: int) -> bytes:
        """What came up to there; it is not held any longer."""
        size = end - self._base
        taken, self._window = self._window[:size], self._window[size:]
        self._base = end
        return taken

    def _fail(self, message: str) -> NoReturn:
        raise BadRequestError(f"body of {self._what} cannot be read: {message}")
