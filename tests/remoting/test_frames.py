"""Splitting a stream into frames, and refusing an invalid one as early as possible."""

from itertools import accumulate, pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.errors import LocalProtocolError
from namesrv_remoting.frames import MAX_FRAME_BYTES, MAX_HEADER_BYTES, Frame, FrameReader, encode_frame

JSON_FRAME = b'\x00\x00\x00\x12\x00\x00\x00\x0c{"code":106}ab'
# Bytes that may follow a frame: a whole frame (JSON header `{}`, body `t`), and an incomplete one.
TAIL = b"\x00\x00\x00\x07\x00\x00\x00\x02{}t"
TAIL_FRAME = Frame(0, b"{}", b"t")
BEGUN = TAIL[:9]


class Fed(NamedTuple):
    """Frames decoded from a stream, and the error that ended it, if any."""

    frames: list[Frame]
    error: str | None


def feed(stream: bytes, *, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES) -> Fed:
    """Decode a stream at once, byte by byte and with bytes after it, and check that the results agree.

    After whole frames the following frame is decoded as well; after a broken one nothing is.
    """

    def reader() -> FrameReader:
        return FrameReader(max_frame_bytes, max_header_bytes)

    at_once = _fed(reader(), stream)
    assert at_once == _fed(reader(), *(stream[at : at + 1] for at in range(len(stream))))
    tail = [] if at_once.error else [TAIL_FRAME]
    behind = Fed(at_once.frames + tail, at_once.error)
    assert behind == _fed(reader(), stream + TAIL)
    assert behind == _fed(reader(), stream, TAIL)
    assert at_once == _fed(reader(), stream + BEGUN)
    assert behind == _fed(reader(), stream + BEGUN, TAIL[len(BEGUN) :])
    return at_once


def _fed(reader: FrameReader, *pieces: bytes) -> Fed:
    frames = [frame for piece in pieces for frame in reader.receive_data(piece)]
    return Fed(frames, None if reader.error is None else str(reader.error))


@pytest.mark.parametrize(
    ("stream", "frames"),
    [
        (b"", []),
        (JSON_FRAME, [Frame(0, b'{"code":106}', b"ab")]),
        (b"\x00\x00\x00\x06\x00\x00\x00\x02{}", [Frame(0, b"{}", b"")]),
        (b"\x00\x00\x00\x0c\x01\x00\x00\x04headbody", [Frame(1, b"head", b"body")]),
        (b"\x00\x00\x00\x0b\x4d\x00\x00\x07\x96\x00\x00\x00\x00\xc0\xc0", [Frame(77, b"\x96\0\0\0\0\xc0\xc0", b"")]),
        (JSON_FRAME + JSON_FRAME[:8] + b'{"code":105}xy', [
            Frame(0, b'{"code":106}', b"ab"),
            Frame(0, b'{"code":105}', b"xy"),
        ]),
    ],
    ids=["nothing", "header and body", "no body", "binary", "native", "two"],
)  # fmt: skip
def test_stream_is_split_into_frames(stream: bytes, frames: list[Frame]) -> None:
    """The length counts what follows it: four bytes of type and header length, header, body; all are big endian."""
    assert feed(stream) == Fed(frames, None)
    assert b"".join(encode_frame(*frame) for frame in frames) == stream


HTTP_REQUEST = "HTTP request received: this port is not for HTTP, --http-listen has one"
PROXY_HEADER = "PROXY header received where a frame is expected: the server needs --proxy-protocol for it"


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b"\x00\x00\x00\x00", "frame length 0, minimum 4"),
        (b"\x00\x00\x00\x03", "frame length 3, minimum 4"),
        (b"\xff\xff\xff\xfb", "frame of 4294967295 bytes, limit 16777216"),
        (b"\x00\xff\xff\xfd", "frame of 16777217 bytes, limit 16777216"),
        (b"\x01\x00\x00\x01", "frame of 16777221 bytes, limit 16777216"),
        (b"\x16\x03\x01\x00\x05hello world 0123", "TLS received where plain text is expected"),
        (
            b"HTTP/1.1 400 Bad Request",
            "HTTP response received: the peer's port is for HTTP, perhaps that of --http-listen",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", HTTP_REQUEST),
        (b"POST /x HTTP/1.1\r\n\r\n", HTTP_REQUEST),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP_REQUEST),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", PROXY_HEADER),
        (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", PROXY_HEADER),
        (b"\x00\x00\x00\x06\x02\x00\x00\x02{}", "unknown serialize type 2, expected 0, 1 or 77"),
        (b"\x00\x00\x00\x06\x4e\x00\x00\x02{}", "unknown serialize type 78, expected 0, 1 or 77"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x03{}", "header of 3 bytes in a frame of 6"),
        (b"\x00\x00\x00\x06\x01\x00\x00\x03{}", "header of 3 bytes in a frame of 6"),
        (b"\x00\x02\x00\x00\x00\x01\x00\x01", "header of 65537 bytes, limit 65536"),
    ],
)
def test_invalid_frame_is_refused(stream: bytes, error: str) -> None:
    """Frames before the invalid one are delivered, and nothing after it."""
    assert feed(stream) == Fed([], error)
    assert feed(JSON_FRAME + stream) == Fed([Frame(0, b'{"code":106}', b"ab")], error)


