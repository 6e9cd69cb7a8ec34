"""Reader of large msgpack documents in slices. Only servers receive such documents, and need the package msgpack."""

from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Final, NoReturn, TypeVar, get_origin

import msgpack
import msgspec

from namesrv_remoting.bodies.base import CHUNK_BYTES, Steps, read_msgpack
from namesrv_remoting.bodies.slices import MAX_MEMBERS, MAX_NAME_BYTES, MAX_VALUE_BYTES, Elements, MsgpackMember
from namesrv_remoting.errors import BadRequestError

T = TypeVar("T")

_names: Final = msgspec.msgpack.Decoder(str)
_anything: Final = msgspec.msgpack.Decoder(msgspec.Raw)
_HEAD: Final = Struct(">BI")
_ARRAY32: Final = 0xDD
_MAP32: Final = 0xDF


class MsgpackSlices:
    """A msgpack document that arrives in chunks and is never held as a whole.

    Errors name the document as `what` (REGISTER_BROKER), and as `whole` (registration) if a limit is exceeded.

    The outer maps and arrays are opened one by one, so that their lengths are known before their elements; compiled
    code measures the elements, which are then decoded in batches.
    """

    def __init__(self, chunks: Iterator[bytes], what: str, whole: str) -> None:
        self._chunks = chunks
        self._what = what
        self._whole = whole
        self._unpacker = msgpack.Unpacker(read_size=CHUNK_BYTES, max_buffer_size=2 * MAX_VALUE_BYTES)
        # received data that is not decoded yet, and its position in the document
        self._window = b""
        self._base = 0

    def read(self, members: Mapping[str, MsgpackMember]) -> Steps[None]:
        """Read the given members of the document, a map; other members are skipped. Raises BadRequestError."""
        for _ in range((yield from self._opened(_MAP32, "members", MAX_MEMBERS))):
            member = members.get((yield from self._value(_names, MAX_NAME_BYTES)))
            if member is None:
                yield from self._value(_anything, MAX_VALUE_BYTES)
            elif isinstance(member, Elements):
                member.begin()
                yield from self._elements(member)
            else:
                member.take((yield from self._value(member.decoder, member.max_bytes)))
        while not self._window:
            chunk = next(self._chunks, None)
            if chunk is None:
                return
            self._window = chunk
            yield
        self._fail(f"trailing bytes at byte {self._base}")

    def _value(self, decoder: msgspec.msgpack.Decoder[T], max_bytes: int) -> Steps[T]:
        yield from self._reached(self._unpacker.skip, "expected a value")
        return read_msgpack(decoder, self._taken(self._unpacker.tell()), self._what, max_bytes=max_bytes)

    def _elements(self, member: Elements) -> Steps[None]:
        # Each member of a map counts as two values, its key and its value.
        kind, parts = (_MAP32, 2) if get_origin(member.decoder.type) is dict else (_ARRAY32, 1)
        left = parts * (yield from self._opened(kind, member.what, member.most))
        skip, tell = self._unpacker.skip, self._unpacker.tell
        while left:
            # number of complete elements in the received data, and the end of the last one
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
                piece = _HEAD.pack(kind, complete) + self._taken(end)
                member.take(read_msgpack(member.decoder, piece, f"{self._what} ({member.what})"))
                yield
            if left:
                self._feed()

    def _opened(self, kind: int, what: str, limit: int) -> Steps[int]:
        open_it, expected = (
            (self._unpacker.read_map_header, "expected a map")
            if kind == _MAP32
            else (self._unpacker.read_array_header, "expected an array")
        )
        length: int = yield from self._reached(open_it, expected)
        self._taken(self._unpacker.tell())
        if length > limit:
            raise BadRequestError(f"{length} {what} in one {self._whole}, limit {limit}")
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
        """Take the received data up to this position out of the buffer."""
        size = end - self._base
        taken, self._window = self._window[:size], self._window[size:]
        self._base = end
        return taken

    def _fail(self, message: str) -> NoReturn:
        raise BadRequestError(f"body of {self._what} cannot be read: {message}")
