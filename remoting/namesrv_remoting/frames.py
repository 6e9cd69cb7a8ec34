"""Frames: cutting a stream of bytes into messages.

u32 length | u8 serialize type | u24 header length | header | body, big endian; `length` counts everything after itself.
"""

from struct import Struct
from typing import Final, NamedTuple

from namesrv_remoting.codes import SerializeType
from namesrv_remoting.errors import LocalProtocolError, RemoteProtocolError, without_traceback

# 16 MiB, as in NettyDecoder; counts the four length bytes too. An HTTP or TLS client that dials this port decodes as a
# length far beyond it and is refused after four bytes.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
# A header has names, addresses and a few numbers; Java's largest is under 2 KiB. 64 KiB leaves room for MAX_EXT_FIELDS
# of 200 bytes each, and bounds the size of the decoded header.
MAX_HEADER_BYTES: Final = 64 * 1024
# The header length has three bytes; a larger one would overwrite the serialize type.
MAX_ENCODED_HEADER_BYTES: Final = (1 << 24) - 1

LENGTH: Final = Struct(">I")
HEAD: Final = Struct(">II")
_unpack_head: Final = HEAD.unpack_from
# The first two bytes of a TLS record: the type (handshake or alert) and the major version.
_TLS_RECORDS: Final = (0x1603, 0x1503)
_PROXY_HEADER: Final = "PROXY header received where a frame is expected: the server needs --proxy-protocol for it"
_HTTP_REQUEST: Final = "HTTP request received: this port is not for HTTP, --http-listen has one"
# The first four bytes of other protocols -> the meaning of a "frame" that begins with them.
_OTHER_PROTOCOLS: Final = {
    b"HTTP": "HTTP response received: the peer's port is for HTTP, perhaps that of --http-listen",
    b"PROX": _PROXY_HEADER,
    # the signature of version 2 of the PROXY protocol
    b"\r\n\r\n": _PROXY_HEADER,
    **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PRI "), _HTTP_REQUEST),
}
# Plain numbers, since comparing a number with a member of an enum is slow.
_SERIALIZE_TYPES: Final = frozenset(map(int, SerializeType))


class Frame(NamedTuple):
    """One frame, cut from the stream but not decoded."""

    serialize_type: int
    header: bytes
    body: bytes


def encode_frame(
    serialize_type: int, header: bytes, body: bytes = b"", *, max_frame_bytes: int = MAX_FRAME_BYTES
) -> bytes:
    """The bytes of one frame. Raises LocalProtocolError if it, or its header, is too large."""
    length = 4 + len(header) + len(body)
    if length + 4 > max_frame_bytes:
        raise LocalProtocolError(f"frame of {length + 4} bytes, limit {max_frame_bytes}")
    if len(header) > MAX_ENCODED_HEADER_BYTES:
        raise LocalProtocolError(f"header of {len(header)} bytes, limit {MAX_ENCODED_HEADER_BYTES}")
    return b"%b%b%b" % (HEAD.pack(length, serialize_type << 24 | len(header)), header, body)


def needed_bytes(data: bytes | bytearray | memoryview, at: int, max_frame_bytes: int, max_header_bytes: int) -> int:
    """The number of bytes that are needed to continue with the frame at `at`; once its head is there, its full size.

    Raises RemoteProtocolError for a malformed or too large frame as soon as the wrong length (of the frame, or of its
    header) has arrived, before any of the announced bytes are kept.
    """
    there = len(data) - at
    if there >= 8:
        length: int
        length, word = _unpack_head(data, at)
        header_length = word & 0xFFFFFF
        fits = header_length + 4 <= length <= max_frame_bytes - 4 and header_length <= max_header_bytes
        if fits and word >> 24 in _SERIALIZE_TYPES:
            return 4 + length
        raise _wrong_head(length, word >> 24, header_length, max_frame_bytes, max_header_bytes)
    if there < 4:
        return 4
    (length,) = LENGTH.unpack_from(data, at)
    if not 4 <= length <= max_frame_bytes - 4:
        raise _wrong_length(length, max_frame_bytes)
    return 8


def _wrong_head(
    length: int, serialize_type: int, header_length: int, max_frame_bytes: int, max_header_bytes: int
) -> RemoteProtocolError:
    if not 4 <= length <= max_frame_bytes - 4:
        return _wrong_length(length, max_frame_bytes)
    if serialize_type not in _SERIALIZE_TYPES:
        message = f"unknown serialize type {serialize_type}, expected 0, 1 or 77"
        return RemoteProtocolError(message, reason="serialize_type")
    if header_length > length - 4:
        return RemoteProtocolError(f"header of {header_length} bytes in a frame of {length}", reason="header_length")
    return RemoteProtocolError(f"header of {header_length} bytes, limit {max_header_bytes}", reason="header_too_large")


