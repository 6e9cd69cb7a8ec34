"""Where does one frame end and the next begin?

u32 length | u8 serialize type | u24 header length | header | body, big endian; `length` counts everything after itself.
"""

from struct import Struct
from typing import Final, NamedTuple

from namesrv_remoting.codes import SerializeType
from namesrv_remoting.errors import LocalProtocolError, RemoteProtocolError

# 16 MiB, as in NettyDecoder; counts the four length bytes too. An HTTP or TLS client that dials this port decodes as a
# length far beyond it and is refused after four bytes.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
# A header carries names, addresses and a few numbers; Java's largest is under 2 KiB. 64 KiB leaves room for 255 ext
# fields, and bounds what one header can make of itself once it is decoded.
MAX_HEADER_BYTES: Final = 64 * 1024
# what three bytes can say; beyond it the length would run over into the serialize type
MAX_ENCODED_HEADER_BYTES: Final = (1 << 24) - 1

LENGTH: Final = Struct(">I")
HEAD: Final = Struct(">II")
_SERIALIZE_TYPES: Final = frozenset(SerializeType)


class Frame(NamedTuple):
    """One frame, cut but not understood. For the binary header, `header` runs on into the body (see its serializer)."""

    serialize_type: int
    header: bytes
    body: bytes


def encode_frame(
    serialize_type: int, header: bytes, body: bytes = b"", *, max_frame_bytes: int = MAX_FRAME_BYTES
) -> bytes:
    """The bytes of one frame.

    Raises:
        LocalProtocolError: the frame would be larger than the receiver accepts, or its header than can be said.
    """
    length = 4 + len(header) + len(body)
    if length + 4 > max_frame_bytes:
        message = f"frame of {length + 4} bytes, limit {max_frame_bytes}"
        raise LocalProtocolError(message)
    if len(header) > MAX_ENCODED_HEADER_BYTES:
        message = f"header of {len(header)} bytes, limit {MAX_ENCODED_HEADER_BYTES}"
        raise LocalProtocolError(message)
    return b"%b%b%b" % (HEAD.pack(length, serialize_type << 24 | len(header)), header, body)


class FrameReader:
    """Cuts a stream of bytes into frames, however it is chopped.

    Refuses a length before it buffers what the length announces. Errors are data: after one, `error` says what was
    wrong, the stream has no meaning any more, and nothing further comes out. Frames before it are still delivered.
    """

    __slots__ = ("_buffer", "_max_frame_bytes", "_max_header_bytes", "_wanted", "error")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_header_bytes = max_header_bytes
        # the beginning of a frame that is not complete yet; None when the last read ended with a frame's end
        self._buffer: bytearray | None = None
        # bytes that have to be there before it is worth looking at the buffer again
        self._wanted = 0
        # why the stream ended, if it did
        self.error: RemoteProtocolError | None = None

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame has begun and not ended: what the whole-frame deadline is about."""
        return self._buffer is not None

    @property
    def missing_bytes(self) -> int:
        """How many bytes more it takes until there is something new to see; never bytes of the frame after this one."""
        return 0 if self._buffer is None else self._wanted - len(self._buffer)

    @property
    def buffered_bytes(self) -> int:
        """Bytes held back for an incomplete frame."""
        return len(self._buffer) if self._buffer is not None else 0

    def receive_data(self, data: bytes) -> list[Frame]:
        """The frames that are complete now; look at `error` afterwards."""
        if self.error is not None:
            return []
        if self._buffer is not None:
            self._buffer += data
            if len(self._buffer) < self._wanted:
                return []
            received: bytes | bytearray = self._buffer
            self._buffer = None
        else:
            received = data
        frames: list[Frame] = []
        try:
            # through a view: a registration of megabytes is copied once, not at every step
            with memoryview(received) as view:
                self._cut(view, frames)
        except RemoteProtocolError as error:
            self.error = error
        return frames

    def _cut(self, data: memoryview, frames: list[Frame]) -> None:
        at, size = 0, len(data)
        while size - at >= 4:
            (length,) = LENGTH.unpack_from(data, at)
            self._check_length(length)
            if size - at < 8:
                break
            (word,) = LENGTH.unpack_from(data, at + 4)
            serialize_type, header_length = word >> 24, word & 0xFFFFFF
            self._check_head(serialize_type, header_length, length)
            end = at + 4 + length
            if end > size:
                break
            body_at = at + 8 + header_length
            # Java's binary decoder stops where the ext fields end and takes the rest as the body, so that its
            # serializer has to see past the declared header.
            header_end = end if serialize_type == SerializeType.ROCKETMQ else body_at
            frames.append(Frame(serialize_type, bytes(data[at + 8 : header_end]), bytes(data[body_at:end])))
            at = end
        if at < size:
            self._keep(data, at)

    def _keep(self, data: memoryview, at: int) -> None:
        self._buffer = bytearray(data[at:])
        self._wanted = 4 if len(self._buffer) < 4 else 8
        if len(self._buffer) >= 8:
            self._wanted = 4 + LENGTH.unpack_from(self._buffer)[0]

    def _check_length(self, length: int) -> None:
        if length > self._max_frame_bytes - 4:
            message = f"frame of {length + 4} bytes, limit {self._max_frame_bytes}"
            raise RemoteProtocolError(message, reason="frame_too_large")
        if length < 4:
            message = f"frame length {length}, the least is 4"
            raise RemoteProtocolError(message, reason="frame_too_short")

    def _check_head(self, serialize_type: int, header_length: int, length: int) -> None:
        if serialize_type not in _SERIALIZE_TYPES:
            message = f"serialize type {serialize_type} is none of 0, 1, 77"
            raise RemoteProtocolError(message, reason="serialize_type")
        if header_length > length - 4:
            message = f"header of {header_length} bytes in a frame of {length}"
            raise RemoteProtocolError(message, reason="header_length")
        if header_length > self._max_header_bytes:
            message = f"header of {header_length} bytes, limit {self._max_header_bytes}"
            raise RemoteProtocolError(message, reason="header_too_large")