@pytest.mark.parametrize(
    ("needed", "reason"),
    [
        (b"\x00\x00\x00\x03", "frame_too_short"),
        (b"\x00\xff\xff\xfd", "frame_too_large"),
        (b"\x00\x00\x00\x06\x02\x00\x00\x02", "serialize_type"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x03", "header_length"),
        (b"\x00\x02\x00\x00\x00\x01\x00\x01", "header_too_large"),
    ],
)
def test_invalid_frame_is_refused_at_the_first_possible_byte(needed: bytes, reason: str) -> None:
    """A bad length is refused at its fourth byte, a bad type or header length at its last."""
    reader = FrameReader()

    assert (reader.receive_data(needed[:-1]), reader.error) == ([], None)
    assert reader.receive_data(needed[-1:]) == []
    assert reader.error is not None
    assert reader.error.reason == reason


def test_limits_are_configurable() -> None:
    """A frame of 19 bytes passes a limit of 19 and not one of 18; a header of 12 bytes likewise."""
    frame = b"\x00\x00\x00\x0f\x00\x00\x00\x0b" + b'{"code":1} '
    taken = Fed([Frame(0, b'{"code":1} ', b"")], None)

    assert taken == feed(frame, max_frame_bytes=19)
    assert feed(frame, max_frame_bytes=18) == Fed([], "frame of 19 bytes, limit 18")
    unknown = b"\x00\x00\x00\x0f\x02\x00\x00\x0b"
    assert feed(unknown, max_frame_bytes=19) == Fed([], "unknown serialize type 2, expected 0, 1 or 77")
    assert taken == feed(frame, max_frame_bytes=4096, max_header_bytes=11)
    assert feed(frame, max_frame_bytes=4096, max_header_bytes=10) == Fed([], "header of 11 bytes, limit 10")


@pytest.mark.parametrize(
    ("header_bytes", "body_bytes", "limit", "error"),
    [
        (16, 16_777_193, 16_777_216, "frame of 16777217 bytes, limit 16777216"),
        (16, 0, 23, "frame of 24 bytes, limit 23"),
        (16_777_216, 0, 1 << 25, "header of 16777216 bytes, limit 16777215"),
    ],
)
def test_frame_beyond_the_limits_is_not_written(header_bytes: int, body_bytes: int, limit: int, error: str) -> None:
    """A frame too large for the receiver, or a header length that overflows into the type, is an error."""
    with pytest.raises(LocalProtocolError, match=f"^{error}$"):
        encode_frame(0, bytes(header_bytes), bytes(body_bytes), max_frame_bytes=limit)
    # exactly 16 MiB
    assert len(encode_frame(0, bytes(16), bytes(16_777_192))) == 16_777_216


FRAMES = st.lists(st.tuples(st.sampled_from([0, 1, 77]), st.binary(max_size=40), st.binary(max_size=40)), max_size=6)


@given(frames=FRAMES, cuts=st.lists(st.integers(0, 600)))
def test_splitting_of_the_stream_does_not_matter(frames: list[tuple[int, bytes, bytes]], cuts: list[int]) -> None:
    """Frames come out unchanged wherever the stream is split; the reader is inside a frame but for its edges."""
    written = [encode_frame(*frame) for frame in frames]
    stream, frame_ends = b"".join(written), {0, *accumulate(map(len, written))}
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reader = FrameReader()
    out = []

    for start, end in pairwise(edges):
        out += reader.receive_data(stream[start:end])
        assert reader.is_inside_frame == (end not in frame_ends)

    assert [Frame(*frame) for frame in frames] == out
    assert reader.error is None