def _wrong_length(length: int, max_frame_bytes: int) -> RemoteProtocolError:
    if length < 4:
        return RemoteProtocolError(f"frame length {length}, minimum 4", reason="frame_too_short")
    if length >> 16 in _TLS_RECORDS:
        return RemoteProtocolError("TLS received where plain text is expected", reason="tls")
    message = _OTHER_PROTOCOLS.get(LENGTH.pack(length)) or f"frame of {length + 4} bytes, limit {max_frame_bytes}"
    return RemoteProtocolError(message, reason="frame_too_large")


def cut_frame(data: bytes | bytearray | memoryview, at: int = 0, end: int | None = None) -> Frame:
    """The frame between `at` and `end`, positions that follow from `needed_bytes`."""
    (word,) = LENGTH.unpack_from(data, at + 4)
    body_at = at + 8 + (word & 0xFFFFFF)
    return Frame(word >> 24, bytes(data[at + 8 : body_at]), bytes(data[body_at:end]))


class FrameReader:
    """Cuts a stream of bytes, received in pieces of any size, into frames.

    A protocol error is stored in `error` instead of being raised: frames before the error are still delivered, and no
    frame is delivered after it.
    """

    __slots__ = ("_at", "_data", "_size", "error", "max_frame_bytes", "max_header_bytes")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.max_header_bytes = max_header_bytes
        # received bytes, and the position of the next frame in them
        self._data: bytes | bytearray = b""
        self._at = 0
        # the size of the next frame; 0 while unknown
        self._size = 0
        # the protocol error that ended the stream, or None
        self.error: RemoteProtocolError | None = None

    @property
    def held_bytes(self) -> int:
        """The number of received bytes that are not taken yet."""
        return len(self._data) - self._at

    @property
    def is_inside_frame(self) -> bool:
        """Whether received bytes are not taken yet: the beginning of a frame, or whole frames before it."""
        return self.held_bytes > 0

    def feed(self, data: bytes) -> None:
        """Append received data to the buffer."""
        if self._at == len(self._data):
            self._data, self._at = data, 0
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(memoryview(self._data)[self._at :])
        else:
            del self._data[: self._at]
        self._data += data
        self._at = 0

    def receive_data(self, data: bytes) -> list[Frame]:
        """Append received data, and take all complete frames; check `error` afterwards."""
        self.feed(data)
        frames: list[Frame] = []
        # Frames are cut from a memoryview, so that a response of megabytes is copied only once.
        with memoryview(self._data) as view:
            while 0 < (size := self.next_size()) <= self.held_bytes:
                frames.append(cut_frame(view, self._at, self._at + size))
                self._skip(size)
        return frames

    def next_size(self) -> int:
        """The size of the next frame; 0 before its first eight bytes are received, and after an error."""
        if self._size or self.error is not None:
            return self._size
        try:
            needed = needed_bytes(self._data, self._at, self.max_frame_bytes, self.max_header_bytes)
        except RemoteProtocolError as error:
            self.error = without_traceback(error)
            return 0
        if len(self._data) - self._at >= 8:
            self._size = needed
        return self._size

    def next_header(self) -> bytes | None:
        """The bytes of the next frame up to the end of its header, which stay in the buffer; None if incomplete."""
        if not self.next_size():
            return None
        (word,) = LENGTH.unpack_from(self._data, self._at + 4)
        end = self._at + 8 + (word & 0xFFFFFF)
        return bytes(self._data[self._at : end]) if end <= len(self._data) else None

    def next_frame(self, most: int) -> bytes | None:
        """Take the bytes of the next frame if it is complete and not larger than the limit; otherwise None."""
        data, begin = self._data, self._at
        size = self._size or self.next_size()
        end = begin + size
        if not size or size > most or end > len(data):
            return None
        self._skip(size)
        frame = data[begin:end]
        # Calling bytes() takes longer than cutting a small frame.
        return frame if isinstance(frame, bytes) else bytes(frame)

    def take(self, most: int) -> bytes:
        """Take the bytes of the next frame, or the received part of it; `most` is the size of the frame."""
        size = min(most, self.held_bytes)
        taken = bytes(self._data[self._at : self._at + size])
        self._skip(size)
        return taken

    def _skip(self, size: int) -> None:
        """Take that many bytes, which end with a frame."""
        self._at += size
        self._size = 0
        if self._at == len(self._data):
            # A buffer that was taken whole would stay in memory until the next data comes.
            self._data, self._at = b"", 0
